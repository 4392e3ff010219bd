package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// TestResultAfterResume has the end that a run came to before it was resumed found out late, when somebody waits for
// its next end already.
func TestResultAfterResume(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := newTestClient(t, dbtest.Pool(t))
	run, err := Start(ctx, c, Define[int, int]("nobody's"), 1)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.MustParse(string(run.ID()))
	last := c.hints.LastWaiter()
	got := make(chan error, 1)
	go func() {
		_, err := run.Result(ctx)
		got <- err
	}()
	await.True(t, "somebody waits", func() bool { return c.hints.LastWaiter() > last })
	c.hints.Deliver(store.Ended{RunID: id, Status: store.Failed, ErrorKind: "old"}, last)
	if err := run.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, kind.Cancelled) {
		t.Errorf("Result returned %v, want the run's end after it was asked", err)
	}
}

// TestResultThatCannotBeRead has one run whose result cannot be read, or takes for ever: those who wait for others get theirs,
// and are told no error.
func TestResultThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ does, told string }{
		"Damaged":   {`RAISE 'missing chunk number 0 for toast value' USING ERRCODE = 'XX001'`, "missing chunk"},
		"DiskFails": {`RAISE 'could not read block 0' USING ERRCODE = '58030'`, "could not read block"},
		"TooSlow":   {`WHILE EXISTS (SELECT FROM public.slow) LOOP PERFORM pg_sleep(0.01); END LOOP`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			ctx, stop := context.WithTimeout(testContext(t), await.Patience)
			defer stop()
			runs := startRuns(t, newTestClient(t, db.Pool), nothing, 20)
			role, _, _ := poorClient(t, db, "")
			dbtest.Exec(t, db.Pool, `CREATE TABLE public.slow AS SELECT 1`)
			dbtest.Exec(t, db.Pool, `GRANT SELECT ON public.slow TO `+role)
			dbtest.Exec(t, db.Pool, fmt.Sprintf(`CREATE FUNCTION public.readable(run uuid) RETURNS bool LANGUAGE plpgsql AS $$
				BEGIN
					IF run = '%s' THEN %s; END IF;
					RETURN true;
				END $$`, runs[0].ID(), tt.does))
			dbtest.Exec(t, db.Pool, `CREATE POLICY bad ON kagzi.workflow_payloads USING (public.readable(run_id))`)
			dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.workflow_payloads ENABLE ROW LEVEL SECURITY`)
			end := func(runs ...*Run[string]) {
				for _, r := range runs {
					dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_payloads SET output = '"done"' WHERE run_id = $1`, string(r.ID()))
					dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', finished_at = now(), available_at = NULL WHERE run_id = $1`, string(r.ID()))
				}
			}
			c := newTestClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)))
			c.hints.QueryTimeout = 200 * time.Millisecond
			result := func(r *Run[string]) (string, error) {
				return (&Run[string]{client: c, workflow: "nothing", id: r.ID()}).Result(ctx)
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
					if got, err := result(r); got != "done" || err != nil {
						t.Errorf("run %d returned %q, %v", i+1, got, err)
					}
				})
			}
			await.True(t, "all are waited for", func() bool { return c.hints.LastWaiter() == uint64(len(runs)) })
			end(runs[:11]...)
			early.Wait()
			if tt.told != "" {
				mustContain(t, await.Receive(t, bad), tt.told)
			}
			end(runs[11:]...)
			late.Wait()
			dbtest.Exec(t, db.Pool, `DELETE FROM public.slow`)
			if tt.told == "" {
				if err := await.Receive(t, bad); err != nil {
					t.Errorf("the slow result: %v", err)
				}
			}
		})
	}
}
