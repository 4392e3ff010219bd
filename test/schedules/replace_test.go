package schedules_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/store"
)

// states are the statuses of a schedule's runs, oldest first.
func states(k *kit.Kit, name string) string {
	k.T.Helper()
	var all []string
	for _, r := range k.Fired(name) {
		all = append(all, string(r.Status))
	}
	return strings.Join(all, " ")
}

// replacing makes a schedule of every hour whose ticks cancel the run before: one is active, and a tick is due.
func replacing(k *kit.Kit, s kagzi.Schedule) {
	k.T.Helper()
	s.Overlap = kagzi.OverlapCancelPrevious
	if s.Cron == "" {
		s.Every = time.Hour
	}
	k.Schedule(s)
	trigger(k, s.Name)
	k.Missed(s.Name, 3*time.Hour)
}

// trigger starts a run of a schedule beside its ticks.
func trigger(k *kit.Kit, name string) {
	k.T.Helper()
	if _, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, name); err != nil {
		k.T.Fatal(err)
	}
}

// template returns the row of a schedule.
func template(k *kit.Kit, name string) *store.Template {
	k.T.Helper()
	id := dbtest.QueryOne[uuid.UUID](k.T, k.Pool, `SELECT schedule_id FROM kagzi.schedules WHERE name = $1`, name)
	t, err := store.New(k.Pool, "default").Schedules.Get(k.Ctx, id)
	if err != nil {
		k.T.Fatal(err)
	}
	return t
}

// replace fires a schedule as it was seen: its active run is cancelled for the tick that was due then.
func replace(k *kit.Kit, seen *store.Template, wait time.Duration) (err error) {
	k.T.Helper()
	k.Passes(func(p testhook.Passes) {
		err = p.(interface {
			FireAlone(context.Context, *store.Template, time.Duration) error
		}).FireAlone(k.Ctx, seen, wait)
	})
	return err
}

// A tick that is dropped, because it is too old, starts no run, and so cancels none.
func TestDroppedTickCancelsNothing(t *testing.T) {
	k := kit.New(t)
	// Ticks were 30, 90 and 150 minutes ago.
	replacing(k, kagzi.Schedule{
		Name: "s", Start: k.Now().Add(-1000*time.Hour - 30*time.Minute),
		CatchUpAge: time.Minute,
	})
	k.Pass(k.Coordinator())
	if got := states(k, "s"); got != "PENDING" {
		t.Errorf("runs: %s, want the active one alone", got)
	}
	if info := k.Info("s"); info.Paused || !info.Next.After(k.Now()) {
		t.Errorf("the tick is not decided: %+v", info)
	}
}

// A schedule that cannot be read is paused; nothing replaces its active run, which continues.
func TestBrokenScheduleCancelsNothing(t *testing.T) {
	k := kit.New(t)
	replacing(k, kagzi.Schedule{Name: "s", Cron: "0 * * * *"})
	k.Exec(`UPDATE kagzi.schedules SET time_zone = 'Mars/Olympus' WHERE name = 's'`)
	k.Pass(k.Coordinator())
	if got := states(k, "s"); got != "PENDING" {
		t.Errorf("runs: %s, want the active one alone", got)
	}
	if info := k.Info("s"); !info.Paused || !strings.Contains(info.Error, "Mars") {
		t.Errorf("not paused with its error: %+v", info)
	}
}

// Runs are cancelled only for a tick that is still undecided: since the coordinator read it, another coordinator may
// have fired it, whose run must not be cancelled, or a client may have changed, paused or deleted the schedule.
func TestStaleReplaceCancelsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(*kit.Kit) error
		want      string
	}{
		"Undecided": {func(*kit.Kit) error { return nil }, "CANCELLED PENDING"},
		"Fired":     {func(k *kit.Kit) error { return kit.Second(k.Fire(k.Coordinator())) }, "CANCELLED PENDING"},
		"FiredAndDue": {func(k *kit.Kit) error {
			_, err := k.Fire(k.Coordinator())
			k.Exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused`)
			return err
		}, "CANCELLED PENDING"},
		"Dropped": {func(k *kit.Kit) error {
			k.Exec(`UPDATE kagzi.schedules SET cursor_at = now(), next_at = now() + interval '1 hour' WHERE NOT paused`)
			return nil
		}, "PENDING"},
		"Paused":  {func(k *kit.Kit) error { return admin.New(k.Client).Schedules.Pause(k.Ctx, "s") }, "PENDING"},
		"Deleted": {func(k *kit.Kit) error { return k.Client.DeleteSchedule(k.Ctx, "s") }, "PENDING"},
		"NewPolicy": {func(k *kit.Kit) error {
			return k.Client.Schedule(k.Ctx, kagzi.Schedule{
				Name: "s", Every: time.Hour, Overlap: kagzi.OverlapSkip,
				Run: kit.Report.With(""),
			})
		}, "PENDING"},
		"MayOverlap": {func(k *kit.Kit) error {
			return k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: "s", Every: time.Hour, Run: kit.Report.With("")})
		}, "PENDING"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			replacing(k, kagzi.Schedule{Name: "s"})
			seen := template(k, "s")
			if err := tc.meanwhile(k); err != nil {
				t.Fatal(err)
			}
			if err := replace(k, seen, time.Second); err != nil {
				t.Error(err)
			}
			if got := states(k, "s"); got != tc.want {
				t.Errorf("runs: %s, want %s", got, tc.want)
			}
		})
	}
}

// A run is cancelled and replaced in one transaction. If the database refuses the new run, the active one goes on, and
// the schedule is paused with the error.
func TestRefusedReplacementCancelsNothing(t *testing.T) {
	k := kit.New(t)
	replacing(k, kagzi.Schedule{Name: "s"})
	k.Exec(`ALTER TABLE kagzi.workflow_runs ADD CONSTRAINT refuse CHECK (fire_at IS NULL)`)
	k.Pass(k.Coordinator())
	if got := states(k, "s"); got != "PENDING" {
		t.Errorf("runs: %s, want the active one alone", got)
	}
	if info := k.Info("s"); !info.Paused || !strings.Contains(info.Error, "refuse") {
		t.Errorf("not paused with its error: %+v", info)
	}
}

// A schedule that is paused or deleted while its active run is being replaced either keeps that run or has the new one.
// The change comes before the transaction that follows the one which cancels.
func TestChangeWhileReplacing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kit.Kit) error{
		"Pause":  func(k *kit.Kit) error { return admin.New(k.Client).Schedules.Pause(k.Ctx, "s") },
		"Delete": func(k *kit.Kit) error { return k.Client.DeleteSchedule(k.Ctx, "s") },
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Database(t)
			k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
			replacing(k, kagzi.Schedule{Name: "s"})
			var cancelled, changed bool
			traced := dbtest.OpenPool(t, db.DSN, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.Tracer = statements(func(sql string) {
					cancelled = cancelled ||
						strings.Contains(sql, "r.schedule_id = $2 AND r.namespace_id = $1 AND r.status IN")
					if cancelled && !changed && strings.HasPrefix(strings.ToLower(sql), "begin") {
						changed = true
						if err := change(k); err != nil {
							t.Error(err)
						}
					}
				})
			})
			k.Pass(kit.NewCoordinator(t, kit.NewClient(t, traced), kagzi.CoordinatorConfig{}))
			if got := states(k, "s"); !cancelled || got != "CANCELLED PENDING" {
				t.Errorf("cancelled %t, runs: %s", cancelled, got)
			}
		})
	}
}

// statements is a tracer of connections that is called with each statement before it is sent.
type statements func(sql string)

func (f statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	f(d.SQL)
	return ctx
}

func (f statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		f(q.SQL)
	}
	return ctx
}

func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A deploy that leaves the timetable as it is leaves the due tick to the coordinator, which cancels the run before: the
// tick does not wait for a run that hangs. A changed timetable fires the tick at once; its run waits for the one
// before.
func TestEditLeavesReplacingToTheCoordinator(t *testing.T) {
	t.Run("Unchanged", func(t *testing.T) {
		k := kit.New(t)
		replacing(k, kagzi.Schedule{Name: "s"})
		k.Schedule(kagzi.Schedule{
			Name: "s", Every: time.Hour, Overlap: kagzi.OverlapCancelPrevious,
			Run: kit.Report.With("deployed"),
		})
		if got := states(k, "s"); got != "PENDING" || k.Info("s").Queued {
			t.Errorf("runs: %s: the deploy has fired", got)
		}
		k.Pass(k.Coordinator())
		if got := states(k, "s"); got != "CANCELLED PENDING" || k.Info("s").Queued {
			t.Errorf("runs: %s, want the hanging one cancelled for the tick's", got)
		}
		if runs := k.Fired("s"); string(runs[len(runs)-1].Input) != `"deployed"` {
			t.Errorf("input %s", runs[len(runs)-1].Input)
		}
	})
	t.Run("Changed", func(t *testing.T) {
		k := kit.New(t)
		replacing(k, kagzi.Schedule{Name: "s"})
		k.Schedule(kagzi.Schedule{Name: "s", Every: 2 * time.Hour, Overlap: kagzi.OverlapCancelPrevious})
		if got := states(k, "s"); got != "PENDING PENDING" || !k.Info("s").Queued {
			t.Errorf("runs: %s, want the old timetable's tick queued", got)
		}
	})
}

// A caller that pauses a schedule which Kagzi has paused for an error means it: the repair does not resume it.
func TestPauseOfBrokenScheduleStays(t *testing.T) {
	k := kit.New(t)
	s := kagzi.Schedule{Name: "s", Cron: "0 * * * *"}
	k.Schedule(s)
	k.Exec(`UPDATE kagzi.schedules SET cron_expr = 'nonsense' WHERE name = 's'`)
	k.Missed("s", time.Hour)
	k.Pass(k.Coordinator())
	if info := k.Info("s"); !info.Paused || info.Error == "" {
		t.Fatalf("not paused by Kagzi: %+v", info)
	}
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.Schedule(s)
	if info := k.Info("s"); !info.Paused || info.Error != "" {
		t.Errorf("the repair has resumed what somebody paused: %+v", info)
	}
	if err := admin.New(k.Client).Schedules.Resume(k.Ctx, "s"); err != nil {
		t.Error(err)
	}
}

// The ticks that come during a pause are caught up with although the timetable is changed meanwhile: as it is then.
func TestPausedScheduleKeepsItsTicksThroughAChange(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	start := k.Now().Add(-1000*time.Hour - 30*time.Minute)
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Start: start})
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.Missed("s", 10*time.Hour)
	cursor := k.Info("s").Last
	k.Schedule(kagzi.Schedule{Name: "s", Every: 2 * time.Hour, Start: start})
	k.Pass(co)
	if info := k.Info("s"); !info.Paused || !info.Last.Equal(cursor) || len(k.Fired("s")) != 0 {
		t.Errorf("%d runs; cursor %v, before the change %v; %+v", len(k.Fired("s")), info.Last, cursor, info)
	}
	if err := admin.New(k.Client).Schedules.Resume(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	k.Pass(co)
	runs := k.Fired("s")
	if len(runs) != 5 {
		t.Fatalf("%d runs, want one for every other hour of ten", len(runs))
	}
	for i, r := range runs {
		if want := start.Add(1000 * time.Hour).Add(time.Duration(i-4) * 2 * time.Hour); r.FireTime.Sub(want).
			Abs() > time.Second {
			t.Errorf("tick %v, want %v", r.FireTime, want)
		}
	}
}

// The tick of 1970 is a tick: it has its run once, and the run knows its time.
func TestTickAtTheEpoch(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{Name: "s", Cron: "0 0 1 1 *"})
	for i, want := range []int{2, 0} {
		n, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", time.Unix(0, 0),
			time.Unix(0, 0).Add(400*24*time.Hour))
		if n != want || err != nil {
			t.Errorf("backfill %d started %d, %v; want %d", i, n, err, want)
		}
	}
	runs := k.Fired("s")
	if len(runs) != 2 || !runs[0].FireTime.Equal(time.Unix(0, 0)) || runs[1].FireTime.UTC().Year() != 1971 {
		t.Errorf("runs %+v", runs)
	}
}
