package kagzi

import (
	"reflect"
	"time"

	"github.com/kagzi/kagzi/internal/testhook"
)

var report = Define[string, string]("report")

// schedule creates or changes a schedule of report.
func (k *kit) schedule(s Schedule) {
	k.t.Helper()
	if reflect.ValueOf(s.Run).IsZero() {
		s.Run = report.With("in")
	}
	if err := k.c.Schedule(k.ctx, s); err != nil {
		k.t.Fatal(err)
	}
}

// coordinator returns one that is not running: tests call its passes.
func (k *kit) coordinator() *Coordinator {
	k.t.Helper()
	co := newTestCoordinator(k.t, k.c, CoordinatorConfig{})
	return co
}

// missed makes a schedule as if nobody had fired it for so long.
func (k *kit) missed(name string, d time.Duration) {
	k.t.Helper()
	k.exec(`UPDATE kagzi.schedules SET cursor_at = date_trunc('second', clock_timestamp()) - $2::interval, next_at = CASE WHEN next_at < 'infinity' THEN now() ELSE next_at END
		WHERE name = $1`, name, d)
}

// pass lets a coordinator fire what is due, once.
func (k *kit) pass(co *Coordinator) {
	k.t.Helper()
	if _, err := k.fire(co); err != nil {
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
	runs, err := k.c.List(k.ctx, RunFilter{Schedule: name, Limit: 100_000})
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

func second[T any](_ T, err error) error { return err }

// fire is pass, and returns how long the next one may wait.
func (k *kit) fire(co *Coordinator) (pause time.Duration, err error) {
	k.t.Helper()
	hooks := &testhook.Hooks{Passes: func(p testhook.Passes) { pause, err = p.FireSchedules(k.ctx) }}
	if err := co.Run(testhook.With(k.ctx, hooks)); err != nil {
		k.t.Error(err)
	}
	return pause, err
}
