package cli_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// A row of schedules next as JSON.
type fire struct {
	At                        time.Time
	Schedule, Workflow, Queue string
	Paused, Overdue, More     bool
	Error                     string
	Further                   int
	Last                      time.Time
}

// refuseTicks makes a pass of a coordinator whose interceptor refuses all ticks.
func refuseTicks(k *kit.Kit) {
	k.T.Helper()
	refuses := kagzi.Interceptor{Start: func(context.Context, []*kagzi.StartCall, func(context.Context) error) error {
		return errors.New("a start needs a tenant")
	}}
	co := kit.NewCoordinator(k.T, kit.NewClientWith(k.T, k.Pool,
		kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{refuses}}), kagzi.CoordinatorConfig{})
	if _, err := k.Fire(co); err == nil {
		k.T.Fatal("no tick was refused")
	}
}

func TestNextShowsWhatIsOverdueAndRefused(t *testing.T) {
	k, s := newShell(t)
	k.Schedule(kagzi.Schedule{Name: "late", Run: approve.With(1), Every: time.Hour})
	k.Schedule(kagzi.Schedule{Name: "often", Run: approve.With(1), Every: time.Minute})
	late := func(schedule string) {
		k.Missed(schedule, time.Hour)
		k.Exec(`UPDATE kagzi.schedules SET next_at = now() - interval '1 hour' WHERE name = $1`, schedule)
	}
	late("late")
	s.run("schedules next late").ok().prints("overdue").omits("refused")
	late("often")
	refuseTicks(k)
	s.run("schedules next").ok().prints("late", "refused: a start needs a tenant, tried again", "often",
		"refused: a start needs a tenant, tried again; and ")
	all := jsonOf[[]fire](s.run("schedules next late --until 10h --json").ok())
	if len(all) == 0 || !all[0].Overdue || all[0].Error != "a start needs a tenant" {
		t.Errorf("the ticks are %+v", all)
	}
	if i := slices.IndexFunc(all, func(f fire) bool { return f.Schedule == "late" && !f.Overdue }); i < 0 ||
		all[i].Error != "" {
		t.Errorf("the ticks to come are %+v", all)
	}
	s.run("schedules pause late").ok()
	s.run("schedules next late").ok().prints("paused")
}
