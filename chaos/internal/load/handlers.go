package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/value"
)

// The workflows. Callers and workers share them.
var (
	Run     = kagzi.Define[Job, string]("program", runs)
	Undoing = kagzi.Define[Undo, struct{}]("undo", kagzi.Queue("plain"), undos)
	Mail    = kagzi.DefineSignal[string]("mail")
	Asked   = request.Define[string, string]("asked")
	State   = value.Define[string]("state")
	Told    = topic.Define[string]("told")
	News    = topic.Define[string]("news")
)

// The policies of the workflows that fail by design, or often.
var (
	runs  = kagzi.RetryPolicy{MaxAttempts: 3, Backoff: 20 * time.Millisecond, MaxBackoff: 40 * time.Millisecond}
	undos = kagzi.RetryPolicy{MaxAttempts: 50, Backoff: 10 * time.Millisecond, MaxBackoff: 200 * time.Millisecond}
)

// RunBackoff returns the longest wait after so many failed attempts of a workflow's run; zero if it has no policy of
// ours.
func RunBackoff(workflow string, attempts int) time.Duration {
	if attempts == 0 { // the run has continued
		return 0
	}
	switch workflow {
	case Run.Name():
		return longest(runs, attempts)
	case Undoing.Name():
		return longest(undos, attempts)
	}
	return 0
}

// longest returns the longest wait of a policy after so many attempts, or fewer: each wait is twice the one before, and
// the jitter adds up to a quarter.
func longest(p kagzi.RetryPolicy, attempts int) time.Duration {
	return min(p.MaxBackoff, p.Backoff<<min(attempts-1, 20)) * 5 / 4
}

// Reader consumes each event of Told, in order.
var Reader = topic.DefineConsumer("reader", topic.ConsumerConfig{
	Topics: []topic.AnyTopic{Told}, Queue: "plain", LeastWake: 200 * time.Millisecond, IgnoreFailure: true,
	RetryPolicy: kagzi.RetryPolicy{MaxAttempts: 10, Backoff: 20 * time.Millisecond},
})

// An Undo is the input of a compensation.
type Undo struct {
	Run  kagzi.RunID `json:"run"`
	What string      `json:"what"`
}

// A Read is the state of Reader.
type Read struct {
	Count int    `json:"count"`
	Chain string `json:"chain"` // of the IDs of all events, in the order in which it consumed them
}

// Accounts is how many accounts there are for transfers, and Balance what each has at first.
const (
	Accounts = 16
	Balance  = 1000
)

// OpenAccounts fills the accounts.
func OpenAccounts(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `INSERT INTO chaos.accounts SELECT 'account ' || i, $2 FROM generate_series(0, $1 - 1) i`,
		Accounts, Balance)
	return err
}

// A Handler executes programs in a worker, and writes down what it does.
type Handler struct {
	Ledger *evidence.Ledger
	Dir    string             // for marks that outlive the process
	Reach  func(point string) // called in the functions of steps; it may kill the process
}

// Register gives the worker the code of the versions 1 to version.
func (h *Handler) Register(w *kagzi.Worker, version int) {
	for v := 1; v <= version; v++ {
		opts := []kagzi.HandleOption{kagzi.Version(v)}
		if v == version {
			opts = append(opts, kagzi.DefaultVersion())
		}
		kagzi.Handle(w, Run, func(ctx kagzi.Context, job Job) (string, error) { return h.run(ctx, job, v) }, opts...)
	}
	kagzi.Handle(w, Undoing, h.undo)
	kagzi.Handle(w, Collected, h.collect)
	kagzi.Handle(w, Settled, h.settle)
	topic.Consume(w, Reader, h.reads(Told, 0))
	for _, q := range Quiets {
		topic.Consume(w, q.Consumer, h.reads(q.Topic, quietWork))
	}
}

// An execution is one execution of a program's branch.
type execution struct {
	*Handler
	job Job
}

func (h *Handler) run(ctx kagzi.Context, job Job, version int) (string, error) {
	x := execution{h, job}
	ops, continues := Of(job).epoch(job.Epoch)
	ops, rollsBack := beforeRollback(ops)
	v, err := x.ops(ctx, ops, cmp.Or(job.Value, start(job)))
	if err != nil {
		return "", err
	}
	if continues {
		job.Epoch++
		job.Value = v
		return "", kagzi.Continue(ctx, job)
	}
	if version >= 2 && job.Generation == 0 {
		v, err = x.step(ctx, Op{Kind: opStep, Name: "v2"}, v)
	}
	if err == nil && rollsBack {
		err = kagzi.Rollback(ctx)
	}
	return v, err
}

func (x execution) ops(ctx kagzi.Context, ops []Op, v string) (_ string, err error) {
	for _, op := range ops {
		if v, err = x.op(ctx, op, v); err != nil {
			return "", err
		}
	}
	return v, nil
}

func (x execution) op(ctx kagzi.Context, op Op, v string) (string, error) {
	switch op.Kind {
	case opTx, opParts:
		return x.transfer(ctx, op, v)
	case opBig:
		big, err := x.big(ctx, op, v)
		return Link(v, Link("", big)), err
	case opSleep:
		return v, kagzi.Sleep(ctx, op.Name, time.Duration(op.N)*time.Millisecond)
	case opParallel:
		return x.parallel(ctx, op, v)
	case opMap:
		return x.mapped(ctx, op, v)
	case opRace:
		return x.race(ctx, op, v)
	case opEvent, opWait, opAsked, opLeave:
		return x.read(ctx, op, v)
	case opChild:
		return x.child(ctx, op, v)
	case opUndo:
		kagzi.Compensate(ctx, op.Name, Undoing.With(Undo{ctx.RunID(), op.Name}))
		return v, nil
	case opPublish:
		return v, topic.Publish(ctx, op.Name, Told.With(told(string(ctx.RunID()), op.Name)))
	case opMetadata:
		return v, kagzi.SetMetadata(ctx, op.Name, kagzi.Metadata{"at": op.Name})
	case opValue:
		return v, value.Set(ctx, State, v)
	case opAgain:
		if ctx.Attempt() == 1 {
			return "", errors.New("the first attempt fails")
		}
		return v, nil
	case opFail:
		return "", kagzi.Permanent(errors.New("this program fails"))
	case opPanic:
		if _, err := x.step(ctx, op, v); !errors.Is(err, kind.Panic) {
			return "", fmt.Errorf("a step that panics returned %w", err)
		}
		return Link(v, op.Name), nil
	default: // a step, also one that does not return: then the run fails
		return x.step(ctx, op, v)
	}
}

// begin writes that a step begins. end writes how it ends.
func (x execution) begin(ctx context.Context, lease uuid.UUID) (end func(event, detail string)) {
	s := kagzi.CurrentStep(ctx)
	write := func(event, detail string) {
		x.Ledger.Write(evidence.Line{
			Event: event, Run: string(s.Run), Step: s.Step, Attempt: s.Attempt,
			Lease: lease.String(), Detail: detail,
		})
	}
	write(evidence.Begin, "")
	return write
}

// again is the policy of all steps: attempts that fail by design are few, those that fail because the database is away
// are many.
var again = kagzi.RetryPolicy{MaxAttempts: 1000, Backoff: 5 * time.Millisecond, MaxBackoff: 100 * time.Millisecond}

// Backoff returns the shortest and the longest wait after a failed attempt of a step. An attempt's number is that of
// the failed ones, or higher.
func Backoff(s evidence.Step) (least, most time.Duration) {
	return again.Backoff * 3 / 4, longest(again, s.Attempt)
}

// limitsOf returns the limits of a limited step: one of the two, or both.
func limitsOf(op Op) (opts []kagzi.StepOption) {
	n := len(op.Name)
	if n%3 != 1 {
		opts = append(opts, kagzi.Limit(Gate.Name, 1+n%2))
	}
	if n%3 != 2 {
		opts = append(opts, kagzi.Limit(Door.Name))
	}
	return opts
}

// step executes all kinds of steps but the transactional.
func (x execution) step(ctx kagzi.Context, op Op, v string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	opts := []kagzi.StepOption{again}
	if op.Kind == opOverlong {
		opts = append(opts, kagzi.Timeout(time.Second))
	}
	if op.Kind == opLimited {
		opts = append(opts, limitsOf(op)...)
	}
	if op.Kind == opOnce {
		// A first call has not happened, so that another follows; a later one has.
		opts = append(opts, kagzi.AtMostOnce(), kagzi.Reconcile(func(ctx context.Context) (string, bool, error) {
			return Link(v, op.Name), kagzi.CurrentStep(ctx).Attempt > 1, nil
		}))
	}
	return kagzi.Step(ctx, op.Name, func(ctx context.Context) (result string, err error) {
		end := x.begin(ctx, lease)
		returned := false
		defer func() {
			if !returned {
				end(evidence.Fail, "panic")
			}
		}()
		x.Reach("during step")
		if err = x.perform(ctx, op); err == nil {
			result = Link(v, op.Name)
			end(evidence.End, result)
		} else {
			end(evidence.Fail, err.Error())
		}
		returned = true
		return result, err
	}, opts...)
}

// perform does what the kind of a step asks for.
func (x execution) perform(ctx context.Context, op Op) error {
	attempt := kagzi.CurrentStep(ctx).Attempt
	switch op.Kind {
	case opFlaky, opOnce:
		if attempt <= op.N {
			return errors.New("not yet")
		}
	case opSlow:
		return pause(ctx, op.N)
	case opDeaf:
		return pause(context.WithoutCancel(ctx), op.N)
	case opOverlong:
		if attempt == 1 {
			return pause(ctx, 60_000)
		}
	case opPanic:
		panicIn(op.N)
	case opExit:
		runtime.Goexit()
	case opDie:
		x.dieOnce(kagzi.CurrentStep(ctx))
	case opPoison:
		x.Ledger.Write(evidence.Line{
			Event: evidence.Point, Run: string(kagzi.CurrentStep(ctx).Run), Step: op.Name,
			Detail: "poison",
		})
		os.Exit(7)
	}
	return nil
}

func pause(ctx context.Context, ms int) error {
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dieOnce ends the process, unless the step has already ended one.
func (x execution) dieOnce(s kagzi.StepInfo) {
	mark := filepath.Join(x.Dir, fmt.Sprintf("died-%s-%s", s.Run, strings.ReplaceAll(s.Step, "/", "_")))
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return // it has
	}
	_ = f.Close()
	x.Ledger.Write(evidence.Line{Event: evidence.Point, Run: string(s.Run), Step: s.Step, Detail: "die"})
	os.Exit(7)
}

// panics is how many ways there are to panic.
const panics = 6

type badError struct{}

func (badError) Error() string { panic("even Error panics") }

func panicIn(way int) {
	switch way {
	case 0:
		panic(errors.New("an error"))
	case 1:
		panic(nil) //nolint:govet // it is what some code does
	case 2:
		panic(strings.Repeat("huge\x00\xff", 1<<20))
	case 3:
		panic(badError{})
	case 4:
		_ = []int{}[len(os.Args)] // there are always some
	default:
		panic("a text")
	}
}

// transfer makes one transfer in a transaction, or one for each part of the operation. Then it goes on behind the last
// part that was committed.
func (x execution) transfer(ctx kagzi.Context, op Op, v string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.StepTx(ctx, op.Name, func(ctx context.Context, tx pgx.Tx) (result string, err error) {
		end := x.begin(ctx, lease)
		if op.Kind == opParts {
			err = x.parts(ctx, tx, op.N)
		} else if err = x.move(ctx, tx, ""); err == nil {
			x.Reach("during tx")
		}
		if err != nil {
			end(evidence.Fail, err.Error())
			return "", err
		}
		result = Link(v, op.Name)
		end(evidence.End, result)
		return result, nil
	}, again)
}

// parts makes n transfers, each with a checkpoint.
func (x execution) parts(ctx context.Context, tx pgx.Tx, n int) error {
	part, err := kagzi.LastCheckpoint[int](ctx)
	for ; err == nil && part < n; part++ {
		if err = x.move(ctx, tx, fmt.Sprint(":", part)); err == nil {
			x.Reach("during tx")
			err = kagzi.Checkpoint(ctx, part+1)
		}
	}
	return err
}

// move moves money from an account to another, in the transaction of the step or of a part of it.
func (x execution) move(ctx context.Context, tx pgx.Tx, part string) error {
	s := kagzi.CurrentStep(ctx)
	r := x.job.random(s.Step + part)
	a, b := r.IntN(Accounts), r.IntN(Accounts)
	from, to, amount := fmt.Sprint("account ", a), fmt.Sprint("account ", b), 1+r.IntN(10)
	_, err := tx.Exec(ctx, `INSERT INTO chaos.effects (run_id, step_id, from_account, to_account, amount)
		VALUES ($1, $2, $3, $4, $5)`, string(s.Run), s.Step+part, from, to, amount)
	for _, by := range ordered(a, b, amount) {
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE chaos.accounts SET balance = balance + $2 WHERE name = $1`,
				fmt.Sprint("account ", by.account), by.amount)
		}
	}
	return err
}

type posting struct{ account, amount int }

// ordered returns the postings of a transfer, in an order in which transfers do not deadlock.
func ordered(from, to, amount int) []posting {
	if from > to {
		return []posting{{to, amount}, {from, -amount}}
	}
	return []posting{{from, -amount}, {to, amount}}
}

func (x execution) big(ctx kagzi.Context, op Op, v string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.Step(ctx, op.Name, func(ctx context.Context) (string, error) {
		end := x.begin(ctx, lease)
		big := Big(v, op.N)
		end(evidence.End, "")
		return big, nil
	}, again)
}

func (x execution) parallel(ctx kagzi.Context, op Op, v string) (string, error) {
	results := make([]string, len(op.Branches))
	branches := map[string]func(kagzi.Context) error{}
	for i, ops := range op.Branches {
		branches[branchName(i)] = func(ctx kagzi.Context) (err error) {
			results[i], err = x.ops(ctx, ops, Link(v, branchName(i)))
			return err
		}
	}
	err := kagzi.Parallel(ctx, op.Name, branches)
	return Link(v, strings.Join(results, "")), err
}

func (x execution) mapped(ctx kagzi.Context, op Op, v string) (string, error) {
	items := make([]int, len(op.Branches))
	for i := range items {
		items[i] = i
	}
	results, err := kagzi.Map(ctx, op.Name, items, func(ctx kagzi.Context, i int) (string, error) {
		return x.ops(ctx, op.Branches[i], Link(v, branchName(i)))
	})
	return Link(v, strings.Join(results, "")), err
}

func (x execution) race(ctx kagzi.Context, op Op, v string) (string, error) {
	branches := map[string]func(kagzi.Context) (string, error){}
	for i, ops := range op.Branches {
		branches[branchName(i)] = func(ctx kagzi.Context) (string, error) {
			_, err := x.ops(ctx, ops, Link(v, branchName(i)))
			return Link(v, op.Name), err
		}
	}
	_, result, err := kagzi.Race(ctx, op.Name, branches)
	return result, err
}

// never is a timeout that does not strike, also if a fault sets the server's clock.
const never = 1000 * time.Hour

// read waits for an event, messages or requests, and answers the requests unless they are left to the next epoch.
func (x execution) read(ctx kagzi.Context, op Op, v string) (string, error) {
	for range max(1, op.N) {
		payload, err := x.readOne(ctx, op)
		if err != nil {
			return "", err
		}
		v = Link(v, payload)
	}
	return v, nil
}

func (x execution) readOne(ctx kagzi.Context, op Op) (payload string, err error) {
	switch op.Kind {
	case opEvent:
		return x.hear(ctx, op)
	case opWait:
		return kagzi.WaitSignal(ctx, Mail)
	}
	r, err := request.Wait(ctx, Asked)
	if err != nil {
		return "", err
	}
	if op.Kind == opLeave {
		return r.In, nil
	}
	return r.In, r.Reply(ctx, Answer(r.In))
}

// hear waits for an event, and returns its payload.
func (x execution) hear(ctx kagzi.Context, op Op) (string, error) {
	var timeout []kagzi.Timeout
	if op.N > 0 {
		timeout = append(timeout, kagzi.Timeout(never))
	}
	e, err := topic.WaitEvent(ctx, op.Name, News, kagzi.ID(newsID(x.job, op.Name)), timeout...)
	return e.Payload, err
}

// child runs a child. Whether it failed is part of the value; that it was cancelled ends its parent.
func (x execution) child(ctx kagzi.Context, op Op, v string) (string, error) {
	result, err := kagzi.RunChild(ctx, op.Name, Run, op.Child, kagzi.Queue("plain"))
	if re, ok := errors.AsType[*kagzi.RunError](err); ok && re.Status == kagzi.StatusFailed {
		result, err = "failed", nil
	}
	return Link(v, result), err
}

func (h *Handler) undo(ctx kagzi.Context, in Undo) (struct{}, error) {
	x := execution{Handler: h}
	lease := ctx.(testhook.Branch).Lease()
	return struct{}{}, kagzi.Do(ctx, "undo", func(ctx context.Context) error {
		end := x.begin(ctx, lease)
		x.Reach("during step")
		h.Ledger.Write(evidence.Line{Event: evidence.Undo, Run: string(in.Run), Lease: lease.String(), Detail: in.What})
		end(evidence.End, "")
		return nil
	}, again)
}
