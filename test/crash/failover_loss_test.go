//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestFailoverThatLosesCommits promotes a standby that lacks the last commits, a step and a transactional step among
// them, while the worker that has recorded them executes the next step. The worker completes no run over the hole: what
// is lost is executed again, and the result of each run is what its records say.
func TestFailoverThatLosesCommits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*await.Patience)
	defer cancel()
	primary, admin := kit.OwnServer(ctx, t, 3)
	dbtest.Exec(t, admin, `CREATE TABLE public.books (run_id uuid, entry text)`)
	standby, err := primary.Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := kit.NewClient(t, dbtest.OpenPool(t, bothHosts(t, primary, standby), dbtest.Conns(10)))
	const n = 4
	wf := kagzi.Define[int, string]("loses records")
	var mu sync.Mutex
	calls := map[string]int{}
	cut, promoted, last := make(chan struct{}), make(chan struct{}), make(chan bool, 10*n)
	count := func(i int, name string) string {
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprint(i, name)
		calls[key]++
		return fmt.Sprint(name, calls[key], " ")
	}
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{
		MaxConcurrent: n, LeaseTimeout: 10 * time.Minute,
		StaleAfter: 10 * time.Minute,
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, i int) (all string, err error) {
		step := func(name string, also func()) {
			v, failed := kagzi.Step(ctx, name, func(context.Context) (string, error) {
				v := count(i, name)
				also()
				return v, nil
			})
			if all += v; failed != nil {
				err = failed
			}
		}
		step("first", func() {})
		step("cut", func() { <-cut })
		v, failed := kagzi.StepTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) (string, error) {
			v := count(i, "books")
			_, err := tx.Exec(ctx, `INSERT INTO public.books VALUES ($1, $2)`, kagzi.CurrentStep(ctx).Run, v)
			return v, err
		})
		if all += v; failed != nil {
			err = failed
		}
		step("last", func() { last <- true; <-promoted })
		return all, err
	})
	kit.StartLocal(t, w)
	runs := kit.StartRuns(t, c, wf, n)
	other := dbtest.OpenPool(t, standby.DSN(), dbtest.Conns(2))
	await.True(t, "the standby has the first records", func() bool {
		return dbtest.QueryOne[int](t, other, `SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'first'
			AND status = 'COMPLETED'`) == n
	})
	dbtest.Exec(t, other, `ALTER SYSTEM SET primary_conninfo = ''`)
	dbtest.Exec(t, other, `SELECT pg_reload_conf()`)
	await.True(t, "the standby receives nothing", func() bool {
		return dbtest.QueryOne[int](t, other, `SELECT count(*) FROM pg_stat_wal_receiver`) == 0
	})
	close(cut)
	for range n {
		await.Receive(t, last)
	}
	if got := dbtest.QueryOne[int](t, admin, `SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'books'
		AND status = 'COMPLETED'`); got != n {
		t.Fatalf("INVALID: the primary has %d records of the transactional step, want %d", got, n)
	}
	if err := primary.Stop(); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, other, `SELECT pg_promote()`)
	if got := dbtest.QueryOne[int](t, other, `SELECT count(*) FROM kagzi.step_runs WHERE step_id IN ('cut', 'books')
		AND status = 'COMPLETED'`); got != 0 {
		t.Fatalf("INVALID: the standby has %d of the records that it should lack", got)
	}
	close(promoted)
	kit.CheckResults(t, runs, func(int) string { return "first1 cut2 books2 last2 " })
	if got := dbtest.QueryOne[int](t, other, `SELECT count(*) FROM public.books WHERE entry = 'books2 '`); got != n {
		t.Errorf("%d of %d transactional steps had their effect", got, n)
	}
	dbtest.CheckInvariants(t, other)
}
