package cli_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestAPausedRunThatSleepsSaysSo(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	kit.Begin(k, approve, 1, kagzi.ID("p1"))
	k.WaitStatus(kagzi.ID("p1"), kagzi.StatusSleeping)
	s.run("runs pause p1 --actor bob --reason", "call him first").ok()
	s.run("runs get p1").ok().prints(`It waits for a message of the signal "approved"`, "It is also paused since ",
		` by bob ("call him first"): it does not go on before`, "kagzi runs unpause p1.")
	s.run("runs list").ok().prints("paused; signal approved")
	kit.Begin(k, approve, 1, kagzi.ID("p2"), kagzi.Queue("elsewhere"))
	s.run("runs pause p2").ok()
	s.run("runs get p2").ok().prints("kagzi runs unpause p2 lets it go on").omits("also")
	s.run("runs list --id p2").ok().prints("paused").omits("paused;")
}

func TestPausedRunsAreFound(t *testing.T) {
	k, s := newShell(t)
	for _, id := range []string{"p1", "p2", "p3"} {
		kit.Begin(k, approve, 1, kagzi.ID(id))
	}
	s.run("pauses").ok().says("Nothing is paused.")
	s.run("runs pause p1").ok()
	s.run("pauses").ok().says("No queue, workflow, key or group is paused.", "1 single run is paused: kagzi runs "+
		"list --paused")
	s.run("runs pause p2").ok()
	s.run("pause --queue shop").ok()
	s.run("pauses").ok().prints("queue shop").says("2 single runs are paused: kagzi runs list --paused")
	s.run("pauses --json").ok().prints("[")
	s.run("runs list --paused").ok().prints("p1", "p2").omits("p3")
	s.run("runs count --paused --by status").ok().prints("2  PENDING")
	s.run("health").exits(4).prints("Runs that are paused themselves: 2,", "kagzi runs list --paused lists them, "+
		"kagzi runs unpause --paused lets them go on.").omits("Each goes on")
	s.run("runs unpause --paused --dry-run").ok().prints("2 runs would be unpaused.").omits("p3")
	s.run("runs unpause --paused --yes").ok().prints("2 runs unpaused.")
	s.run("runs list --paused").ok().says("No run matches.")
}

func TestASecondPauseSaysWhatItReplaces(t *testing.T) {
	k, s := newShell(t)
	kit.Begin(k, approve, 1)
	s.run("pause --queue default --actor ada --reason", "provider down").ok().prints("paused queue default")
	s.run("pause --queue default").ok().prints("queue default was paused already, since ", ` by ada ("provider down")`).
		omits("replaced")
	s.run("pauses").ok().prints("ada", "provider down")
	s.run("pause --queue default --actor bob --reason maintenance").ok().prints("was paused already, since ",
		` by ada ("provider down"): reason and actor were replaced`)
	s.run("pauses").ok().prints("bob", "maintenance")
	if again := jsonOf[struct {
		Verb    string
		Target  admin.Target
		Already bool
	}](s.run("pause --queue default --json").ok()); !again.Already {
		t.Errorf("it is %+v", again)
	}
	if err := admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "default"}); err != nil {
		t.Fatal(err)
	}
	if all, err := admin.New(k.Client).Pauses.List(k.Ctx); err != nil || len(all) != 1 ||
		all[0].Reason != "maintenance" ||
		all[0].Actor != "bob" {
		t.Errorf("the pauses are %+v, %v", all, err)
	}
}
