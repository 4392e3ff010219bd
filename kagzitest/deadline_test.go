package kagzitest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

// A run ends at its deadline even if no worker of the test has code for it.
func TestADeadlinePassesWithoutAWorker(t *testing.T) {
	t.Parallel()
	elsewhere := kagzi.Define[string, string]("elsewhere", kagzi.Queue("of somebody else"), kagzi.Timeout(2*day))
	wantDeadline := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, kind.Deadline) {
			t.Errorf("error %v, want one of kind deadline", err)
		}
	}

	t.Run("Advance", func(t *testing.T) {
		t.Parallel()
		env := kagzitest.New(t)
		kagzi.Handle(env.Worker, trial, threeMonths)
		run := kagzitest.Start(env, elsewhere, "")
		version := kagzitest.Start(env, trial, "", kagzi.Version(9), kagzi.Timeout(day))
		env.Advance(day - time.Minute)
		mustEqual(t, "status after a day", infoOf(t, env, version.ID()).Status, kagzi.StatusPending)
		env.Advance(2 * time.Minute)
		mustEqual(t, "status of a version without code", infoOf(t, env, version.ID()).Status, kagzi.StatusFailed)
		mustEqual(t, "status after a day", infoOf(t, env, run.ID()).Status, kagzi.StatusPending)
		env.Advance(day)
		info := infoOf(t, env, run.ID())
		mustEqual(t, "kind", info.Kind, kind.Deadline)
		if late := info.EndedAt.Sub(info.DeadlineAt); late < 0 || late > time.Minute {
			t.Errorf("ended %v after its deadline", late)
		}
	})

	t.Run("Skip", func(t *testing.T) {
		t.Parallel()
		env := kagzitest.New(t)
		kagzi.Handle(env.Worker, trial, threeMonths)
		run := kagzitest.Start(env, elsewhere, "")
		mustEqual(t, "skipped", env.Skip(run.ID()).Round(time.Hour), 2*day)
		_, err := kagzitest.Result(env, run)
		wantDeadline(t, err)
	})

	t.Run("AChild", func(t *testing.T) {
		t.Parallel()
		env := kagzitest.New(t)
		kagzi.Handle(env.Worker, trial, func(ctx kagzi.Context, in string) (string, error) {
			return kagzi.RunChild(ctx, "child", elsewhere, in)
		})
		_, err := kagzitest.Result(env, kagzitest.Start(env, trial, ""))
		wantDeadline(t, err)
	})

	t.Run("WithoutACoordinator", func(t *testing.T) {
		t.Parallel()
		env := kagzitest.New(t, kagzitest.Config{Worker: kagzi.WorkerConfig{NoCoordinator: true}})
		kagzi.Handle(env.Worker, trial, threeMonths)
		run := kagzitest.Start(env, elsewhere, "")
		env.Advance(3 * day)
		mustEqual(t, "status", infoOf(t, env, run.ID()).Status, kagzi.StatusPending)
	})
}
