package schedules_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// everySecond checks that the runs' ticks are the n seconds up to one between from and to, each once.
func everySecond(t *testing.T, runs []kagzi.RunInfo, n int, from, to time.Time) {
	t.Helper()
	if len(runs) != n {
		t.Fatalf("%d runs, want %d", len(runs), n)
	}
	for i, r := range runs {
		if i > 0 && r.FireTime.Sub(runs[i-1].FireTime) != time.Second {
			t.Errorf("tick %v follows %v", r.FireTime, runs[i-1].FireTime)
		}
	}
	if last := runs[n-1].FireTime; last.Before(from.Truncate(time.Second)) || last.After(to) {
		t.Errorf("the newest tick is %v, want one from %v to %v", last, from, to)
	}
}

func TestScheduleFires(t *testing.T) {
	k := kit.New(t)
	ticks := make(chan time.Time, 100)
	kit.Serve(k, kit.Report, func(ctx kagzi.Context, in string) (string, error) {
		if in != "weekly" {
			return "", fmt.Errorf("input %q", in)
		}
		ticks <- ctx.FireTime()
		return "done", nil
	})
	before := k.Now()
	k.Schedule(kagzi.Schedule{
		Name: "r", Cron: "* * * * * *",
		Run: kit.Report.With("weekly", kagzi.Metadata{"team": "x"}, kagzi.Timeout(time.Hour), kagzi.Priority(1)),
	})
	for i := range 3 {
		if tick := await.Receive(t, ticks); !tick.Equal(tick.Truncate(time.Second)) || !tick.After(before) ||
			tick.After(k.Now()) {
			t.Errorf("tick %d is %v", i, tick)
		}
	}
	for _, r := range k.Fired("r") {
		if r.Schedule != "r" || r.Metadata["team"] != "x" || r.DeadlineAt.Sub(r.CreatedAt) != time.Hour ||
			r.Priority != 1 || r.CreatedAt.Before(r.FireTime) {
			t.Errorf("run %+v", r)
		}
	}
	if other := kit.ResultOf(k, kit.Begin(k, kit.Report, "weekly")); other != "done" ||
		!await.Receive(t, ticks).IsZero() && len(ticks) == 0 {
		t.Log("a tick came between") // the next second's
	}
}

func TestDowntimeOfThreeDays(t *testing.T) {
	for name, s := range map[string]kagzi.Schedule{
		"Default": {}, "Five": {CatchUp: 5},
		"ByAge": {CatchUpAge: 7*time.Second + 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			s.Name, s.Every = "busy", time.Second
			k.Schedule(s)
			k.Missed("busy", 72*time.Hour)
			before := k.Now()
			k.Pass(k.Coordinator())
			runs := k.Fired("busy")
			want := 100
			switch name {
			case "Five":
				want = 5
			case "ByAge":
				want = 8
				if len(runs) == 7 { // the second may have ended, or the age, between two ticks
					want = 7
				}
			}
			everySecond(t, runs[:want], want, before.Add(-time.Duration(len(runs)-want)*time.Second), k.Now())
			if late := k.Now().Sub(before); len(runs) > want+int(late/time.Second)+1 {
				t.Errorf("%d runs after %v", len(runs), late)
			}
			if left := k.Info("busy").Next.Sub(k.Now()); left > time.Second {
				t.Errorf("the next in %v", left)
			}
		})
	}
}

// A schedule that is created or changed does not move the cursor back, whatever is asked.
func TestScheduleAgain(t *testing.T) {
	k := kit.New(t)
	s := kagzi.Schedule{Name: "s", Every: time.Hour, Start: k.Now().Add(-24 * time.Hour)}
	k.Schedule(s)
	first := k.Info("s")
	k.Schedule(s)
	if again := k.Info("s"); !again.Last.Equal(first.Last) || !again.Next.Equal(first.Next) {
		t.Errorf("again %+v, first %+v", again, first)
	}
	k.Missed("s", 3*time.Hour)
	s.Every, s.Run = 2*time.Hour, kit.Report.With("changed", kagzi.Queue("q"))
	k.Schedule(s)
	runs := k.Fired("s")
	if len(runs) != 3 {
		t.Errorf("%d runs were fired before the change, want 3", len(runs))
	}
	for _, r := range runs {
		if string(r.Input) != `"in"` || r.Queue != "default" {
			t.Errorf("fired after the change: %s in %s", r.Input, r.Queue)
		}
	}
	if changed := k.Info("s"); changed.Queue != "q" || string(changed.Input) != `"changed"` ||
		changed.Every != 2*time.Hour || changed.Last.Before(first.Last) {
		t.Errorf("changed %+v", changed)
	}
	k.Pass(k.Coordinator())
	if n := len(k.Fired("s")); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
}

// A tick that has come is not lost by a change, although the jitter keeps its run from starting yet.
// The queued run becomes due when the active one ends: at once, without waiting for the coordinator's interval.
// A queued run is not forgotten when its schedule changes, is paused or deleted.
// A tick that was due when a schedule is paused does not count as missed in the pause.
func TestDeleteSchedule(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	s := kagzi.Schedule{Name: "s", Every: time.Hour}
	k.Schedule(s)
	k.Missed("s", 2*time.Hour)
	k.Pass(co)
	if err := k.Client.DeleteSchedule(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"delete": k.Client.DeleteSchedule(k.Ctx, "s"), "pause": admin.New(k.Client).Schedules.Pause(k.Ctx, "s"),
		"resume":   admin.New(k.Client).Schedules.Resume(k.Ctx, "s"),
		"trigger":  kit.Second(admin.New(k.Client).Schedules.Trigger(k.Ctx, "s")),
		"get":      kit.Second(admin.New(k.Client).Schedules.Get(k.Ctx, "s")),
		"next":     kit.Second(admin.New(k.Client).Schedules.NextFires(k.Ctx, "s", 1)),
		"backfill": kit.Second(admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", k.Now().Add(-time.Hour), k.Now())),
	} {
		if !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(k.Fired("s")); n != 2 {
		t.Errorf("%d runs in the history, want 2", n)
	}
	k.Schedule(s) // the same again: its ticks are fired already
	if n, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", k.Now().Add(-4*time.Hour), k.Now()); n != 2 ||
		err != nil {
		t.Errorf("backfilled %d, %v; want the two ticks that had no run", n, err)
	}
}

func TestListSchedules(t *testing.T) {
	k := kit.New(t)
	for i := range 5 {
		k.Schedule(kagzi.Schedule{Name: fmt.Sprint("s", i), Every: time.Hour, Jitter: time.Hour})
	}
	k.Schedule(kagzi.Schedule{Name: "t", Every: time.Hour, Run: odds.With(1)})
	var names []string
	f := admin.ScheduleFilter{Limit: 2, Workflow: "report"}
	for {
		page, err := admin.New(k.Client).Schedules.List(k.Ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			names = append(names, s.Name)
		}
		f.After = page[len(page)-1].Name
	}
	if got := strings.Join(names, " "); got != "s0 s1 s2 s3 s4" {
		t.Errorf("listed %s", got)
	}
	if runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{}); err != nil || len(runs) != 0 {
		t.Errorf("templates are listed as runs: %v, %v", runs, err)
	}
}

// One that cannot be fired is paused with its error and keeps no other from firing.
func TestBadScheduleBlocksNothing(t *testing.T) {
	k := kit.New(t)
	k.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.workflow_type = 'odds' AND NEW.schedule_id IS NOT NULL
			THEN RAISE 'no odds here'; END IF; RETURN NEW; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	k.Schedule(kagzi.Schedule{Name: "a", Every: time.Hour, Run: odds.With(1)})
	for _, name := range []string{"b", "c", "d"} {
		k.Schedule(kagzi.Schedule{Name: name, Every: time.Hour})
	}
	k.Exec(`UPDATE kagzi.schedules SET cron_expr = 'nonsense' WHERE name = 'b'`)
	for _, name := range []string{"a", "b", "c", "d"} {
		k.Missed(name, time.Hour)
	}
	k.Pass(k.Coordinator())
	for name, problem := range map[string]string{"a": "no odds here", "b": "nonsense", "c": "", "d": ""} {
		info := k.Info(name)
		if info.Paused != (problem != "") || !strings.Contains(info.Error, problem) ||
			(len(k.Fired(name)) == 1) != (problem == "") {
			t.Errorf("schedule %s: %d runs, %+v", name, len(k.Fired(name)), info)
		}
	}
	kit.MustContain(t, admin.New(k.Client).Schedules.Resume(k.Ctx, "b"), "nonsense", "Client.Schedule")
	k.Schedule(kagzi.Schedule{Name: "b", Every: time.Hour})
	if info := k.Info("b"); info.Paused || info.Error != "" {
		t.Errorf("repaired %+v", info)
	}
}

func TestScheduleInTx(t *testing.T) {
	k := kit.New(t)
	s := kagzi.Schedule{Name: "s", Every: time.Hour, Run: kit.Report.With("")}
	verbs := []func(tx pgx.Tx) error{
		func(tx pgx.Tx) error { return k.Client.Schedule(k.Ctx, s, kagzi.InTx(tx)) },
		func(tx pgx.Tx) error {
			return kit.Second(admin.New(k.Client).Schedules.Trigger(k.Ctx, "s", kagzi.InTx(tx)))
		},
		func(tx pgx.Tx) error {
			return kit.Second(admin.New(k.Client).Schedules.Backfill(k.Ctx, "s", k.Now().Add(-2*time.Hour), k.Now(),
				kagzi.InTx(tx)))
		},
		func(tx pgx.Tx) error { return admin.New(k.Client).Schedules.Pause(k.Ctx, "s", kagzi.InTx(tx)) },
		func(tx pgx.Tx) error { return admin.New(k.Client).Schedules.Resume(k.Ctx, "s", kagzi.InTx(tx)) },
		func(tx pgx.Tx) error { return k.Client.DeleteSchedule(k.Ctx, "s", kagzi.InTx(tx)) },
	}
	for i, verb := range verbs {
		state := func() string {
			return dbtest.QueryOne[string](t, k.Pool,
				`SELECT coalesce(string_agg(concat_ws(' ', id, state, due), ',' ORDER BY id), '') FROM (
				SELECT run_id, status, available_at FROM kagzi.workflow_runs UNION ALL SELECT schedule_id, paused::text,
					next_at FROM kagzi.schedules) r (id, state, due)`)
		}
		before := state()
		for _, commit := range []bool{false, true} {
			tx := k.CallersTx()
			if err := verb(tx); err != nil {
				t.Fatalf("verb %d: %v", i, err)
			}
			if state() != before {
				t.Errorf("verb %d: seen before the commit", i)
			}
			if commit {
				kit.CommitTx(t, tx)
			} else {
				kit.RollbackTx(t, tx)
			}
			if commit == (state() == before) {
				t.Errorf("verb %d, commit %t: changed %t", i, commit, state() != before)
			}
		}
	}
}

func TestBadSchedules(t *testing.T) {
	k := kit.New(t)
	ok := kagzi.Schedule{Name: "s", Cron: "0 7 * * *", Run: kit.Report.With("")}
	with := func(change func(*kagzi.Schedule)) kagzi.Schedule {
		s := ok
		change(&s)
		return s
	}
	for want, s := range map[string]kagzi.Schedule{
		"schedule name is empty":       with(func(s *kagzi.Schedule) { s.Name = "" }),
		"at most 255":                  with(func(s *kagzi.Schedule) { s.Name = strings.Repeat("x", 256) }),
		"control character":            with(func(s *kagzi.Schedule) { s.Name = "a\x00" }),
		"Run is missing":               with(func(s *kagzi.Schedule) { s.Run = kagzi.Call{} }),
		"neither Cron nor Every":       with(func(s *kagzi.Schedule) { s.Cron = "" }),
		"both Cron and Every":          with(func(s *kagzi.Schedule) { s.Every = time.Hour }),
		"fields":                       with(func(s *kagzi.Schedule) { s.Cron = "whenever" }),
		"minute":                       with(func(s *kagzi.Schedule) { s.Cron = "61 * * * *" }),
		"never fires":                  with(func(s *kagzi.Schedule) { s.Cron = "0 0 30 2 *" }),
		"its last tick is in the past": with(func(s *kagzi.Schedule) { s.Cron = "0 0 0 1 1 * 2020" }),
		"Mars/Olympus":                 with(func(s *kagzi.Schedule) { s.TimeZone = "Mars/Olympus" }),
		"Local":                        with(func(s *kagzi.Schedule) { s.TimeZone = "Local" }),
		"use Cron": with(func(s *kagzi.Schedule) {
			s.Cron, s.Every, s.TimeZone = "", time.Hour, "Europe/Berlin"
		}),
		"at least 1s": with(func(s *kagzi.Schedule) { s.Cron, s.Every = "", 30 }),
		"no Overlap \"maybe\": give kagzi.OverlapSkip": with(func(s *kagzi.Schedule) { s.Overlap = "maybe" }),
		"CatchUp is -1":                        with(func(s *kagzi.Schedule) { s.CatchUp = -1 }),
		"CatchUp is 9223372036854775807":       with(func(s *kagzi.Schedule) { s.CatchUp = math.MaxInt }),
		"CatchUpAge is -1s: give at least 1s":  with(func(s *kagzi.Schedule) { s.CatchUpAge = -time.Second }),
		"CatchUpAge is 30ns: give at least 1s": with(func(s *kagzi.Schedule) { s.CatchUpAge = 30 }),
		"Jitter is 30ns: give between 1ms":     with(func(s *kagzi.Schedule) { s.Jitter = 30 }),
		"no tick is left before End 2020": with(func(s *kagzi.Schedule) {
			s.End = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		}),
		"Jitter is -1s": with(func(s *kagzi.Schedule) { s.Jitter = -time.Second }),
		"Start is in the year 10000": with(func(s *kagzi.Schedule) {
			s.Start = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		}),
		"End is in the year 300000": with(func(s *kagzi.Schedule) {
			s.End = time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)
		}),
		"End is in the year 0": with(func(s *kagzi.Schedule) { s.End = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"is before Start":      with(func(s *kagzi.Schedule) { s.Start, s.End = k.Now().Add(time.Hour), k.Now() }),
		"takes no ID":          with(func(s *kagzi.Schedule) { s.Run = kit.Report.With("", kagzi.ID("x")) }),
		"takes no Delay":       with(func(s *kagzi.Schedule) { s.Run = kit.Report.With("", kagzi.Delay(time.Hour)) }),
		"takes no At":          with(func(s *kagzi.Schedule) { s.Run = kit.Report.With("", kagzi.At(k.Now())) }),
		"cannot be encoded": with(func(s *kagzi.Schedule) {
			s.Run = kagzi.Define[chan int, int]("chan").With(make(chan int))
		}),
		"Priority is 9": with(func(s *kagzi.Schedule) { s.Run = kit.Report.With("", kagzi.Priority(9)) }),
		"workflow name": with(func(s *kagzi.Schedule) { s.Run = kagzi.Define[int, int]("a\nb").With(1) }),
	} {
		kit.MustContain(t, k.Client.Schedule(k.Ctx, s), want)
	}
	if n := k.Count(`SELECT (SELECT count(*) FROM kagzi.schedules) + (SELECT count(*)
		FROM kagzi.workflow_runs)`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	kit.MustContain(t, k.Client.Schedule(k.Ctx, ok, kagzi.InTx(nil)), "InTx(nil)")
	kit.MustContain(t, admin.New(k.Client).Schedules.Pause(k.Ctx, ""), "empty")
	kit.MustContain(t, kit.Second(admin.New(k.Client).Schedules.List(k.Ctx, admin.ScheduleFilter{Limit: -1})),
		"Limit is -1")
	kit.MustContain(t, kit.Second(admin.New(k.Client).Schedules.NextFires(k.Ctx, "s", -1)), "-1")
	kit.MustContain(t, kit.Second(kagzi.NewCoordinator(nil, kagzi.CoordinatorConfig{})), "client is nil")
	kit.MustContain(t,
		kit.Second(kagzi.NewWorker(k.Client, kagzi.WorkerConfig{
			NoCoordinator: true,
			Coordinator:   kagzi.CoordinatorConfig{Batch: 5},
		})), "only Grace and NoGrace have a meaning")
	kit.NewWorker(t, k.Client,
		kagzi.WorkerConfig{NoCoordinator: true, Coordinator: kagzi.CoordinatorConfig{Grace: 5 * time.Second}})
	for want, cfg := range map[string]kagzi.CoordinatorConfig{
		"KeepForever is set beside": {KeepForever: true, KeepFailed: time.Hour},
		"Grace and NoGrace":         {Grace: time.Second, NoGrace: true},
		"Interval is 5ns":           {Interval: 5}, "Batch is -1": {Batch: -1}, "MaxRuns is -1": {MaxRuns: -1},
		"StaleAfter": {StaleAfter: -1},
	} {
		kit.MustContain(t, kit.Second(kagzi.NewCoordinator(k.Client, cfg)), want)
		kit.MustContain(t, kit.Second(kagzi.NewWorker(k.Client, kagzi.WorkerConfig{Coordinator: cfg})), want)
	}
}
