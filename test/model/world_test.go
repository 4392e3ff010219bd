package model

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
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

// A bench is what all sequences of a test share: the database, and three stores with connections of their own through a
// proxy that can lose the answer to a commit.
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
		b.stores[i] = store.New(dbtest.OpenPool(t, b.proxy.DSN(), dbtest.Conns(2),
			dbtest.Setting("application_name", appName(i))), "test")
	}
	return b
}

// appName is how the server names the connections of a store.
func appName(store int) string { return fmt.Sprint("store ", store) }

// A world is one sequence: the tables, and the model beside them.
type world struct {
	*bench
	*Model
	leases    []held          // of all claims
	workers   []uuid.UUID     // three, registered and not offline
	flushes   []act           // to be flushed again
	starts    []store.NewRun  // to be started again
	signals   []store.Message // to be sent again
	claims    []store.ClaimRequest
	focus     []uuid.UUID      // the only runs that are drawn; nil: all are
	freed     []store.FreedKey // keys of which runs may have given up slots since the last claim
	sights    []sight
	schedules bool
	pauses    bool     // work is paused
	keys      bool     // there are runs with keys, and limits
	prefer    []string // half of all verbs are of these; nil: all are drawn by their weights
	counter   int
}

// A held run is a run under the lease of a claim, which may be over.
type held struct {
	store.HeldRun
	parent  uuid.UUID
	wakeups int64 // at the claim
}

const emptyTables = `
	DELETE FROM kagzi.signals; DELETE FROM kagzi.run_events; DELETE FROM kagzi.step_runs; DELETE
		FROM kagzi.workflow_runs;
	DELETE FROM kagzi.schedules; DELETE FROM kagzi.pauses; DELETE FROM kagzi.queues; DELETE FROM kagzi.run_keys; DELETE
		FROM kagzi.key_changes; DELETE FROM kagzi.worker_events; DELETE FROM kagzi.workers; DELETE
		FROM kagzi_audit.changes`

func newWorld(t *rapid.T, b *bench) *world {
	w := &world{bench: b, Model: New()}
	w.met["sequence"]++
	w.StartedFor = w.startedFor
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
	err := w.stores[0].Workers.Register(context.Background(), w.pool, store.Worker{
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

// lossy draws whether the answer to the first commit of the call is lost. The store then finds out by itself what has
// become of it.
func (w *world) lossy(t *rapid.T, call func()) {
	if number(t, "lost", 10) == 0 {
		before := w.proxy.Dropped()
		w.proxy.DropAck(pgproxy.Contains("commit"))
		defer func() {
			w.proxy.Disarm()
			if lost := w.proxy.Dropped() - before; lost > 0 {
				w.met["lost answers"] += lost
				w.settle(t)
			}
		}()
	}
	call()
}

// settle waits until the server has ended the transactions of lost connections: they may hold locks, and acts pass over
// what is locked.
func (w *world) settle(t *rapid.T) {
	for open := true; open; {
		err := w.pool.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'store %' AND state <> 'idle'`).Scan(&open)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// run draws one of the runs, also of those that were deleted.
func (w *world) run(t *rapid.T) uuid.UUID {
	all := w.Order
	if w.focus != nil {
		all = w.focus
	}
	if len(all) == 0 {
		panic(nothingToDo{})
	}
	return pick(t, "run", all)
}

// runWhich draws one of the runs for which is holds.
func (w *world) runWhich(t *rapid.T, is func(*Run) bool) *Run {
	some := slices.DeleteFunc(w.all(), func(r *Run) bool { return !is(r) || !w.focused(r.ID) })
	if len(some) == 0 {
		panic(nothingToDo{})
	}
	return pick(t, "run", some)
}

func (w *world) focused(run uuid.UUID) bool { return w.focus == nil || slices.Contains(w.focus, run) }

// lease draws the lease of a claim.
func (w *world) lease(t *rapid.T) held {
	return w.leaseWhich(t, func(held) bool { return true })
}

// leaseWhich is lease, of the leases for which is holds. One in four is that of a worker whose run another one
// executes, and one in four is any.
func (w *world) leaseWhich(t *rapid.T, is func(held) bool) held {
	var all, current, superseded []held
	for _, h := range w.leases {
		r := w.Runs[h.RunID]
		if !is(h) || !w.focused(h.RunID) {
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
