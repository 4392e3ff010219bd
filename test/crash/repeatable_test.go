//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// The commit of three repeatable steps is lost, or the answer to it. They are not executed again, and the step that
// waits for them finds them in the table.
func TestLostCommitOfRepeatableSteps(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		wf := kagzi.Define[int, string]("repeatable")
		w := kit.NewWorker(t, l.Client(t, 5), kagzi.WorkerConfig{})
		var executed atomic.Int32
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (string, error) {
			for i := range 3 {
				if err := kagzi.Do(ctx, fmt.Sprint("r", i), func(context.Context) error { executed.Add(1); return nil },
					kagzi.Repeatable()); err != nil {
					return "", err
				}
			}
			return kagzi.Step(ctx, "pay", func(context.Context) (string, error) {
				return fmt.Sprint(dbtest.QueryOne[int](t, l.Db.Pool, `SELECT count(*) FROM kagzi.step_runs
					WHERE step_id LIKE 'r_' AND status = 'COMPLETED'`)), nil
			})
		})
		drop := l.Lose(pgproxy.Nth(1, pgproxy.Contains("INSERT INTO kagzi.step_runs AS s")))
		runs := kit.StartRuns(t, kit.NewClient(t, l.Db.Pool), wf, 1)
		kit.StartLocal(t, w)
		kit.CheckResults(t, runs, func(int) string { return "3" })
		await.Receive(t, drop.Done())
		if n := executed.Load(); n != 3 {
			t.Errorf("the steps were executed %d times, want 3", n)
		}
	})
}
