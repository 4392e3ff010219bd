package kit

import (
	"reflect"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testhook"
)

var Report = kagzi.Define[string, string]("report")

// Schedule creates or changes a schedule of report.
func (k *Kit) Schedule(s kagzi.Schedule) {
	k.T.Helper()
	if reflect.ValueOf(s.Run).IsZero() {
		s.Run = Report.With("in")
	}
	if err := k.Client.Schedule(k.Ctx, s); err != nil {
		k.T.Fatal(err)
	}
}

// Coordinator returns one that is not running: tests call its passes.
func (k *Kit) Coordinator() *kagzi.Coordinator {
	k.T.Helper()
	co := NewCoordinator(k.T, k.Client, kagzi.CoordinatorConfig{})
	return co
}

// Missed makes a schedule as if nobody had fired it for so long.
func (k *Kit) Missed(name string, d time.Duration) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.schedules SET cursor_at = date_trunc('second', clock_timestamp()) - $2::interval, next_at = CASE WHEN next_at < 'infinity' THEN now() ELSE next_at END
		WHERE name = $1`, name, d)
}

// Pass lets a coordinator fire what is due, once.
func (k *Kit) Pass(co *kagzi.Coordinator) {
	k.T.Helper()
	if _, err := k.Fire(co); err != nil {
		k.T.Fatal(err)
	}
}

// Info returns a schedule as it is now.
func (k *Kit) Info(name string) kagzi.ScheduleInfo {
	k.T.Helper()
	info, err := k.Client.GetSchedule(k.Ctx, name)
	if err != nil {
		k.T.Fatal(err)
	}
	return info
}

// Fired returns the runs of a schedule, oldest first.
func (k *Kit) Fired(name string) []kagzi.RunInfo {
	k.T.Helper()
	runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{Schedule: name, Limit: 100_000})
	if err != nil {
		k.T.Fatal(err)
	}
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs
}

// Now returns the database's time.
func (k *Kit) Now() time.Time {
	k.T.Helper()
	var now time.Time
	if err := k.Pool.QueryRow(k.Ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		k.T.Fatal(err)
	}
	return now
}

// Second returns the error of a call that returns a value, too.
func Second[T any](_ T, err error) error { return err }

// Fire is pass, and returns how long the next one may wait.
func (k *Kit) Fire(co *kagzi.Coordinator) (pause time.Duration, err error) {
	k.T.Helper()
	hooks := &testhook.Hooks{Passes: func(p testhook.Passes) { pause, err = p.FireSchedules(k.Ctx) }}
	if err := co.Run(testhook.With(k.Ctx, hooks)); err != nil {
		k.T.Error(err)
	}
	return pause, err
}
