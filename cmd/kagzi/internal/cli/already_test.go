package cli_test

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestChangesOfWhatIsSoAlready(t *testing.T) {
	k, s := newShell(t)
	k.Schedule(kagzi.Schedule{Name: "nightly", Run: approve.With(1), Cron: "0 3 * * *"})
	s.run("schedules pause nightly --actor ada --reason moves").ok().prints("paused nightly")
	s.run("schedules pause nightly").ok().prints("nightly was paused already")
	s.run("schedules pause nightly --json").ok().prints(`"already": true`)
	s.run("schedules list").ok().prints(`paused by ada ("moves")`)
	s.run("schedules resume nightly").ok().prints("resumed nightly")
	s.run("schedules resume nightly").ok().prints("nightly was not paused").omits("resumed")

	kit.Begin(k, approve, 1, kagzi.ID("order-1"))
	s.run("runs unpause order-1").ok().prints("order-1 was not paused itself\n")
	s.run("runs pause order-1").ok()
	s.run("runs unpause order-1").ok().prints("unpaused order-1\n")
}

func TestAdviceIsOfCommands(t *testing.T) {
	k, s := newShell(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	kit.Serve(k, checkout, func(ctx kagzi.Context, _ int) (string, error) {
		return "", kagzi.Do(ctx, "charge", func(context.Context) error {
			close(begun)
			await.Opened(t, goOn)
			return nil
		})
	})
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) {
		return kagzi.WaitSignal(ctx, approved, kagzi.Timeout(time.Hour))
	})
	kit.Begin(k, checkout, 1, kagzi.ID("busy"))
	await.Receive(t, begun)
	s.run("runs update busy --set-queue slow").exits(1).says("kagzi runs pause,", "kagzi runs unpause\n")
	close(goOn)
	kit.Begin(k, approve, 1, kagzi.ID("sleeper"))
	k.WaitStatus(kagzi.ID("sleeper"), kagzi.StatusSleeping)
	s.run("runs update sleeper --set-delay 1h").exits(1).says("leave --set-at and --set-delay out")
	if r := s.run("runs signal sleeper aproved").ok().prints("sent aproved to sleeper"); r.err !=
		"sleeper waits for \"approved\": it reads \"aproved\" if it waits for that later.\n" {
		t.Errorf("it says %q", r.err)
	}
	if r := s.run("runs signal sleeper approved").ok(); r.err != "" {
		t.Errorf("it says %q", r.err)
	}
}
