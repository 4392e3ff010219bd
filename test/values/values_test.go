package values_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/value"
)

var (
	wf    = kagzi.Define[int, int]("wf", kit.NoRetry)
	state = value.Define[string]("state")
	goOn  = kagzi.DefineSignal[string]("go on")
)

// get returns the state of the run, and its version.
func get(k *kit.Kit, run kagzi.Ref) (string, int64) {
	k.T.Helper()
	now, err := value.Get(k.Ctx, k.Client, run, state)
	if err != nil {
		k.T.Fatal(err)
	}
	return now.Value, now.Version
}

// waitFor waits until the state of the run is want.
func waitFor(k *kit.Kit, run kagzi.Ref, want string) (version int64) {
	k.T.Helper()
	ctx, cancel := context.WithTimeout(k.Ctx, await.Patience)
	defer cancel()
	for {
		now, err := value.Wait(ctx, k.Client, run, state, version)
		if err != nil {
			k.T.Fatalf("waiting for %q: %v", want, err)
		}
		if version = now.Version; now.Value == want {
			return version
		}
	}
}

// A run sets a value before each of its waits. Its executions replay that, and set nothing again.
func TestReplaysSetNothing(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		for _, s := range []string{"a", "b", "c"} {
			for _, s := range []string{"not " + s, s} {
				if err := value.Set(ctx, state, s); err != nil {
					return 0, err
				}
			}
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 0)
	for _, s := range []string{"a", "b", "c"} {
		version := waitFor(k, run, s)
		k.WaitStatus(run, kagzi.StatusSleeping)
		for range 2 { // executions that find nothing new
			k.Wake(run.ID())
			k.WaitStatus(run, kagzi.StatusSleeping)
		}
		if now, again := get(k, run); now != s || again != version {
			t.Errorf("%q in version %d after a replay, want %q in version %d", now, again, s, version)
		}
		k.Signal(run, goOn.With(""))
	}
	kit.ResultOf(k, run)
	if now, _ := get(k, run); now != "c" {
		t.Errorf("%q at the end", now)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'VALUE'`); n != 1 {
		t.Errorf("%d rows", n)
	}
	if err := w.Replay(k.Ctx, run.ID()); err != nil {
		t.Error(err)
	}
}

// Branches set the value. Each of them goes on where it was, whatever the others have set meanwhile.
func TestBranchesSetAValue(t *testing.T) {
	k := kit.New(t)
	first, second := kagzi.DefineSignal[string]("first"), kagzi.DefineSignal[string]("second")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		sets := func(s kagzi.Signal[string]) func(kagzi.Context) error {
			return func(ctx kagzi.Context) error {
				for n := 0; n < 3; n++ {
					to, err := kagzi.WaitSignal(ctx, s)
					if err != nil {
						return err
					}
					if err := value.Set(ctx, state, to); err != nil {
						return err
					}
				}
				return nil
			}
		}
		return 0, kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
			"first": sets(first), "second": sets(second),
		})
	})
	run := kit.Begin(k, wf, 0)
	for _, m := range []kagzi.Message{
		first.With("1"), first.With("2"), second.With("3"), first.With("4"), second.With("5"), second.With("6"),
	} {
		k.Signal(run, m)
		waitFor(k, run, m.Core().Payload.(string))
		if k.InfoOf(run).Status == kagzi.StatusCompleted {
			break
		}
		k.WaitStatus(run, kagzi.StatusSleeping)
		k.Wake(run.ID())
		k.WaitStatus(run, kagzi.StatusSleeping)
		if now, _ := get(k, run); now != m.Core().Payload {
			t.Errorf("%q after a replay, want %q", now, m.Core().Payload)
		}
	}
	kit.ResultOf(k, run)
}

// The loser of a race sets nothing.
func TestLoserSetsNothing(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"loser": func(ctx kagzi.Context) (int, error) {
				if err := value.Set(ctx, state, "of the loser"); err != nil {
					return 0, err
				}
				return 0, kagzi.Sleep(ctx, "long", time.Hour)
			},
			"winner": func(ctx kagzi.Context) (int, error) {
				if err := value.Set(ctx, state, "of the winner"); err != nil {
					return 0, err
				}
				_, err := kagzi.WaitSignal(ctx, goOn)
				return 0, err
			},
		})
		return 0, err
	})
	run := kit.Begin(k, wf, 0)
	k.WaitStatus(run, kagzi.StatusSleeping)
	if _, err := value.Get(k.Ctx, k.Client, run, state); !errors.Is(err, value.ErrNotSet) {
		t.Errorf("before the race is decided: %v", err)
	}
	k.Signal(run, goOn.With(""))
	kit.ResultOf(k, run)
	if now, _ := get(k, run); now != "of the winner" {
		t.Errorf("%q", now)
	}
}

// An attempt of the run sets its values anew, and so does a fork, which has the messages of its source.
func TestAttemptsAndForksSetAnew(t *testing.T) {
	k := kit.New(t)
	failed := make(chan bool, 1)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		if err := value.Set(ctx, state, "begun"); err != nil {
			return 0, err
		}
		err := kagzi.Do(ctx, "fails once", func(context.Context) error {
			select {
			case failed <- true:
				return kagzi.Permanent(errors.New("once"))
			default:
				return nil
			}
		})
		if err != nil {
			return 0, errors.Join(err, value.Set(ctx, state, "failed"))
		}
		_, err = kagzi.WaitSignal(ctx, goOn)
		return 0, errors.Join(err, value.Set(ctx, state, "done"))
	})
	run := kit.Begin(k, wf, 0)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if now, _ := get(k, run); now != "failed" {
		t.Errorf("%q after the failure", now)
	}
	k.Resume(run)
	waitFor(k, run, "begun")
	k.Signal(run, goOn.With(""))
	kit.ResultOf(k, run)
	if now, _ := get(k, run); now != "done" {
		t.Errorf("%q at the end", now)
	}
	fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "fails once")
	if err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, kit.Find(t, k.Client, wf, fork))
	if now, _ := get(k, fork); now != "done" {
		t.Errorf("%q at the end of the fork", now)
	}
}

// The code of a new version sets the value less often than the old one did.
func TestCodeThatSetsLess(t *testing.T) {
	k := kit.New(t)
	code := func(times int) func(kagzi.Context, int) (int, error) {
		return func(ctx kagzi.Context, _ int) (int, error) {
			for range times {
				if err := value.Set(ctx, state, "often"); err != nil {
					return 0, err
				}
			}
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
				return 0, err
			}
			if err := value.Set(ctx, state, "once"); err != nil {
				return 0, err
			}
			_, err := kagzi.WaitSignal(ctx, goOn)
			return 0, err
		}
	}
	stop := kit.Serve(k, wf, code(9))
	run := kit.Begin(k, wf, 0)
	waitFor(k, run, "often")
	k.WaitStatus(run, kagzi.StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, wf, code(1))
	k.Signal(run, goOn.With(""))
	waitFor(k, run, "once")
	k.Signal(run, goOn.With(""))
	kit.ResultOf(k, run)
}

// Code that takes long, and comes to no step meanwhile, does not hold a value up. A loop that sets it a thousand times
// leaves one row.
func TestValueBesideSlowCode(t *testing.T) {
	k := kit.New(t)
	open := make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		for range 1000 {
			if err := value.Set(ctx, state, "wrong"); err != nil {
				return 0, err
			}
		}
		if err := value.Set(ctx, state, "right"); err != nil {
			return 0, err
		}
		await.Opened(t, open)
		return 0, nil
	})
	run := kit.Begin(k, wf, 0)
	waitFor(k, run, "right")
	close(open)
	kit.ResultOf(k, run)
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'VALUE'`); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// The write of a value is lost, or its answer. Each step waits for the value before it: two values in a row may be one
// write.
func TestLostValue(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
		w := kit.NewWorker(t, l.Client(t, 5), kagzi.WorkerConfig{})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
			run := ctx.RunID()
			for _, s := range []string{"a", "b"} {
				if err := value.Set(ctx, state, s); err != nil {
					return 0, err
				}
				isSet := func(context.Context) error { waitFor(k, run, s); return nil }
				if err := kagzi.Do(ctx, s, isSet); err != nil {
					return 0, err
				}
			}
			_, err := kagzi.WaitSignal(ctx, goOn)
			return 0, err
		})
		drop := l.Lose(pgproxy.Nth(2, pgproxy.Contains("s.step_kind IN ('VALUE', 'CHECKPOINT')")))
		run := kit.Begin(k, wf, 0)
		kit.StartLocal(t, w)
		await.Receive(t, drop.Done())
		waitFor(k, run, "b")
		k.Signal(run, goOn.With(""))
		kit.ResultOf(k, run)
	})
}

// Bad calls get an error before anything is written, and those who wait hear of the end of the run.
func TestBadCallsAndEnds(t *testing.T) {
	k := kit.New(t)
	bad := value.Define[string]("a/b")
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		switch n {
		case 1:
			return 0, value.Set(ctx, bad, "")
		case 2:
			return 0, value.Set(ctx, value.Define[func()]("f"), func() {})
		}
		_, err := kagzi.WaitSignal(ctx, goOn)
		return 0, err
	})
	for n, want := range []string{1: "value name", 2: "set value"} {
		if want == "" {
			continue
		}
		err := kit.FailureOf(k, kit.Begin(k, wf, n), kagzi.StatusFailed)
		if err.Kind != kind.BadInput && err.Kind != kind.BadRequest || !strings.Contains(err.Message, want) {
			t.Errorf("%+v, want %q", err, want)
		}
	}
	run := kit.Begin(k, wf, 0)
	if _, err := value.Get(k.Ctx, k.Client, run, bad); err == nil || !strings.Contains(err.Error(), "value name") {
		t.Error(err)
	}
	if _, err := value.Get(k.Ctx, k.Client, kagzi.ID("none"), state); !errors.Is(err, kagzi.ErrNotFound) {
		t.Error(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := value.Wait(k.Ctx, k.Client, run, state, 0)
		waits <- err
	}()
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Cancel(run)
	var ended *kagzi.RunError
	if err := await.Receive(t, waits); !errors.Is(err, kagzi.ErrRunFinished) || !errors.As(err, &ended) ||
		ended.Status != kagzi.StatusCancelled {
		t.Error(err)
	}
}

// A run changes a value with each of many writes that it does not wait for.
func TestChangesThatShareAFlush(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		for i := range n {
			if err := value.Set(ctx, state, strings.Repeat("x", i)); err != nil {
				return 0, err
			}
			if err := kagzi.SetMetadata(ctx, "tag", kagzi.Metadata{"n": strings.Repeat("x", i)}); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	run := kit.Begin(k, wf, 50)
	kit.ResultOf(k, run)
	if now, _ := get(k, run); now != strings.Repeat("x", 49) {
		t.Errorf("%q", now)
	}
}
