package schedules_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A paused schedule says since when, by whom and why, until it is resumed. A second pause adds what it gives, and a
// change of the schedule keeps it.
func TestWhoPausedASchedule(t *testing.T) {
	k := kit.New(t)
	s := kagzi.Schedule{Name: "s", Every: time.Hour, Run: kagzi.Define[int, int]("wf").With(1)}
	change := func() error { return k.Client.Schedule(k.Ctx, s) }
	pause := func(opts ...kagzi.ChangeOption) func() error {
		return func() error { return admin.New(k.Client).Schedules.Pause(k.Ctx, "s", opts...) }
	}
	var since time.Time
	for i, step := range []struct {
		do            func() error
		paused        bool
		actor, reason string
	}{
		{change, false, "", ""},
		{pause(kagzi.Actor("ada")), true, "ada", ""},
		{pause(), true, "ada", ""},
		{pause(kagzi.Reason("moves")), true, "ada", "moves"},
		{change, true, "ada", "moves"},
		{func() error { return admin.New(k.Client).Schedules.Resume(k.Ctx, "s") }, false, "", ""},
		{pause(), true, "", ""},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		info, err := admin.New(k.Client).Schedules.Get(k.Ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		if info.Paused != step.paused || info.PausedAt.IsZero() == step.paused || info.PauseActor != step.actor ||
			info.PauseReason != step.reason {
			t.Errorf("%d: paused %t at %v by %q because %q", i, info.Paused, info.PausedAt, info.PauseActor,
				info.PauseReason)
		}
		if i == 1 {
			since = info.PausedAt
		}
		if i > 1 && i < 5 && !info.PausedAt.Equal(since) {
			t.Errorf("%d: the pause of %v has become one of %v", i, since, info.PausedAt)
		}
	}
}
