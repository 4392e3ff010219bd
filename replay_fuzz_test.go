package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// A fuzzOp is an operation of a program that the fuzzer has written.
type fuzzOp struct {
	what byte // one of the constants below
	name string
}

const (
	opStep   byte = iota
	opFailed      // a step that fails for good; the code goes on
	opSleep
	opBranch // with the next operation in it
	opReturn // the code returns an error
)

// fuzzProgram reads a program of at most a dozen operations: a byte for each.
func fuzzProgram(code []byte) (ops []fuzzOp) {
	for _, b := range code[:min(len(code), 12)] {
		what := []byte{opStep, opStep, opStep, opFailed, opSleep, opBranch, opBranch, opReturn}[b>>5]
		ops = append(ops, fuzzOp{what, string('a' + rune(b&3))})
	}
	return ops
}

var errReturned = errors.New("returned")

// execute is the workflow function of a program. Its result is what all of its operations have returned.
func execute(ctx Context, ops []fuzzOp, inBranch bool) (string, error) {
	var out strings.Builder
	for len(ops) > 0 {
		op := ops[0]
		ops = ops[1:]
		switch {
		case op.what == opSleep:
			if err := Sleep(ctx, op.name, time.Hour); err != nil {
				return "", err
			}
			out.WriteString("z")
		case op.what == opBranch && len(ops) > 0 && !inBranch:
			inner := ops[:1]
			ops = ops[1:]
			result, err := Go(ctx, op.name, func(ctx Context) (string, error) { return execute(ctx, inner, true) }).
				Result(ctx)
			if err != nil {
				return "", err
			}
			out.WriteString("(" + result + ")")
		case op.what == opReturn && !inBranch:
			return "", errReturned
		default:
			result, err := Step(ctx, op.name, func(context.Context) (string, error) {
				return "", errors.New("a replay calls no step")
			})
			if err != nil {
				result = "!"
			}
			out.WriteString(result)
		}
	}
	return out.String(), nil
}

// A reference goes through a program as the documentation says that code goes through its history: each operation is
// looked up by its name, and by how often its branch has used the name before. With record it writes the history
// instead.
type reference struct {
	rows   map[string]*store.StepRow
	record bool
	used   map[string]int
	out    strings.Builder
	failed bool

	diverged bool
	absent   bool   // the history does not have step
	step     string // where the code leaves the history
}

func (r *reference) id(prefix, name string) string {
	r.used[prefix+name]++
	if n := r.used[prefix+name]; n > 1 {
		name = fmt.Sprintf("%s#%d", name, n)
	}
	return prefix + name
}

func (r *reference) run(ops []fuzzOp, prefix string) {
	for len(ops) > 0 && !r.diverged && !r.failed {
		op := ops[0]
		ops = ops[1:]
		switch {
		case op.what == opBranch && len(ops) > 0 && prefix == "":
			id := r.id(prefix, op.name)
			if r.rows[id] != nil && !r.record { // a step of that name
				r.diverged, r.step = true, id
				return
			}
			r.out.WriteString("(")
			r.run(ops[:1], id+"/")
			r.out.WriteString(")")
			ops = ops[1:]
		case op.what == opReturn && prefix == "":
			r.failed = true
		default:
			r.operation(op, r.id(prefix, op.name))
		}
	}
}

func (r *reference) operation(op fuzzOp, id string) {
	kind := store.KindFunction
	if op.what == opSleep {
		kind = store.KindSleep
	}
	row := r.rows[id]
	if r.record {
		at := time.Unix(1_700_000_000+int64(len(r.rows)), 0)
		row = &store.StepRow{
			StepID: id, Attempt: 1, FirstAttempt: 1, RunAttempt: 1, Status: store.Completed,
			Kind: kind, Position: int64(len(r.rows) + 1), StartedAt: at, FinishedAt: at,
		}
		switch op.what {
		case opSleep:
			row.WakeAt = at
		case opFailed:
			row.Status, row.ErrorKind, row.Error = store.Failed, "unknown", "text"
		default:
			row.Output = fmt.Appendf(nil, "%q", id)
		}
		r.rows[id] = row
	}
	switch {
	case row == nil && r.branched(id):
		r.diverged, r.step = true, id
	case row == nil:
		r.diverged, r.absent, r.step = true, true, id
	case row.Kind != kind:
		r.diverged, r.step = true, id
	case kind == store.KindSleep:
		r.out.WriteString("z")
	case row.Status == store.Failed:
		r.out.WriteString("!")
	default:
		r.out.WriteString(id)
	}
}

// branched reports whether the history has a branch of that name.
func (r *reference) branched(id string) bool {
	for other := range r.rows {
		if strings.HasPrefix(other, id+"/") {
			return true
		}
	}
	return false
}

// damage changes rows of a history in ways that Kagzi never would.
func damage(rows []*store.StepRow, how []byte) []*store.StepRow {
	for ; len(how) >= 2 && len(rows) > 0; how = how[2:] {
		i := int(how[0]) % len(rows)
		row := rows[i]
		switch n := how[1]; n % 8 {
		case 0:
			row.Status = []string{store.Running, store.Failed, store.Completed, ""}[n>>3&3]
		case 1:
			row.Kind = []string{
				store.KindFunction, store.KindSleep, store.KindBranch, store.KindSignal,
				store.KindChild, store.KindMarker, store.KindPeek, store.KindReserve,
			}[n>>3&7]
		case 2:
			row.Output = how[2:]
		case 3:
			row.WakeAt = time.Now().Add(time.Duration(int8(n)) * time.Hour)
		case 4:
			row.ForgottenBy = int(n >> 3)
		case 5:
			row.StepID += string(rune('#' + n>>3))
		case 6:
			row.Attempt, row.FirstAttempt, row.Position = int(n>>3), int(n>>4), -row.Position
		case 7:
			rows = append(rows[:i:i], rows[i+1:]...)
		}
	}
	return rows
}

// A replay of code against the history of other code finds the first operation that the history does not have, or has
// as another kind of operation, or else that the end differs. It never hangs, also if the history is damaged.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{0, 1, 2}, []byte{0, 1, 2}, false, []byte(nil))
	f.Add([]byte{0, 0x80, 0x61}, []byte{0, 0x80, 0x60}, false, []byte(nil))
	f.Add([]byte{0xa0, 1, 2, 0xe0}, []byte{0xa0, 0x81, 2}, true, []byte(nil))
	f.Add([]byte{0, 0, 0, 0xc1, 0x82}, []byte{0, 0, 0xc1, 0x82}, false, []byte{1, 0, 2, 9})
	pool, err := pgxpool.New(f.Context(), "postgres://nobody@127.0.0.1:1/none") // no test asks it for a connection
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(pool.Close)
	client, err := NewClient(pool, ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, recorded, code []byte, additions bool, how []byte) {
		history := &reference{rows: map[string]*store.StepRow{}, record: true, used: map[string]int{}}
		history.run(fuzzProgram(recorded), "")
		now := &reference{rows: history.rows, used: map[string]int{}}
		ops := fuzzProgram(code)
		now.run(ops, "")
		got := replayed(t, client, ops, history, additions, how)
		if len(how) >= 2 {
			return // the result is open, but there is one
		}
		step, differs := now.step, now.diverged
		switch {
		case now.absent && additions:
			step, differs = "", false
		case !now.diverged:
			differs = now.failed != history.failed || !now.failed && now.out.String() != history.out.String()
		}
		if (got != nil) != differs || differs && got.Step != step {
			t.Fatalf("recorded %v, now %v, additions %v: %+v; want a divergence: %v, at %q", fuzzProgram(recorded), ops,
				additions, got, differs, step)
		}
	})
}

// replayed verifies the program against the history.
func replayed(t *testing.T, client *Client, ops []fuzzOp, history *reference, additions bool,
	how []byte,
) *replay.Divergence {
	t.Helper()
	w, err := NewWorker(client, WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	Handle(w, Define[string, string]("fuzzed"), func(ctx Context, _ string) (string, error) {
		return execute(ctx, ops, false)
	})
	run := &store.Run{
		RunID: uuid.New(), Spec: store.Spec{Type: "fuzzed", Queue: "default", Version: 1}, Status: store.Completed,
		StartedAt: time.Unix(1_700_000_000, 0), FinishedAt: time.Now(),
		Input: []byte(`""`), Output: fmt.Appendf(nil, "%q", history.out.String()),
	}
	if history.failed {
		run.Status, run.ErrorKind, run.Error, run.Output, run.Attempts = store.Failed, "unknown",
			errReturned.Error(), nil, 1
	}
	var rows []*store.StepRow
	for _, row := range history.rows {
		row := *row
		row.RunID = run.RunID
		rows = append(rows, &row)
	}
	slices.SortFunc(rows, func(a, b *store.StepRow) int { return cmp.Compare(a.Position, b.Position) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := replay.Verify(ctx, w.session().Env, run, damage(rows, how), w.handlers["fuzzed"][1], additions)
	if err != nil {
		t.Fatalf("recorded %v, now %v, damage %v: %v", history.out.String(), ops, how, err)
	}
	if got != nil && (len(got.Message) > 2000 || !text.IsSane(got.Message)) {
		t.Fatalf("no clean message: %q", got.Message)
	}
	return got
}
