//go:build unix

package crash_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A worker process is killed in a step, after its run was paused and before it has parked it. The coordinator is
// elsewhere. While the pause lasts, no worker takes the run over; when it ends, another worker does.
func TestKilledBetweenPauseAndParking(t *testing.T) {
	t.Parallel()
	all := admin.Target{All: true}
	for name, c := range map[string]struct {
		option         kagzi.StartOption
		pause, unpause func(context.Context, *kagzi.Client, kagzi.RunID) error
	}{
		"Run": {
			kagzi.Priority(3),
			func(ctx context.Context, c *kagzi.Client, id kagzi.RunID) error {
				return admin.New(c).Runs.Pause(ctx, id)
			},
			func(ctx context.Context, c *kagzi.Client, id kagzi.RunID) error {
				return admin.New(c).Runs.Unpause(ctx, id)
			},
		},
		"All": {
			kagzi.Priority(3),
			func(ctx context.Context, c *kagzi.Client, _ kagzi.RunID) error {
				return admin.New(c).Pauses.Set(ctx, all, admin.Park())
			},
			func(ctx context.Context, c *kagzi.Client, _ kagzi.RunID) error {
				return admin.New(c).Pauses.End(ctx, all)
			},
		},
		"RunOfAKey": {
			kagzi.Key("a"),
			func(ctx context.Context, c *kagzi.Client, id kagzi.RunID) error {
				return admin.New(c).Runs.Pause(ctx, id)
			},
			func(ctx context.Context, c *kagzi.Client, id kagzi.RunID) error {
				return admin.New(c).Runs.Unpause(ctx, id)
			},
		},
		"Group": {
			kagzi.Group("a"),
			func(ctx context.Context, c *kagzi.Client, _ kagzi.RunID) error {
				return admin.New(c).Pauses.Set(ctx, admin.Target{Group: "a"}, admin.Park())
			},
			func(ctx context.Context, c *kagzi.Client, _ kagzi.RunID) error {
				return admin.New(c).Pauses.End(ctx, admin.Target{Group: "a"})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			dbtest.Audit(t, db.Pool)
			client := kit.NewClient(t, db.Pool)
			if err := admin.New(client).Queues.Set(t.Context(),
				admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "victim")
			cfg := kit.Quick
			cfg.NoCoordinator = true
			victim := startProcess(t, workerSpec{
				DSN: db.DSN, Ledger: file, Config: cfg, Point: "during step", Nth: 1,
				Signal: syscall.SIGSTOP,
			})
			run, err := kagzi.Start(t.Context(), client, oneStep, 7, c.option)
			if err != nil {
				t.Fatal(err)
			}
			await.True(t, "the process stops", func() bool { return countIn(t, file, "REACHED") == 1 })
			if err := c.pause(t.Context(), client, run.ID()); err != nil {
				t.Fatal(err)
			}
			_ = victim.cmd.Process.Kill()
			victim.killed(t)

			kit.StartLocal(t, localWorker(t, client, filepath.Join(t.TempDir(), "other"), kit.Quick))
			await.True(t, "the worker is declared dead", func() bool {
				return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers
					WHERE status = 'OFFLINE'`) == 1
			})
			if info, err := client.Get(t.Context(), run.ID()); err != nil || info.Status != kagzi.StatusRunning ||
				info.Recoveries != 0 {
				t.Errorf("while it is paused: %+v, %v", info, err)
			}
			if err := c.unpause(t.Context(), client, run.ID()); err != nil {
				t.Fatal(err)
			}
			if got, err := run.Result(kit.Context(t)); err != nil || got != kit.Link("7", "one") {
				t.Errorf("result %q, %v", got, err)
			}
		})
	}
}
