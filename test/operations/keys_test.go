//go:build unix

package operations_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// Every way to start a run takes a key or a group, and a copy of the run keeps it.
func TestStartsWithAKey(t *testing.T) {
	k := kit.New(t)
	mail := kagzi.Define[string, string]("mail", kagzi.Group("mail"))
	report := kagzi.Define[string, string]("report", kagzi.Queue("reports"))
	check := func(what string, ref kagzi.Ref, key kagzi.Key, group kagzi.Group) {
		t.Helper()
		if got := k.InfoOf(ref); got.Key != key || got.Group != group {
			t.Errorf("%s: key %q, group %q; want %q, %q", what, got.Key, got.Group, key, group)
		}
	}
	check("Start", kit.Begin(k, report, "in", kagzi.Key("a"), kagzi.Key("tenant-7")), "tenant-7", "")
	check("Define", kit.Begin(k, mail, "in"), "", "mail")
	check("neither", kit.Begin(k, report, "in"), "", "")
	check("Message", kit.Begin(k, report, "in", kagzi.ID("x"), kagzi.Key("b"), kit.Approved.With("yes")), "b", "")
	many, err := k.Client.StartMany(k.Ctx, []kagzi.Call{report.With("in"), report.With("in", kagzi.Key("own"))},
		kagzi.Key("shared"))
	if err != nil {
		t.Fatal(err)
	}
	check("StartMany", many[0], "shared", "")
	check("a call of StartMany", many[1], "own", "")

	for name, call := range map[string]kagzi.Call{
		"keyed":   report.With("in", kagzi.Key("c")),
		"grouped": mail.With("in"), "plain": report.With("in"),
	} {
		s := kagzi.Schedule{Name: name, Every: time.Hour, Run: call}
		for range 2 { // the second one changes it
			if err := k.Client.Schedule(k.Ctx, s); err != nil {
				t.Fatal(err)
			}
			id, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			info, err := admin.New(k.Client).Schedules.Get(k.Ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			check("schedule "+name, id, info.Key, info.Group)
			if want := map[string][2]string{
				"keyed": {"c", ""}, "grouped": {"", "mail"},
				"plain": {},
			}[name]; info.Key != kagzi.Key(want[0]) || info.Group != kagzi.Group(want[1]) {
				t.Errorf("schedule %s: %+v", name, info)
			}
		}
	}

	ended := kit.Begin(k, report, "in", kagzi.Key("d"))
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, ended); err != nil {
		t.Fatal(err)
	}
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, ended)
	if err != nil {
		t.Fatal(err)
	}
	check("Restart", again, "d", "")
	for name, f := range map[string]kagzi.RunFilter{
		"Key": {Key: "d"}, "Queue": {Key: "d", Queue: "reports"},
		"Status": {Key: "d", Status: []kagzi.Status{kagzi.StatusPending, kagzi.StatusCancelled}},
	} {
		if got, err := k.Client.List(k.Ctx, f); err != nil || len(got) != 2 {
			t.Errorf("%s: %d runs, %v", name, len(got), err)
		}
	}
	if got, err := k.Client.List(k.Ctx, kagzi.RunFilter{Group: "mail"}); err != nil || len(got) != 3 {
		t.Errorf("%d runs of the group, %v", len(got), err)
	}
	if got, err := k.Client.List(k.Ctx, kagzi.RunFilter{Key: "mail"}); err != nil || len(got) != 0 {
		t.Errorf("%d runs have the group as a key, %v", len(got), err)
	}
	if got, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{Key: "d"}); err != nil ||
		!slices.Equal(got.Changed, []kagzi.RunID{again}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A child has the key that it is given, and not its parent's.
func TestChildrenWithAKey(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[string, string]("child")
	parent := kagzi.Define[int, string]("parent", kagzi.Queue("default"))
	kit.Serve(k, parent, func(ctx kagzi.Context, _ int) (string, error) {
		for name, opts := range map[string][]kagzi.StartOption{
			"plain": nil, "keyed": {kagzi.Key("a")},
			"grouped": {kagzi.Group("g"), kagzi.Queue("other")},
		} {
			if _, err := kagzi.StartChild(ctx, name, child, "in", append(opts, kagzi.Detached())...); err != nil {
				return "", err
			}
		}
		kagzi.Compensate(ctx, "undo", child.With("in", kagzi.Key("a")))
		return "done", nil
	})
	run := kit.Begin(k, parent, 1)
	_, err := run.Result(k.Ctx)
	kit.MustContain(t, err, "a compensation takes no Key: it would wait for a slot that its run may hold")
	for step, want := range map[string]kagzi.RunInfo{"plain": {}, "keyed": {Key: "a"}, "grouped": {Group: "g"}} {
		if got := k.ChildOf(run.ID(), step); got.Key != want.Key || got.Group != want.Group {
			t.Errorf("child %s has key %q and group %q", step, got.Key, got.Group)
		}
	}
}
