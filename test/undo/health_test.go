package undo_test

import (
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// Health shows a run of which a compensation failed for good until it is resumed. A parent that fails with the same
// kind because of it, and is compensated itself, does not count.
func TestHealthShowsFailedCompensations(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	parent := kagzi.Define[int, int]("parent", kit.NoRetry)
	serveParent := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(serveParent, parent, func(ctx kagzi.Context, n int) (int, error) {
		kagzi.Compensate(ctx, "other", kit.CancelBooking.With("other"))
		return kagzi.RunChild(ctx, "trip", kit.Travel, n)
	})
	kit.StartWorker(t, serveParent)
	compensations := func() (health.Check, bool) {
		t.Helper()
		r, err := admin.New(k.Client).Health(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Checks {
			if c.Name == "compensations" {
				return c, true
			}
		}
		return health.Check{}, false
	}
	run, open := beginClosed(k, j, "hotel7", kagzi.Permanent(errors.New("the hotel is closed")))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	above := kit.Begin(k, parent, 7)
	if re := kit.FailureOf(k, above, kagzi.StatusFailed); re.Kind != kind.Compensation {
		t.Fatalf("INVALID: the parent ended with %v", re)
	}
	c, _ := compensations()
	kit.MustContain(t, errors.New(c.Detail), "A compensation failed for good in 2 runs", "resume the run",
		string(run.ID())+" (trip, hotel#compensation)")
	if c.Status != health.Degraded {
		t.Errorf("it is %s", c.Status)
	}
	children, err := k.Client.List(k.Ctx, kagzi.RunFilter{Parent: above.ID(), Workflow: kit.Travel.Name()})
	if err != nil || len(children) != 1 {
		t.Fatalf("children %+v, %v", children, err)
	}
	open()
	for _, id := range []kagzi.RunID{run.ID(), children[0].ID} {
		k.Resume(id)
		k.WaitStatus(id, kagzi.StatusFailed)
	}
	if c, shown := compensations(); shown {
		t.Errorf("after Resume: %+v", c)
	}
}
