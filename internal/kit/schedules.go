package kit

import (
	"reflect"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/testhook"
)

// Report is the workflow that schedules start in most tests.
var Report = kagzi.Define[string, string]("report")

// Schedule creates or changes a schedule. Unless s has a Run, it starts Report.
func (k *Kit) Schedule(s kagzi.Schedule) {
	k.T.Helper()
	if reflect.ValueOf(s.Run).IsZero() {
		s.Run = Report.With("in")
	}
	if err := k.Client.Schedule(k.Ctx, s); err != nil {
		k.T.Fatal(err)
	}
}

// Coordinator returns a coordinator that is not running, for tests that make single passes.
func (k *Kit) Coordinator() *kagzi.Coordinator {
	k.T.Helper()
	co := NewCoordinator(k.T, k.Client, kagzi.CoordinatorConfig{})
	return co
}

// Missed changes a schedule to look as though no coordinator had fired it for d.
func (k *Kit) Missed(name string, d time.Duration) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.schedules SET cursor_at = date_trunc('second', clock_timestamp()) - $2::interval,
		next_at = CASE WHEN next_at < 'infinity' THEN now() ELSE next_at END
		WHERE name = $1`, name, d)
}

// Pass makes one pass of co that fires the due schedules.
func (k *Kit) Pass(co *kagzi.Coordinator) {
	k.T.Helper()
	if _, err := k.Fire(co); err != nil {
		k.T.Fatal(err)
	}
}

// Info returns a schedule as it is now.
func (k *Kit) Info(name string) admin.ScheduleInfo {
	k.T.Helper()
	info, err := admin.New(k.Client).Schedules.Get(k.Ctx, name)
	if err != nil {
		k.T.Fatal(err)
	}
	return info
}

// Fired returns the runs of a schedule, oldest first.
func (k *Kit) Fired(name string) []kagzi.RunInfo {
	k.T.Helper()
	runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{Schedule: name, Limit: 100_000, Payloads: true})
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

// Second returns its second argument: the error of a call that also returns a value.
func Second[T any](_ T, err error) error { return err }

// Fire is Pass, and returns the pause until the next pass.
func (k *Kit) Fire(co *kagzi.Coordinator) (pause time.Duration, err error) {
	k.T.Helper()
	hooks := &testhook.Hooks{Passes: func(p testhook.Passes) { pause, err = p.FireSchedules(k.Ctx) }}
	if err := co.Run(testhook.With(k.Ctx, hooks)); err != nil {
		k.T.Error(err)
	}
	return pause, err
}
