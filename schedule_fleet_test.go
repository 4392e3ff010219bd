package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A coordinator that stops in the middle of its transaction, as a frozen process does, keeps the others from firing for
// seconds only.
func TestFrozenCoordinator(t *testing.T) {
	k := newKit(t)
	k.schedule(Schedule{Name: "s", Every: time.Hour})
	k.missed("s", time.Hour)
	frozen, err := pgx.ConnectConfig(k.ctx, k.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close(context.Background())
	var held bool
	if err := frozen.QueryRow(k.ctx, `BEGIN`).Scan(); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	if err := frozen.QueryRow(k.ctx, `SELECT set_config('idle_in_transaction_session_timeout', '700ms', true) = '700ms'
		AND pg_try_advisory_xact_lock(hashtextextended('kagzi schedules default', 0))`).Scan(&held); err != nil || !held {
		t.Fatalf("lock: %t, %v", held, err)
	}
	co := k.coordinator()
	if pause, err := k.fire(co); err != nil || pause > time.Second || len(k.fired("s")) != 0 {
		t.Errorf("beside the frozen one: pause %v, %d runs, %v", pause, len(k.fired("s")), err)
	}
	waitFor(t, "the server ends the frozen session", func() bool {
		k.pass(co)
		return len(k.fired("s")) == 1
	})
}

// Ten coordinators and many schedules: each tick once.
func TestManyCoordinators(t *testing.T) {
	k := newKit(t)
	ctx, stop := context.WithCancel(k.ctx)
	var all sync.WaitGroup
	for range 10 {
		c := newTestClient(t, k.pool)
		co := newTestCoordinator(t, c, CoordinatorConfig{Interval: 100 * time.Millisecond, Batch: 3})
		all.Go(func() {
			if err := co.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	const schedules, seconds = 20, 4
	for i := range schedules {
		k.schedule(Schedule{Name: fmt.Sprint("s", i), Every: time.Second})
	}
	begun := k.now()
	waitFor(t, "all fire", func() bool {
		return k.count(`SELECT count(*) FROM (SELECT FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL GROUP BY schedule_id HAVING count(*) >= $1) g`, seconds) == schedules
	})
	stop()
	all.Wait()
	for i := range schedules {
		runs := k.fired(fmt.Sprint("s", i))
		everySecond(t, runs, len(runs), begun, k.now())
		if info := k.info(fmt.Sprint("s", i)); !info.Last.Equal(runs[len(runs)-1].FireTime) {
			t.Errorf("cursor %v, newest run %v", info.Last, runs[len(runs)-1].FireTime)
		}
	}
}

// A thousand schedules due in the same second fire in it, each once.
func TestThousandSchedules(t *testing.T) {
	k := newKit(t)
	const n = 1000
	tx := k.callersTx()
	for i := range n {
		if err := k.c.Schedule(k.ctx, Schedule{Name: fmt.Sprint("s", i), Every: time.Hour, Run: report.With("")}, InTx(tx)); err != nil {
			t.Fatal(err)
		}
	}
	commitTx(t, tx)
	k.exec(`UPDATE kagzi.schedules SET cursor_at = now() - interval '1 hour', next_at = now() WHERE NOT paused`)
	k.pass(k.coordinator())
	if got := queryOne[string](t, k.pool, `SELECT count(*) || ' ' || count(DISTINCT schedule_id) || ' ' || count(DISTINCT fire_at) FROM kagzi.workflow_runs WHERE status = 'PENDING'`); got != "1000 1000 1" {
		t.Errorf("runs, schedules, ticks: %s", got)
	}
	t.Logf("from the first to the last: %s", queryOne[string](t, k.pool, `SELECT (max(created_at) - min(created_at))::text FROM kagzi.workflow_runs WHERE status = 'PENDING'`))
}

// The answer to a commit of a coordinator, or of a client, is lost, or the request.
func TestLostCommitOfSchedules(t *testing.T) {
	eachLoss(t, func(t *testing.T, l *lossy) {
		k := &kit{t: t, ctx: testContext(t), pool: l.db.Pool, c: l.client(t, 3)}
		commitOf := func(part string) *pgproxy.Drop {
			return l.lose(pgproxy.After(pgproxy.Contains(part), pgproxy.Exactly("commit")))
		}
		drop := commitOf("INSERT INTO kagzi.schedules")
		k.schedule(Schedule{Name: "s", Every: time.Hour})
		receive(t, drop.Done())
		k.missed("s", 3*time.Hour)

		drop = commitOf("WITH u AS MATERIALIZED")
		co := k.coordinator()
		waitFor(t, "it has met the outage, the server too, and has come again", func() bool {
			_, _ = k.fire(co)
			return len(k.fired("s")) > 0
		})
		receive(t, drop.Done())
		if runs := k.fired("s"); len(runs) != 3 {
			t.Errorf("%d runs, want 3", len(runs))
		}
		for _, verb := range []func() error{
			func() error { return second(k.c.TriggerSchedule(k.ctx, "s")) },
			func() error {
				n, err := k.c.BackfillSchedule(k.ctx, "s", k.now().Add(-10*time.Hour), k.now())
				if n != 7 {
					t.Errorf("backfilled %d, want 7", n)
				}
				return err
			},
			func() error { return k.c.PauseSchedule(k.ctx, "s") },
			func() error { return k.c.ResumeSchedule(k.ctx, "s") },
			func() error { return k.c.DeleteSchedule(k.ctx, "s") },
		} {
			drop = commitOf("FOR UPDATE")
			if err := verb(); err != nil {
				t.Error(err)
			}
			receive(t, drop.Done())
		}
		if got := queryOne[string](t, k.pool, `SELECT count(*) || ' ' || count(DISTINCT fire_at) FROM kagzi.workflow_runs`); got != "11 10" {
			t.Errorf("runs and ticks: %s, want 11 10", got)
		}
	})
}
