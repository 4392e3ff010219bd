package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A fullRace starts runs of keys with a limit of 2 from many goroutines, in transactions of their own, whose answers
// may be lost, and in transactions of callers, which are committed or rolled back. Every start has a policy, so at no
// time a key may have more than 2 active runs. Meanwhile others claim the runs, and one goroutine counts them, and ends
// one after each count: so a run too many is seen before another caller ends it.
type fullRace struct {
	t                  *testing.T
	direct             *Store
	lossy              []*Store
	proxy              *pgproxy.Proxy
	mu                 sync.Mutex
	stored             map[uuid.UUID]bool // by run, what its start was told; it has none if no caller knows
	over               atomic.Bool
	refused, cancelled atomic.Int64
	counts, full       int
}

// random returns some runs to start, with "reject", "cancel" and "both" as keys, which tell the policies.
func (f *fullRace) random() (runs []NewRun) {
	for range 1 + rand.N(3) {
		key := []string{"reject", "cancel", "both"}[rand.N(3)]
		policy := map[string]string{
			"reject": RejectNew, "cancel": CancelOldest,
			"both": []string{RejectNew, CancelOldest}[rand.N(2)],
		}[key]
		runs = append(runs, newRun(ofKey(key), func(r *NewRun) { r.WhenFull = policy }))
	}
	return runs
}

func (f *fullRace) start(ctx context.Context) error {
	runs := f.random()
	if rand.N(3) > 0 {
		if rand.N(8) == 0 {
			f.proxy.DropAck(pgproxy.Exactly("commit"))
		}
		out, err := f.lossy[rand.N(len(f.lossy))].Starts.Start(ctx, nil, runs)
		return f.note(runs, out, err, false)
	}
	tx, err := f.direct.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it may be committed
	out, err := f.direct.Starts.Start(ctx, tx, runs)
	if err != nil || rand.N(3) == 0 {
		return f.note(runs, out, err, true)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return f.note(runs, out, nil, false)
}

func (f *fullRace) note(runs []NewRun, out []StartedRun, err error, rolledBack bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if pg.Unavailable(err) { // no caller knows: it may have been lost too often
		return nil
	}
	for i := range runs {
		f.stored[runs[i].RunID] = err == nil && !rolledBack
		if err == nil && out[i].Ended != nil {
			f.cancelled.Add(int64(len(out[i].Ended.Ended) + len(out[i].Ended.Marked)))
		}
	}
	if errors.Is(err, ErrKeyFull) {
		f.refused.Add(1)
		err = nil
	}
	return err
}

func (f *fullRace) claim(ctx context.Context) error {
	_, err := f.direct.Claims.Claim(ctx, keyedRequest(3))
	return err
}

// count counts the active runs of each key in one snapshot, but for those that are about to end as cancelled. It ends
// one.
func (f *fullRace) count(ctx context.Context) error {
	var id uuid.UUID
	var most int
	err := f.direct.pool.QueryRow(ctx, `
		SELECT r.run_id, max(r.n) OVER () FROM (
			SELECT run_id, count(*) FILTER (WHERE cancel_requested_at IS NULL) OVER (PARTITION BY run_key) AS n
				FROM kagzi.workflow_runs WHERE status IN ('PENDING', 'RUNNING')
		) r ORDER BY random() LIMIT 1`).Scan(&id, &most)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	f.counts++
	if most > 2 {
		f.t.Errorf("a key with a limit of 2 has %d active runs", most)
	}
	if most == 2 {
		f.full++
	}
	if _, err = f.direct.Runs.Terminate(ctx, nil, id, Why{}); errors.Is(err, ErrRunFinished) {
		err = nil
	}
	return err
}

func TestWhenFullRaces(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	f := &fullRace{t: t, proxy: pgproxy.Start(t, db.DSN), stored: map[uuid.UUID]bool{}}
	many := func(c *pgxpool.Config) { c.MaxConns = 6 }
	f.direct = New(poolWith(t, db.DSN, many), "test")
	for range 2 { // as two processes
		f.lossy = append(f.lossy, New(poolWith(t, f.proxy.DSN(), many), "test"))
	}
	limitKeys(t, f.direct, 2, false)
	ctx := context.WithoutCancel(t.Context())
	var starting, working sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			for range 40 {
				if err := f.start(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, act := range []func(context.Context) error{f.claim, f.count} {
		working.Go(func() {
			for !f.over.Load() {
				if err := act(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	starting.Wait()
	f.proxy.Disarm()
	f.over.Store(true)
	working.Wait()

	exists := map[uuid.UUID]bool{}
	for _, id := range column[uuid.UUID](t, db.Pool, `SELECT run_id FROM kagzi.workflow_runs`) {
		exists[id] = true
	}
	for id, stored := range f.stored {
		if exists[id] != stored {
			t.Errorf("run %v: stored %v, and its start said %v", id, exists[id], stored)
		}
	}
	if n := one[int](t, db.Pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d runs, %d starts refused, %d runs cancelled, %d counts, %d of them full, %d answers lost", len(exists),
		f.refused.Load(), f.cancelled.Load(), f.counts, f.full, f.proxy.Dropped())
	if f.refused.Load() == 0 || f.cancelled.Load() == 0 || f.full == 0 {
		t.Error("the test shows nothing")
	}
}

// Calls that name the same keys and windows in different orders do not deadlock.
func TestWhenFullCrosswise(t *testing.T) {
	t.Parallel()
	s := open(t)
	limitKeys(t, s, 3, false)
	errs := make(chan error)
	for g := range 4 {
		go func() {
			var err error
			for i := range 20 {
				runs := []NewRun{
					newRun(ofKey("a"), cancelling), newRun(inGroup("b"), cancelling),
					newRun(batched("c", 7), ofKey("a")), newRun(ofKey("d"), rejecting, withID("d")),
				}
				for k := range runs {
					j := (k*(g+1) + i) % len(runs)
					runs[k], runs[j] = runs[j], runs[k]
				}
				_, e := s.Starts.Start(context.Background(), nil, runs)
				err = errors.Join(err, e)
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := one[int](t, s.pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}
