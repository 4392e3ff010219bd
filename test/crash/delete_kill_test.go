//go:build unix

package crash_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// longSteps is more than a Delete deletes in one transaction.
const longSteps = 2*5000 + 10

// failedFamily returns a run that has failed, with so many steps and its child.
func failedFamily(t *testing.T, db *dbtest.DB, steps int) (parent, child kagzi.RunID) {
	t.Helper()
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	order := kagzi.Define[int, int]("order", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true})
	kagzi.Handle(w, kit.Noop, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kagzi.Handle(w, order, func(ctx kagzi.Context, n int) (int, error) {
		_, err := kagzi.RunChild(ctx, "ship", kit.Noop, n)
		return 0, errors.Join(err, errors.New("it fails"))
	})
	stop := kit.StartLocal(t, w)
	run := kit.Begin(k, order, 1)
	k.WaitStatus(run, kagzi.StatusFailed)
	stop()
	parent, child = run.ID(), k.ChildOf(run.ID(), "ship").ID
	k.Exec(`
		INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
			first_attempt, output, position)
		SELECT $1, 'step-' || g, 1, 'default', 'COMPLETED', 'FUNCTION', 1, 1, '1', 1000 + g
		FROM generate_series(1, $2::int) AS g`, string(parent), steps-1)
	return parent, child
}

// TestKillDuringADelete kills the process that deletes a long run, at each of its transactions. Before the first commit
// nothing has happened. After it no client can use the run any more, and coordinators do the rest, even if one of them
// is killed at that, too.
func TestKillDuringADelete(t *testing.T) {
	t.Parallel()
	portion := pgproxy.Contains("DELETE FROM kagzi.step_runs t")
	for name, tc := range map[string]struct {
		at   pgproxy.Match
		left remnant // of the parent, when the process is dead
	}{
		"BeforeTheFirstCommit": {
			pgproxy.Contains(`SET waiting_on = '[{"kind": "deletion"}]'`), remnant{1, longSteps, 0},
		},
		"AfterTheFirstCommit": {pgproxy.Exactly("commit"), remnant{1, longSteps, 1}},
		"AfterAPortion":       {portion, remnant{1, longSteps - 5000, 1}},
		"AfterTheLastPortion": {pgproxy.Nth(3, portion), remnant{1, 0, 1}},
		"WhenAllIsGone": {pgproxy.After(pgproxy.Contains("DELETE FROM kagzi.workflow_runs r"),
			pgproxy.Exactly("commit")), remnant{0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit.WaitTurn(t)
			db := dbtest.Database(t)
			parent, child := failedFamily(t, db, longSteps)
			ledger := filepath.Join(t.TempDir(), "ledger")
			killDuring(t, db, tc.at, workerSpec{Ledger: ledger, Deletes: parent})
			if got := leftOf(t, db, parent); got != tc.left {
				t.Errorf("left %+v, want %+v", got, tc.left)
			}
			c := kit.NewClient(t, db.Pool)
			switch name {
			case "BeforeTheFirstCommit":
				await.True(t, "the server notices that the client has gone", func() bool {
					return admin.New(c).Runs.Resume(t.Context(), parent) == nil
				})
				return
			case "WhenAllIsGone":
			default:
				wantUnusable(t, c, parent)
				killDuring(t, db, pgproxy.Nth(2, portion), workerSpec{Ledger: ledger, Coordinate: true})
			}
			startProcess(t, workerSpec{DSN: db.DSN, Ledger: ledger, Coordinate: true})
			await.True(t, "the family is gone", func() bool {
				return leftOf(t, db, parent) == remnant{deletions: 1} && leftOf(t, db, child) == remnant{deletions: 1}
			})
			for _, ref := range []kagzi.Ref{parent, child} {
				log, err := admin.New(c).Runs.Log(t.Context(), ref)
				if err != nil || len(log) != 1 || log[0].Event != "DELETED" || log[0].Actor != "ada" {
					t.Errorf("%v: %+v, %v", ref, log, err)
				}
			}
		})
	}
}

// killDuring starts a process, and kills it while it waits for the answer to a statement that the server has executed.
func killDuring(t *testing.T, db *dbtest.DB, at pgproxy.Match, spec workerSpec) {
	t.Helper()
	proxy := pgproxy.Start(t, db.DSN)
	hold := proxy.HoldAck(at)
	spec.DSN = proxy.DSN()
	p := startProcess(t, spec)
	await.Receive(t, hold.Done())
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.killed(t)
	proxy.CutAll()
}

// wantUnusable checks that no client can use a run that is only marked as deleted, or find out more than that.
func wantUnusable(t *testing.T, c *kagzi.Client, id kagzi.RunID) {
	t.Helper()
	ctx := t.Context()
	info, err := c.Get(ctx, id)
	if err != nil || info.WaitingOn.String() != "deletion" {
		t.Errorf("waiting on %q, %v", info.WaitingOn, err)
	}
	_, restarted := admin.New(c).Runs.Restart(ctx, id)
	_, forked := admin.New(c).Runs.Fork(ctx, id, "ship")
	for verb, err := range map[string]error{
		"Resume": admin.New(c).Runs.Resume(ctx, id), "Restart": restarted,
		"Fork": forked,
	} {
		if !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", verb, err)
		}
	}
}

// A remnant has the counts of a run's rows.
type remnant struct{ runs, steps, deletions int }

func leftOf(t *testing.T, db *dbtest.DB, id kagzi.RunID) remnant {
	t.Helper()
	count := func(rows string) int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.`+rows, string(id))
	}
	return remnant{
		count(`workflow_runs WHERE run_id = $1`), count(`step_runs WHERE run_id = $1`),
		count(`run_events WHERE run_id = $1 AND event = 'DELETED'`),
	}
}
