package schedules_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A coordinator that stops in the middle of its transaction, as a frozen process does, keeps the others from firing for
// seconds only.
func TestFrozenCoordinator(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour})
	k.Missed("s", time.Hour)
	frozen, err := pgx.ConnectConfig(k.Ctx, k.Pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close(context.Background())
	var held bool
	if err := frozen.QueryRow(k.Ctx, `BEGIN`).Scan(); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	if err := frozen.QueryRow(k.Ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended('kagzi schedules default',
			0))`).Scan(&held); err != nil || !held {
		t.Fatalf("lock: %t, %v", held, err)
	}
	co := k.Coordinator()
	if pause, err := k.Fire(co); err != nil || pause > time.Second || len(k.Fired("s")) != 0 {
		t.Errorf("beside the frozen one: pause %v, %d runs, %v", pause, len(k.Fired("s")), err)
	}
	// A coordinator begins with this setting. Here it comes late: the pass above must meet the lock on any machine.
	if _, err := frozen.Exec(k.Ctx, `SET LOCAL idle_in_transaction_session_timeout = '700ms'`); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the server ends the frozen session", func() bool {
		k.Pass(co)
		return len(k.Fired("s")) == 1
	})
}

// Ten coordinators and many schedules: each tick once.
func TestManyCoordinators(t *testing.T) {
	k := kit.New(t)
	ctx, stop := context.WithCancel(k.Ctx)
	var all sync.WaitGroup
	for range 10 {
		c := kit.NewClient(t, k.Pool)
		co := kit.NewCoordinator(t, c, kagzi.CoordinatorConfig{Interval: 100 * time.Millisecond, Batch: 3})
		all.Go(func() {
			if err := co.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	const schedules, seconds = 20, 4
	for i := range schedules {
		k.Schedule(kagzi.Schedule{Name: fmt.Sprint("s", i), Every: time.Second})
	}
	begun := k.Now()
	await.True(t, "all fire", func() bool {
		return k.Count(`SELECT count(*) FROM (SELECT 1 FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL
			GROUP BY schedule_id HAVING count(*) >= $1) g`, seconds) == schedules
	})
	stop()
	all.Wait()
	for i := range schedules {
		runs := k.Fired(fmt.Sprint("s", i))
		everySecond(t, runs, len(runs), begun, k.Now())
		if info := k.Info(fmt.Sprint("s", i)); !info.Last.Equal(runs[len(runs)-1].FireTime) {
			t.Errorf("cursor %v, newest run %v", info.Last, runs[len(runs)-1].FireTime)
		}
	}
}

// A thousand schedules due in the same second fire in it, each once.
func TestThousandSchedules(t *testing.T) {
	k := kit.New(t)
	const n = 1000
	tx := k.CallersTx()
	for i := range n {
		if err := k.Client.Schedule(k.Ctx, kagzi.Schedule{
			Name: fmt.Sprint("s", i), Every: time.Hour,
			Run: kit.Report.With(""),
		}, kagzi.InTx(tx)); err != nil {
			t.Fatal(err)
		}
	}
	kit.CommitTx(t, tx)
	k.Exec(`UPDATE kagzi.schedules SET cursor_at = now() - interval '1 hour', next_at = now() WHERE NOT paused`)
	k.Pass(k.Coordinator())
	if got := dbtest.QueryOne[string](t, k.Pool,
		`SELECT count(*) || ' ' || count(DISTINCT schedule_id) || ' ' || count(DISTINCT fire_at)
			FROM kagzi.workflow_runs WHERE status = 'PENDING'`); got != "1000 1000 1" {
		t.Errorf("runs, schedules, ticks: %s", got)
	}
	t.Logf("from the first to the last: %s", dbtest.QueryOne[string](t, k.Pool,
		`SELECT (max(created_at) - min(created_at))::text FROM kagzi.workflow_runs WHERE status = 'PENDING'`))
}

// The answer to a commit of a coordinator, or of a client, is lost, or the request.
func TestLostCommitOfSchedules(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: l.Client(t, 3)}
		commitOf := func(part string) *pgproxy.Drop {
			return l.Lose(pgproxy.After(pgproxy.Contains(part), pgproxy.Exactly("commit")))
		}
		drop := commitOf("INSERT INTO kagzi.schedules")
		k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour})
		await.Receive(t, drop.Done())
		k.Missed("s", 3*time.Hour)

		drop = commitOf("WITH given AS MATERIALIZED")
		co := k.Coordinator()
		await.True(t, "it has met the outage, the server too, and has come again", func() bool {
			_, _ = k.Fire(co)
			return len(k.Fired("s")) > 0
		})
		await.Receive(t, drop.Done())
		if runs := k.Fired("s"); len(runs) != 3 {
			t.Errorf("%d runs, want 3", len(runs))
		}
		for _, verb := range []func() error{
			func() error { return kit.Second(admin.New(k.Client).Schedules.Trigger(k.Ctx, "s")) },
			func() error {
				n, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", k.Now().Add(-10*time.Hour), k.Now())
				if n != 7 {
					t.Errorf("backfilled %d, want 7", n)
				}
				return err
			},
			func() error { return admin.New(k.Client).Schedules.Pause(k.Ctx, "s") },
			func() error { return admin.New(k.Client).Schedules.Resume(k.Ctx, "s") },
			func() error { return k.Client.DeleteSchedule(k.Ctx, "s") },
		} {
			drop = commitOf("FOR UPDATE")
			if err := verb(); err != nil {
				t.Error(err)
			}
			await.Receive(t, drop.Done())
		}
		if got := dbtest.QueryOne[string](t, k.Pool, `SELECT count(*) || ' ' || count(DISTINCT fire_at)
			FROM kagzi.workflow_runs`); got != "11 10" {
			t.Errorf("runs and ticks: %s, want 11 10", got)
		}
	})
}
