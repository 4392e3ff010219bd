package hints_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testlog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/kit"

	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// newHints returns the hints of a process that works with the pool's database.
func newHints(t *testing.T, pool *pgxpool.Pool) *hints.Hints {
	return hints.New(store.New(pool, "default"), testlog.New(t), func(context.Context) error { return nil })
}

// TestResultAfterResume has the end that a run came to before it was resumed found out late, when a caller waits for
// its next end already.
func TestResultAfterResume(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	pool := dbtest.Pool(t)
	h := newHints(t, pool)
	run, err := kagzi.Start(ctx, kit.NewClient(t, pool), kagzi.Define[int, int]("nobody's"), 1)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.MustParse(string(run.ID()))
	last := h.LastWaiter()
	got := make(chan string, 1)
	go func() {
		end, err := h.Result(ctx, id)
		if err != nil {
			t.Error(err)
		}
		got <- end.ErrorKind
	}()
	await.True(t, "somebody waits", func() bool { return h.LastWaiter() > last })
	h.Deliver(store.Ended{RunID: id, Status: store.Failed, ErrorKind: "old"}, last)
	if err := run.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if k := <-got; k != string(kind.Cancelled) {
		t.Errorf("Result returned kind %q, want that of the end after it was asked", k)
	}
}

// TestResultThatCannotBeRead has one run whose result cannot be read, or takes for ever: callers that wait for other
// runs get their results without an error.
func TestResultThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ does, want string }{
		"Damaged":   {`RAISE 'missing chunk number 0 for toast value' USING ERRCODE = 'XX001'`, "missing chunk"},
		"DiskFails": {`RAISE 'could not read block 0' USING ERRCODE = '58030'`, "could not read block"},
		"TooSlow":   {`WHILE EXISTS (SELECT FROM public.slow) LOOP PERFORM pg_sleep(0.01); END LOOP`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			ctx, stop := context.WithTimeout(kit.Context(t), await.Patience)
			defer stop()
			runs := kit.StartRuns(t, kit.NewClient(t, db.Pool), kit.Nothing, 20)
			role, _, _ := kit.PoorClient(t, db, "")
			dbtest.Exec(t, db.Pool, `CREATE TABLE public.slow AS SELECT 1`)
			dbtest.Exec(t, db.Pool, `GRANT SELECT ON public.slow TO `+role)
			dbtest.Exec(t, db.Pool, fmt.Sprintf(`CREATE FUNCTION public.readable(run uuid) RETURNS bool LANGUAGE plpgsql
				AS $$
				BEGIN
					IF run = '%s' THEN %s; END IF;
					RETURN true;
				END $$`, runs[0].ID(), tt.does))
			dbtest.Exec(t, db.Pool, `CREATE POLICY bad ON kagzi.workflow_runs
				USING (output IS NULL OR public.readable(run_id))`)
			dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.workflow_runs ENABLE ROW LEVEL SECURITY`)
			end := func(runs ...*kagzi.Run[string]) {
				for _, r := range runs {
					dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET output = '"done"', status = 'COMPLETED',
						finished_at = now(), available_at = NULL WHERE run_id = $1`, string(r.ID()))
				}
			}
			h := newHints(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)))
			h.QueryTimeout = 200 * time.Millisecond
			result := func(r *kagzi.Run[string]) (string, error) {
				end, err := h.Result(ctx, uuid.MustParse(string(r.ID())))
				return string(end.Output), err
			}
			var early, late sync.WaitGroup
			bad := make(chan error, 1)
			go func() {
				_, err := result(runs[0])
				bad <- err
			}()
			for i, r := range runs[1:] {
				waits := &late
				if i < 10 {
					waits = &early
				}
				waits.Go(func() {
					if got, err := result(r); got != `"done"` || err != nil {
						t.Errorf("run %d returned %q, %v", i+1, got, err)
					}
				})
			}
			await.True(t, "all are waited for", func() bool { return h.LastWaiter() == uint64(len(runs)) })
			end(runs[:11]...)
			early.Wait()
			if tt.want != "" {
				kit.MustContain(t, await.Receive(t, bad), tt.want)
			}
			end(runs[11:]...)
			late.Wait()
			dbtest.Exec(t, db.Pool, `DELETE FROM public.slow`)
			if tt.want == "" {
				if err := await.Receive(t, bad); err != nil {
					t.Errorf("the slow result: %v", err)
				}
			}
		})
	}
}
