package kagzi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

var report = Define[string, string]("report")

// schedule creates or changes a schedule of report.
func (k *kit) schedule(s Schedule) {
	k.t.Helper()
	if s.Run.workflow == "" {
		s.Run = report.With("in")
	}
	if err := k.c.Schedule(k.ctx, s); err != nil {
		k.t.Fatal(err)
	}
}

// coordinator returns one that is not running: tests call its passes.
func (k *kit) coordinator() *Coordinator {
	k.t.Helper()
	co, err := NewCoordinator(k.c, CoordinatorConfig{})
	if err != nil {
		k.t.Fatal(err)
	}
	return co
}

// missed makes a schedule as if nobody had fired it for so long.
func (k *kit) missed(name string, d time.Duration) {
	k.t.Helper()
	k.exec(`UPDATE kagzi.workflow_runs SET fire_at = date_trunc('second', clock_timestamp()) - $2::interval, available_at = CASE WHEN available_at < 'infinity' THEN now() ELSE available_at END
		WHERE external_id = $1 AND status IN ('SCHEDULED', 'PAUSED')`, name, d)
}

// pass lets a coordinator fire what is due, once.
func (k *kit) pass(co *Coordinator) {
	k.t.Helper()
	if _, err := co.fire(k.ctx); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) info(name string) ScheduleInfo {
	k.t.Helper()
	info, err := k.c.GetSchedule(k.ctx, name)
	if err != nil {
		k.t.Fatal(err)
	}
	return info
}

// fired returns the runs of a schedule, oldest first.
func (k *kit) fired(name string) []RunInfo {
	k.t.Helper()
	runs, err := k.c.List(k.ctx, Filter{Schedule: name, Limit: 100_000})
	if err != nil {
		k.t.Fatal(err)
	}
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs
}

func (k *kit) now() time.Time {
	k.t.Helper()
	var now time.Time
	if err := k.pool.QueryRow(k.ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		k.t.Fatal(err)
	}
	return now
}

// everySecond checks that the runs' ticks are the n seconds up to one between from and to, each once.
func everySecond(t *testing.T, runs []RunInfo, n int, from, to time.Time) {
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
	k := newKit(t)
	ticks := make(chan time.Time, 100)
	serve(k, report, func(ctx Context, in string) (string, error) {
		if in != "weekly" {
			return "", fmt.Errorf("input %q", in)
		}
		ticks <- FireTime(ctx)
		return "done", nil
	})
	before := k.now()
	k.schedule(Schedule{Name: "r", Cron: "* * * * * *", Run: report.With("weekly", Metadata{"team": "x"}, Timeout(time.Hour), Priority(1))})
	for i := range 3 {
		if tick := receive(t, ticks); !tick.Equal(tick.Truncate(time.Second)) || !tick.After(before) || tick.After(k.now()) {
			t.Errorf("tick %d is %v", i, tick)
		}
	}
	for _, r := range k.fired("r") {
		if r.Schedule != "r" || r.Metadata["team"] != "x" || r.DeadlineAt.Sub(r.CreatedAt) != time.Hour || r.Priority != 1 || r.CreatedAt.Before(r.FireTime) {
			t.Errorf("run %+v", r)
		}
	}
	if other := resultOf(k, begin(k, report, "weekly")); other != "done" || !receive(t, ticks).IsZero() && len(ticks) == 0 {
		t.Log("a tick came between") // the next second's
	}
}

func TestDowntimeOfThreeDays(t *testing.T) {
	for name, s := range map[string]Schedule{"Default": {}, "Five": {CatchUp: 5}, "ByAge": {CatchUpAge: 7*time.Second + 500*time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			s.Name, s.Every = "busy", time.Second
			k.schedule(s)
			k.missed("busy", 72*time.Hour)
			before := k.now()
			k.pass(k.coordinator())
			runs := k.fired("busy")
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
			everySecond(t, runs[:want], want, before.Add(-time.Duration(len(runs)-want)*time.Second), k.now())
			if late := k.now().Sub(before); len(runs) > want+int(late/time.Second)+1 {
				t.Errorf("%d runs after %v", len(runs), late)
			}
			if left := k.info("busy").Next.Sub(k.now()); left > time.Second {
				t.Errorf("the next in %v", left)
			}
		})
	}
}

// A schedule that is created or changed does not move the cursor back, whatever is asked.
func TestScheduleAgain(t *testing.T) {
	k := newKit(t)
	s := Schedule{Name: "s", Every: time.Hour, Start: k.now().Add(-24 * time.Hour)}
	k.schedule(s)
	first := k.info("s")
	k.schedule(s)
	if again := k.info("s"); !again.Last.Equal(first.Last) || !again.Next.Equal(first.Next) {
		t.Errorf("again %+v, first %+v", again, first)
	}
	k.missed("s", 3*time.Hour)
	s.Every, s.Run = 2*time.Hour, report.With("changed", Queue("q"))
	k.schedule(s)
	runs := k.fired("s")
	if len(runs) != 3 {
		t.Errorf("%d runs were fired before the change, want 3", len(runs))
	}
	for _, r := range runs {
		if string(r.Input) != `"in"` || r.Queue != "default" {
			t.Errorf("fired after the change: %s in %s", r.Input, r.Queue)
		}
	}
	if changed := k.info("s"); changed.Queue != "q" || string(changed.Input) != `"changed"` || changed.Every != 2*time.Hour || changed.Last.Before(first.Last) {
		t.Errorf("changed %+v", changed)
	}
	k.pass(k.coordinator())
	if n := len(k.fired("s")); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
}

// A tick that has come is not lost by a change, although the jitter keeps its run from starting yet.
// The queued run becomes due when the active one ends: at once, without waiting for the coordinator's interval.
// A queued run is not forgotten when its schedule changes, is paused or deleted.
// What was due when a schedule is paused was not missed by the pause.
func TestDeleteSchedule(t *testing.T) {
	k := newKit(t)
	co := k.coordinator()
	s := Schedule{Name: "s", Every: time.Hour}
	k.schedule(s)
	k.missed("s", 2*time.Hour)
	k.pass(co)
	if err := k.c.DeleteSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"delete": k.c.DeleteSchedule(k.ctx, "s"), "pause": k.c.PauseSchedule(k.ctx, "s"), "resume": k.c.ResumeSchedule(k.ctx, "s"),
		"trigger":  second(k.c.TriggerSchedule(k.ctx, "s")),
		"get":      second(k.c.GetSchedule(k.ctx, "s")),
		"next":     second(k.c.NextFires(k.ctx, "s", 1)),
		"backfill": second(k.c.BackfillSchedule(k.ctx, "s", k.now().Add(-time.Hour), k.now())),
	} {
		if !errors.Is(err, ErrScheduleNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(k.fired("s")); n != 2 {
		t.Errorf("%d runs in the history, want 2", n)
	}
	k.schedule(s) // the same again: its ticks are fired already
	if n, err := k.c.BackfillSchedule(k.ctx, "s", k.now().Add(-4*time.Hour), k.now()); n != 2 || err != nil {
		t.Errorf("backfilled %d, %v; want the two ticks that had no run", n, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestTriggerSchedule(t *testing.T) {
	k := newKit(t)
	serve(k, report, func(ctx Context, in string) (string, error) { return in + FireTime(ctx).String(), nil })
	k.schedule(Schedule{Name: "s", Every: time.Hour, Overlap: OverlapSkip})
	if err := k.c.PauseSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id, err := k.c.TriggerSchedule(k.ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		run, err := Find(k.ctx, k.c, report, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := resultOf(k, run); got != "in"+(time.Time{}).String() {
			t.Errorf("result %q", got)
		}
	}
	if n := len(k.fired("s")); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

func TestBackfillSchedule(t *testing.T) {
	k := newKit(t)
	k.schedule(Schedule{Name: "s", Cron: "0 12 * * *", Overlap: OverlapSkip, Start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
	next := k.info("s").Next
	from, until := time.Date(2019, 12, 30, 12, 0, 0, 0, time.UTC), time.Date(2020, 1, 5, 12, 0, 0, 0, time.UTC)
	for i, want := range []int{5, 0} {
		if n, err := k.c.BackfillSchedule(k.ctx, "s", from, until); n != want || err != nil {
			t.Errorf("backfill %d started %d, %v; want %d", i, n, err, want)
		}
	}
	for i, r := range k.fired("s") {
		if want := time.Date(2020, 1, 1+i, 12, 0, 0, 0, time.UTC); !r.FireTime.Equal(want) {
			t.Errorf("tick %v, want %v", r.FireTime, want)
		}
	}
	if !k.info("s").Next.Equal(next) {
		t.Error("a backfill moved the schedule")
	}
	k.schedule(Schedule{Name: "busy", Every: time.Second})
	_, err := k.c.BackfillSchedule(k.ctx, "busy", from, until)
	mustContain(t, err, "10000", "parts")
	_, err = k.c.BackfillSchedule(k.ctx, "s", from, k.now().Add(time.Hour))
	mustContain(t, err, "in the future")
	_, err = k.c.BackfillSchedule(k.ctx, "s", until, from)
	mustContain(t, err, "before")
}

func TestListSchedules(t *testing.T) {
	k := newKit(t)
	for i := range 5 {
		k.schedule(Schedule{Name: fmt.Sprint("s", i), Every: time.Hour, Jitter: time.Hour})
	}
	k.schedule(Schedule{Name: "t", Every: time.Hour, Run: odds.With(1)})
	var names []string
	f := ScheduleFilter{Limit: 2, Workflow: "report"}
	for {
		page, err := k.c.ListSchedules(k.ctx, f)
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
	if runs, err := k.c.List(k.ctx, Filter{}); err != nil || len(runs) != 0 {
		t.Errorf("templates are listed as runs: %v, %v", runs, err)
	}
}

var odds = Define[int, int]("odds")

func TestNextFires(t *testing.T) {
	k := newKit(t)
	end := time.Date(2036, 3, 4, 0, 0, 0, 0, time.UTC)
	k.schedule(Schedule{Name: "s", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Start: time.Date(2036, 3, 1, 0, 0, 0, 0, time.UTC), End: end})
	got, err := k.c.NextFires(k.ctx, "s", 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []int{1, 2, 3}
	if len(got) != len(want) {
		t.Fatalf("next fires %v, want three", got)
	}
	for i, d := range want {
		if !got[i].Equal(time.Date(2036, 3, d, 1, 30, 0, 0, time.UTC)) {
			t.Errorf("fire %d at %v", i, got[i])
		}
	}
}

// What is overdue is listed as it will be fired.
func TestNextFiresOverdue(t *testing.T) {
	k := newKit(t)
	for name, tc := range map[string]struct {
		Schedule
		paused  bool
		overdue int
	}{
		"catchup": {Schedule: Schedule{CatchUp: 2}, overdue: 2},
		"age":     {Schedule: Schedule{CatchUpAge: 150 * time.Minute}, overdue: 2},
		"skip":    {Schedule: Schedule{Overlap: OverlapSkip}, overdue: 1},
		"cancel":  {Schedule: Schedule{Overlap: OverlapCancelPrevious}, overdue: 1},
		"paused":  {paused: true, overdue: 3},
		"dropped": {Schedule: Schedule{SkipPaused: true}, paused: true},
	} {
		s := tc.Schedule
		s.Name, s.Every, s.Start = name, time.Hour, k.now().Add(-100*time.Hour-30*time.Minute)
		k.schedule(s)
		if tc.paused {
			if err := k.c.PauseSchedule(k.ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		k.exec(`UPDATE kagzi.workflow_runs SET fire_at = now() - interval '3 hours', available_at = now() WHERE external_id = $1`, name)
		fires, err := k.c.NextFires(k.ctx, name, 5)
		if err != nil || len(fires) != 5 {
			t.Fatalf("%s: %v, %v", name, fires, err)
		}
		now, overdue := k.now(), 0
		for i, at := range fires {
			if at.Before(now) {
				overdue++
			}
			if i > 0 && at.Sub(fires[i-1]) != time.Hour {
				t.Errorf("%s: %v follows %v", name, at, fires[i-1])
			}
		}
		if overdue != tc.overdue {
			t.Errorf("%s: %d overdue of %v, want %d", name, overdue, fires, tc.overdue)
		}
	}
}

// One that cannot be fired is paused with its error and keeps no other from firing.
func TestBadScheduleBlocksNothing(t *testing.T) {
	k := newKit(t)
	k.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.workflow_type = 'odds' AND NEW.schedule_group_id IS NOT NULL THEN RAISE 'no odds here'; END IF; RETURN NEW; END $$`)
	k.exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	k.schedule(Schedule{Name: "a", Every: time.Hour, Run: odds.With(1)})
	for _, name := range []string{"b", "c", "d"} {
		k.schedule(Schedule{Name: name, Every: time.Hour})
	}
	k.exec(`UPDATE kagzi.workflow_runs SET cron_expr = 'nonsense' WHERE external_id = 'b'`)
	for _, name := range []string{"a", "b", "c", "d"} {
		k.missed(name, time.Hour)
	}
	k.pass(k.coordinator())
	for name, problem := range map[string]string{"a": "no odds here", "b": "nonsense", "c": "", "d": ""} {
		info := k.info(name)
		if info.Paused != (problem != "") || !strings.Contains(info.Error, problem) || (len(k.fired(name)) == 1) != (problem == "") {
			t.Errorf("schedule %s: %d runs, %+v", name, len(k.fired(name)), info)
		}
	}
	mustContain(t, k.c.ResumeSchedule(k.ctx, "b"), "nonsense", "Client.Schedule")
	k.schedule(Schedule{Name: "b", Every: time.Hour})
	if info := k.info("b"); info.Paused || info.Error != "" {
		t.Errorf("repaired %+v", info)
	}
}

func TestScheduleInTx(t *testing.T) {
	k := newKit(t)
	s := Schedule{Name: "s", Every: time.Hour, Run: report.With("")}
	verbs := []func(tx pgx.Tx) error{
		func(tx pgx.Tx) error { return k.c.Schedule(k.ctx, s, InTx(tx)) },
		func(tx pgx.Tx) error { return second(k.c.TriggerSchedule(k.ctx, "s", InTx(tx))) },
		func(tx pgx.Tx) error {
			return second(k.c.BackfillSchedule(k.ctx, "s", k.now().Add(-2*time.Hour), k.now(), InTx(tx)))
		},
		func(tx pgx.Tx) error { return k.c.PauseSchedule(k.ctx, "s", InTx(tx)) },
		func(tx pgx.Tx) error { return k.c.ResumeSchedule(k.ctx, "s", InTx(tx)) },
		func(tx pgx.Tx) error { return k.c.DeleteSchedule(k.ctx, "s", InTx(tx)) },
	}
	for i, verb := range verbs {
		state := func() string {
			return queryOne[string](t, k.pool, `SELECT coalesce(string_agg(concat_ws(' ', run_id, status, available_at), ',' ORDER BY run_id), '') FROM kagzi.workflow_runs`)
		}
		before := state()
		for _, commit := range []bool{false, true} {
			tx, err := k.pool.Begin(k.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := verb(tx); err != nil {
				t.Fatalf("verb %d: %v", i, err)
			}
			if state() != before {
				t.Errorf("verb %d: seen before the commit", i)
			}
			if commit {
				err = tx.Commit(k.ctx)
			} else {
				err = tx.Rollback(k.ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			if commit == (state() == before) {
				t.Errorf("verb %d, commit %t: changed %t", i, commit, state() != before)
			}
		}
	}
}

func TestBadSchedules(t *testing.T) {
	k := newKit(t)
	ok := Schedule{Name: "s", Cron: "0 7 * * *", Run: report.With("")}
	with := func(change func(*Schedule)) Schedule {
		s := ok
		change(&s)
		return s
	}
	for want, s := range map[string]Schedule{
		"schedule name is empty":               with(func(s *Schedule) { s.Name = "" }),
		"at most 255":                          with(func(s *Schedule) { s.Name = strings.Repeat("x", 256) }),
		"control character":                    with(func(s *Schedule) { s.Name = "a\x00" }),
		"Run is missing":                       with(func(s *Schedule) { s.Run = Call{} }),
		"neither Cron nor Every":               with(func(s *Schedule) { s.Cron = "" }),
		"both Cron and Every":                  with(func(s *Schedule) { s.Every = time.Hour }),
		"fields":                               with(func(s *Schedule) { s.Cron = "whenever" }),
		"minute":                               with(func(s *Schedule) { s.Cron = "61 * * * *" }),
		"never fires":                          with(func(s *Schedule) { s.Cron = "0 0 30 2 *" }),
		"its last one is past":                 with(func(s *Schedule) { s.Cron = "0 0 0 1 1 * 2020" }),
		"Mars/Olympus":                         with(func(s *Schedule) { s.TimeZone = "Mars/Olympus" }),
		"Local":                                with(func(s *Schedule) { s.TimeZone = "Local" }),
		"use Cron":                             with(func(s *Schedule) { s.Cron, s.Every, s.TimeZone = "", time.Hour, "Europe/Berlin" }),
		"at least 1s":                          with(func(s *Schedule) { s.Cron, s.Every = "", 30 }),
		"no overlap policy \"maybe\"":          with(func(s *Schedule) { s.Overlap = "maybe" }),
		"CatchUp is -1":                        with(func(s *Schedule) { s.CatchUp = -1 }),
		"CatchUp is 9223372036854775807":       with(func(s *Schedule) { s.CatchUp = math.MaxInt }),
		"CatchUpAge is -1s: give at least 1s":  with(func(s *Schedule) { s.CatchUpAge = -time.Second }),
		"CatchUpAge is 30ns: give at least 1s": with(func(s *Schedule) { s.CatchUpAge = 30 }),
		"Jitter is 30ns: give between 1ms":     with(func(s *Schedule) { s.Jitter = 30 }),
		"no tick is to come before End 2020":   with(func(s *Schedule) { s.End = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"Jitter is -1s":                        with(func(s *Schedule) { s.Jitter = -time.Second }),
		"is before Start":                      with(func(s *Schedule) { s.Start, s.End = k.now().Add(time.Hour), k.now() }),
		"takes no ID":                          with(func(s *Schedule) { s.Run = report.With("", ID("x")) }),
		"takes no ID, Delay":                   with(func(s *Schedule) { s.Run = report.With("", Delay(time.Hour)) }),
		"takes no ID, Delay, At":               with(func(s *Schedule) { s.Run = report.With("", At(k.now())) }),
		"cannot be encoded":                    with(func(s *Schedule) { s.Run = Define[chan int, int]("chan").With(make(chan int)) }),
		"Priority is 9":                        with(func(s *Schedule) { s.Run = report.With("", Priority(9)) }),
		"workflow name":                        with(func(s *Schedule) { s.Run = Define[int, int]("a\nb").With(1) }),
	} {
		mustContain(t, k.c.Schedule(k.ctx, s), want)
	}
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	mustContain(t, k.c.Schedule(k.ctx, ok, InTx(nil)), "InTx(nil)")
	mustContain(t, k.c.PauseSchedule(k.ctx, ""), "empty")
	mustContain(t, second(k.c.ListSchedules(k.ctx, ScheduleFilter{Limit: -1})), "negative")
	mustContain(t, second(k.c.NextFires(k.ctx, "s", -1)), "-1")
	mustContain(t, second(NewCoordinator(nil, CoordinatorConfig{})), "client is nil")
	mustContain(t, second(NewWorker(k.c, WorkerConfig{NoCoordinator: true, Coordinator: CoordinatorConfig{Batch: 5}})), "choose one")
	for want, cfg := range map[string]CoordinatorConfig{
		"KeepForever is set beside": {KeepForever: true, KeepFailed: time.Hour}, "Grace and NoGrace": {Grace: time.Second, NoGrace: true},
		"Interval is 5ns": {Interval: 5}, "Batch is -1": {Batch: -1}, "MaxRuns is -1": {MaxRuns: -1}, "StaleAfter": {StaleAfter: -1},
	} {
		mustContain(t, second(NewCoordinator(k.c, cfg)), want)
		mustContain(t, second(NewWorker(k.c, WorkerConfig{Coordinator: cfg})), want)
	}
}

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
	if pause, err := co.fire(k.ctx); err != nil || pause > time.Second || len(k.fired("s")) != 0 {
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
		c := quietClient(t, k.pool)
		co, err := NewCoordinator(c, CoordinatorConfig{Interval: 100 * time.Millisecond, Batch: 3})
		if err != nil {
			t.Fatal(err)
		}
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
		return k.count(`SELECT count(*) FROM (SELECT FROM kagzi.workflow_runs WHERE schedule_group_id IS NOT NULL GROUP BY schedule_group_id HAVING count(*) >= $1) g`, seconds) == schedules
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
	tx, err := k.pool.Begin(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := k.c.Schedule(k.ctx, Schedule{Name: fmt.Sprint("s", i), Every: time.Hour, Run: report.With("")}, InTx(tx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(k.ctx); err != nil {
		t.Fatal(err)
	}
	k.exec(`UPDATE kagzi.workflow_runs SET fire_at = now() - interval '1 hour', available_at = now() WHERE status = 'SCHEDULED'`)
	k.pass(k.coordinator())
	if got := queryOne[string](t, k.pool, `SELECT count(*) || ' ' || count(DISTINCT schedule_group_id) || ' ' || count(DISTINCT fire_at) FROM kagzi.workflow_runs WHERE status = 'PENDING'`); got != "1000 1000 1" {
		t.Errorf("runs, schedules, ticks: %s", got)
	}
	t.Logf("from the first to the last: %s", queryOne[string](t, k.pool, `SELECT (max(created_at) - min(created_at))::text FROM kagzi.workflow_runs WHERE status = 'PENDING'`))
}

// The answer to a commit of a coordinator, or of a client, is lost, or the request.
func TestLostCommitOfSchedules(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]bool{"Answer": false, "Request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			proxy := pgproxy.Start(t, db.DSN)
			lose := proxy.DropAck
			if request {
				lose = proxy.DropRequest
			}
			k := &kit{t: t, ctx: testContext(t), pool: db.Pool, c: quietClient(t, openPool(t, proxy.DSN(), 3))}
			commitOf := func(part string) *pgproxy.Drop {
				return lose(pgproxy.After(pgproxy.Contains(part), pgproxy.Exactly("commit")))
			}
			drop := commitOf("INSERT INTO kagzi.workflow_runs")
			k.schedule(Schedule{Name: "s", Every: time.Hour})
			receive(t, drop.Done())
			k.missed("s", 3*time.Hour)

			drop = commitOf("WITH u AS MATERIALIZED")
			co := k.coordinator()
			waitFor(t, "it has met the outage, the server too, and has come again", func() bool {
				_, _ = co.fire(k.ctx)
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
}
