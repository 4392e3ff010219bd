package operations_test

import (
	"math"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// The largest Limit means all rows, in every list.
func TestLargestLimit(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kit.Report, "")
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "other"}, kit.Travel, func(kagzi.Context, int) (int, error) {
		return 0, nil
	})
	k.Signal(run.ID(), kagzi.DefineSignal[int]("s").With(1))
	k.Schedule(kagzi.Schedule{Name: "s", Cron: "@daily"})
	if err := admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{Name: "l", MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the worker registers", func() bool {
		workers, _, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{})
		return len(workers) == 1 || err != nil
	})
	for _, most := range []int{math.MaxInt, math.MaxInt32} {
		for name, list := range map[string]func() (int, error){
			"List": func() (int, error) { return length(k.Client.List(k.Ctx, kagzi.RunFilter{Limit: most})) },
			"Audit": func() (int, error) {
				return length(admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{Limit: most, Kind: admin.AuditLimit}))
			},
			"Messages.List": func() (int, error) {
				return length(admin.New(k.Client).Messages.List(k.Ctx, run.ID(), admin.MessageFilter{Limit: most}))
			},
			"Schedules.List": func() (int, error) {
				return length(admin.New(k.Client).Schedules.List(k.Ctx, admin.ScheduleFilter{Limit: most}))
			},
			"Limits.List": func() (int, error) { return length(admin.New(k.Client).Limits.List(k.Ctx, "", most)) },
			"Workers.List": func() (int, error) {
				workers, _, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{Limit: most})
				return len(workers), err
			},
			"Runs.CancelAll": func() (int, error) {
				f := kagzi.RunFilter{Workflow: "report", Limit: most}
				out, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, f, admin.DryRun())
				return len(out.Changed), err
			},
		} {
			if n, err := list(); n != 1 || err != nil {
				t.Errorf("%s up to %d: %d rows, %v", name, most, n, err)
			}
		}
	}
}

func length[T any](rows []T, err error) (int, error) { return len(rows), err }
