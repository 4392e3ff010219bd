package cli_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestAPausedRunThatSleepsSaysSo(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	kit.Begin(k, approve, 1, kagzi.ID("p1"))
	k.WaitStatus(kagzi.ID("p1"), kagzi.StatusSleeping)
	s.run("runs pause p1 --actor bob --reason", "call him first").ok()
	s.run("runs get p1").ok().prints(`It waits for a message of the signal "approved"`, "It is also paused since ", ` by bob ("call him first"): it does not go on before`, "kagzi runs unpause p1.")
	s.run("runs list").ok().prints("paused; signal approved")
	kit.Begin(k, approve, 1, kagzi.ID("p2"), kagzi.Queue("elsewhere"))
	s.run("runs pause p2").ok()
	s.run("runs get p2").ok().prints("kagzi runs unpause p2 lets it go on").omits("also")
	s.run("runs list --id p2").ok().prints("paused").omits("paused;")
}
