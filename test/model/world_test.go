package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

// Times are far apart, so that no pause of the machine makes a run due.
const (
	leaseTimeout = time.Hour
	far          = 24 * time.Hour
)

// A bench is what all sequences of a test share: the database, and three stores with connections of their own through a proxy that can lose
// the answer to a commit.
type bench struct {
	pool   *pgxpool.Pool // not through the proxy
	proxy  *pgproxy.Proxy
	stores [3]*store.Store
	met    map[string]int // how often each thing has happened
}

func newBench(t *testing.T) *bench {
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	b := &bench{pool: db.Pool, proxy: pgproxy.Start(t, db.DSN), met: map[string]int{}}
	for i := range b.stores {
		b.stores[i] = store.New(dbtest.OpenPool(t, b.proxy.DSN(), dbtest.Conns(2)), "test")
	}
	return b
}

// A world is one sequence: the tables, and the model beside them.
type world struct {
	*bench
	*Model
	leases  []held          // of all claims
	workers []uuid.UUID     // three, registered and not offline
	flushes []func() *flush // what was flushed, to be flushed again
	starts  []store.NewRun  // what was started, to be started again
	signals []store.Message // what was sent, to be sent again
	claims  []store.ClaimRequest
	counter int
}

// A held run is a run under the lease of a claim, which may be over.
type held struct {
	store.HeldRun
	parent  uuid.UUID
	wakeups int64 // at the claim
}

// A flush is one that the test sends, once or again.
type flush struct {
	*store.Flush
	what string
}

const emptyTables = `
	DELETE FROM kagzi.signals; DELETE FROM kagzi.run_events; DELETE FROM kagzi.step_runs; DELETE FROM kagzi.workflow_runs;
	DELETE FROM kagzi.worker_events; DELETE FROM kagzi.workers; DELETE FROM kagzi_audit.changes`

func newWorld(t *rapid.T, b *bench) *world {
	w := &world{bench: b, Model: New()}
	w.met["sequence"]++
	if _, err := b.pool.Exec(context.Background(), emptyTables); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.workers = append(w.workers, w.register(t))
	}
	return w
}

func (w *world) register(t *rapid.T) uuid.UUID {
	id := uuid.New()
	err := w.stores[0].RegisterWorker(context.Background(), w.pool, store.Worker{
		ID: id, Queues: []string{"queue"}, Types: []string{"a", "b"}, LeaseTimeout: leaseTimeout, StaleAfter: far,
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// store draws one of the three stores.
func (w *world) store(t *rapid.T) *store.Store {
	return pick(t, "store", w.stores[:])
}

// lossy draws whether the answer to the first commit of the call is lost. The store then finds out by itself what has become of it.
func (w *world) lossy(t *rapid.T, call func()) {
	if number(t, "lost", 10) == 0 {
		before := w.proxy.Dropped()
		w.proxy.DropAck(pgproxy.Contains("commit"))
		defer func() {
			w.proxy.Disarm()
			w.met["lost answers"] += w.proxy.Dropped() - before
		}()
	}
	call()
}

// run draws one of the runs, also of those that were deleted.
func (w *world) run(t *rapid.T) uuid.UUID {
	if len(w.Order) == 0 {
		panic(nothingToDo{})
	}
	return pick(t, "run", w.Order)
}

// runWhich draws one of the runs for which is holds.
func (w *world) runWhich(t *rapid.T, is func(*Run) bool) *Run {
	some := slices.DeleteFunc(w.all(), func(r *Run) bool { return !is(r) })
	if len(some) == 0 {
		panic(nothingToDo{})
	}
	return pick(t, "run", some)
}

// lease draws the lease of a claim.
func (w *world) lease(t *rapid.T) held {
	return w.leaseWhich(t, func(held) bool { return true })
}

// leaseWhich is lease, of the leases for which is holds. One in four is that of a worker whose run another one executes, and one in four is
// any.
func (w *world) leaseWhich(t *rapid.T, is func(held) bool) held {
	var all, current, superseded []held
	for _, h := range w.leases {
		r := w.Runs[h.RunID]
		if !is(h) {
			continue
		}
		if all = append(all, h); r.Holds(h.Lease) {
			current = append(current, h)
		} else if r != nil && r.Status == store.Running {
			superseded = append(superseded, h)
		}
	}
	if len(all) == 0 {
		panic(nothingToDo{})
	}
	switch n := number(t, "stale", 4); {
	case n == 0 && len(superseded) > 0:
		all = superseded
	case n > 1 && len(current) > 0:
		all = current
	}
	return pick(t, "lease", all)
}

// name returns a name that no other thing has.
func (w *world) name(prefix string) string {
	w.counter++
	return fmt.Sprint(prefix, w.counter)
}

// wantError fails the test unless err is want.
func (w *world) wantError(t *rapid.T, what string, err, want error) {
	t.Helper()
	if want != nil {
		what += ", " + want.Error()
	}
	w.met[what]++
	var below *store.ActiveBelow
	var needed *store.NeededRun
	switch {
	case want == ErrActiveBelow && errors.As(err, &below), want == ErrNeeded && errors.As(err, &needed):
	case want == store.ErrIDConflict && errors.Is(err, store.ErrIDTaken), !errors.Is(err, want):
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// A row is what the test compares of a run.
type row struct {
	ID         uuid.UUID
	Type       string
	External   string
	Status     string
	At         When
	Lease      uuid.UUID
	Worker     uuid.UUID
	Parent     uuid.UUID
	Priority   int
	Wakeups    int64
	Attempts   int
	Recoveries int
	Version    int
	Started    bool
	Cancelling bool
	Paused     bool
}

const (
	readRuns = `
		SELECT run_id, workflow_type, coalesce(external_id, ''), status,
			CASE WHEN available_at IS NULL THEN 'none' WHEN available_at = 'infinity' THEN 'never' WHEN available_at <= clock_timestamp() THEN 'due'
				WHEN available_at < clock_timestamp() + interval '30 minutes' THEN 'soon' ELSE 'later' END,
			coalesce(lease, '00000000-0000-0000-0000-000000000000'), coalesce(locked_by, '00000000-0000-0000-0000-000000000000'),
			coalesce(parent_run_id, '00000000-0000-0000-0000-000000000000'), priority, wakeups, attempts, recoveries, coalesce(version, 0),
			started_at IS NOT NULL, cancel_requested_at IS NOT NULL, paused_at IS NOT NULL
		FROM kagzi.workflow_runs`
	readSteps = `
		SELECT concat_ws(' ', run_id, step_id, attempt_number, step_kind, status, convert_from(output, 'UTF8'), child_run_id, 'message', coalesce(sequence, 0)) FROM kagzi.step_runs`
	readMessages = `SELECT concat_ws(' ', run_id, signal_id, sequence, 'read by', consumed_by) FROM kagzi.signals`
)

// compare fails the test unless the tables are as the model.
func (w *world) compare(t *rapid.T) {
	t.Helper()
	w.met["comparison"]++
	b := &pgx.Batch{}
	b.Queue(readRuns)
	b.Queue(readSteps)
	b.Queue(readMessages)
	results := w.pool.SendBatch(context.Background(), b)
	defer func() { _ = results.Close() }()
	rows, _ := results.Query()
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, fmt.Sprintf("run %+v", r))
	}
	for _, prefix := range []string{"step ", "message "} {
		rows, _ := results.Query()
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			got = append(got, prefix+l)
		}
	}
	want := w.lines()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("the tables differ from the model:\n%s", differences(got, want))
	}
}

// lines are the rows of the model's tables.
func (w *world) lines() (lines []string) {
	for _, r := range w.all() {
		lines = append(lines, fmt.Sprintf("run %+v", row{
			r.ID, r.Type, r.External, r.Status, r.At, r.Lease, r.Worker, r.Parent, r.Priority, r.Wakeups, r.Attempts, r.Recoveries, r.Version,
			r.Started, r.Cancelling, r.Paused,
		}))
		for step, attempts := range r.Steps {
			for i, a := range attempts {
				line := fmt.Sprintf("step %v %s %d %s %s", r.ID, step, i+1, a.Kind, a.Status)
				if a.Status == store.Completed {
					line += " " + a.Output
				}
				if a.Child != uuid.Nil {
					line += " " + a.Child.String()
				}
				lines = append(lines, fmt.Sprint(line, " message ", a.Sequence))
			}
		}
		for _, g := range r.Messages {
			line := fmt.Sprintf("message %v %s %d read by", r.ID, g.ID, g.Sequence)
			if g.ReadBy != "" {
				line += " " + g.ReadBy
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// differences returns the lines that only one of two sorted lists has.
func differences(got, want []string) (text string) {
	for _, l := range got {
		if _, both := slices.BinarySearch(want, l); !both {
			text += "  table: " + l + "\n"
		}
	}
	for _, l := range want {
		if _, both := slices.BinarySearch(got, l); !both {
			text += "  model: " + l + "\n"
		}
	}
	return text
}

// invariants fails the test if the tables, or the recorded changes, violate one.
func (w *world) invariants(t *rapid.T) {
	found, err := dbtest.Violations(context.Background(), w.pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Errorf("invariant broken: %s", v)
	}
}
