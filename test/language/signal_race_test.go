package language_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store"
)

// TestSignalWhileBusy sends messages to a run that stays in memory because another of its branches executes a step,
// which continues only once they are read.
func TestSignalWhileBusy(t *testing.T) {
	t.Parallel()
	busy := func(begun chan<- kagzi.RunID) func(kagzi.Context, struct{}) (string, error) {
		return func(ctx kagzi.Context, _ struct{}) (string, error) {
			open := make(chan struct{})
			f := kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (string, error) {
				return kagzi.Step(ctx, "s", func(context.Context) (string, error) {
					begun <- ctx.RunID()
					await.Opened(t, open)
					return "done", nil
				})
			})
			got, err := reading(2, kit.Approved)(ctx, struct{}{})
			if err != nil {
				return "", err
			}
			close(open)
			s, err := f.Result(ctx)
			return got + " " + s, err
		}
	}
	t.Run("Told", func(t *testing.T) {
		k := kit.New(t)
		wf, begun := kagzi.Define[struct{}, string]("wf"), make(chan kagzi.RunID, 1)
		kit.ServeWith(k, kit.NotifiedOnly, wf, busy(begun))
		run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("a"))
		k.Signal(await.Receive(t, begun), kit.Approved.With("b"))
		if got := kit.ResultOf(k, run); got != "a b done" {
			t.Errorf("got %q", got)
		}
	})
	// The notification reaches the worker after the claim has read the row, and before the worker has the run.
	t.Run("NotifiedBetweenClaimAndExecution", func(t *testing.T) {
		k := kit.New(t)
		wf, begun := kagzi.Define[struct{}, string]("wf"), make(chan kagzi.RunID, 1)
		w := kit.NewWorker(t, k.Client, kit.NotifiedOnly)
		kagzi.Handle(w, wf, busy(begun))
		run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"))
		var sent atomic.Bool
		kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
			if point == "after claim" && sent.CompareAndSwap(false, true) {
				k.Signal(kagzi.ID("x"), kit.Approved.With("a"))
				k.Signal(kagzi.ID("x"), kit.Approved.With("b"))
			}
		})
		kit.StartWorker(t, w)
		if got := kit.ResultOf(k, run); got != "a b done" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("NotTold", func(t *testing.T) {
		k := kit.New(t)
		wf, begun := kagzi.Define[struct{}, string]("wf"), make(chan kagzi.RunID, 1)
		kit.ServeWith(k, kagzi.WorkerConfig{Heartbeat: 100 * time.Millisecond, PollInterval: 50 * time.Millisecond}, wf,
			busy(begun))
		run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("a"))
		signalQuietly(k, await.Receive(t, begun), "b")
		if got := kit.ResultOf(k, run); got != "a b done" {
			t.Errorf("got %q", got)
		}
	})
}

// signalQuietly stores an approval without a notification.
func signalQuietly(k *kit.Kit, run kagzi.RunID, v string) {
	k.T.Helper()
	m := store.Message{RunID: uuid.MustParse(string(run)), Name: "approved", ID: v, Payload: []byte(`"` + v + `"`)}
	if _, err := store.New(k.Pool, "default").Messages.Send(k.Ctx, nil, m); err != nil {
		k.T.Fatal(err)
	}
}

func TestSignalWithoutNotification(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	kit.ServeWith(k, kagzi.WorkerConfig{PollInterval: 50 * time.Millisecond}, wf, reading(3, kit.Approved))
	run := kit.Begin(k, wf, struct{}{})
	for i := range 3 {
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		signalQuietly(k, run.ID(), fmt.Sprint(i))
		await.True(t, "the message is read", func() bool { return k.Count(unread) == 0 })
	}
	if got := kit.ResultOf(k, run); got != "0 1 2" {
		t.Errorf("got %q", got)
	}
}

// TestSignalToASuspendingRun sends a message at each suspension of a run, after the run has read its inbox for the last
// time and before it sleeps.
func TestSignalToASuspendingRun(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	w := kit.NewWorker(t, k.Client, kit.NotifiedOnly)
	kagzi.Handle(w, wf, reading(5, kit.Approved))
	var n atomic.Int64
	kit.Failpoint(t, w, func(point string, run uuid.UUID) {
		if point == "suspend" {
			k.Signal(kagzi.RunID(run.String()), kit.Approved.With(fmt.Sprint(n.Add(1))))
		}
	})
	kit.StartWorker(t, w)
	if got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{})); got != "1 2 3 4 5" {
		t.Errorf("got %q", got)
	}
}

// waits is a branch that reads one message.
func waits(s kagzi.Signal[string]) func(kagzi.Context) (string, error) {
	return func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, s) }
}

func TestRaceForSignals(t *testing.T) {
	t.Parallel()
	// both races for two messages, and reads the loser's afterwards.
	both := func(ctx kagzi.Context, _ struct{}) (string, error) {
		signals := map[string]kagzi.Signal[string]{"a": kit.Approved, "r": kit.Rejected}
		winner, v, err := kagzi.Race(ctx, "race",
			map[string]func(kagzi.Context) (string, error){"a": waits(kit.Approved), "r": waits(kit.Rejected)})
		if err != nil {
			return "", err
		}
		delete(signals, winner)
		for name, s := range signals {
			other, err := kagzi.WaitSignal(ctx, s)
			if err != nil {
				return "", err
			}
			if err := kagzi.Sleep(ctx, "long", time.Hour); err != nil {
				return "", err
			}
			return fmt.Sprint(winner, "=", v, " ", name, "=", other), nil
		}
		return "", nil
	}
	right := func(got string) bool { return got == "a=yes r=no" || got == "r=no a=yes" }
	t.Run("TheLoserReadsNothing", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.Serve(k, wf, both)
		var runs []*kagzi.Run[string]
		for range 20 {
			runs = append(runs, kit.Begin(k, wf, struct{}{}, kit.Approved.With("yes"), kit.Rejected.With("no")))
		}
		for _, run := range runs {
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			k.Forward(run.ID())
			if got := kit.ResultOf(k, run); !right(got) {
				t.Errorf("got %q", got)
			}
		}
		if n := k.Count(unread); n != 0 {
			t.Errorf("%d messages are unread", n)
		}
	})
	t.Run("TheWinnerStaysInAReplay", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		_, stop := kit.ServeWith(k, kagzi.WorkerConfig{}, wf, both)
		run := kit.Begin(k, wf, struct{}{})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		k.Signal(run.ID(), kit.Rejected.With("no"))
		await.True(t, "the race is won", func() bool { return len(k.Steps(run.ID())["race"]) == 1 })
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		k.Signal(run.ID(), kit.Approved.With("yes"))
		kit.ServeWith(k, kagzi.WorkerConfig{}, wf, both)
		await.True(t, "the loser's message is read", func() bool { return k.Count(unread) == 0 })
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		k.Forward(run.ID())
		if got := kit.ResultOf(k, run); got != "r=no a=yes" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("AgainstASleep", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[time.Duration, string]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, d time.Duration) (string, error) {
			winner, v, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
				"message": waits(kit.Approved),
				"time":    func(ctx kagzi.Context) (string, error) { return "over", kagzi.Sleep(ctx, "nap", d) },
			})
			if err != nil || winner == "message" {
				return v, err
			}
			if err := kagzi.Do(ctx, "lost", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			late, err := kagzi.WaitSignal(ctx, kit.Approved)
			return v + " " + late, err
		})
		inTime := kit.Begin(k, wf, time.Hour)
		k.WaitStatus(inTime.ID(), kagzi.StatusSleeping)
		k.Signal(inTime.ID(), kit.Approved.With("a"))
		if got := kit.ResultOf(k, inTime); got != "a" {
			t.Errorf("got %q", got)
		}
		late := kit.Begin(k, wf, 300*time.Millisecond)
		await.True(t, "the time is over", func() bool { return len(k.Steps(late.ID())["lost"]) == 1 })
		k.Signal(late.ID(), kit.Approved.With("b"))
		if got := kit.ResultOf(k, late); got != "over b" {
			t.Errorf("got %q", got)
		}
	})
	// A branch that has failed before the race is decided may still lose it: its messages are not marked as consumed.
	t.Run("AFailedBranchWhileTheRaceGoesOn", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			_, v, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
				"fails": func(ctx kagzi.Context) (string, error) {
					if _, err := kagzi.WaitSignal(ctx, kit.Approved); err != nil {
						return "", err
					}
					return "", errors.New("no")
				},
				"r": waits(kit.Rejected),
			})
			if err != nil {
				return "", err
			}
			again, err := kagzi.WaitSignal(ctx, kit.Approved)
			return v + " " + again, err
		})
		run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("a"))
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		if n := k.Count(unread); n != 1 {
			t.Errorf("%d messages are unread, want the one", n)
		}
		k.Signal(run.ID(), kit.Rejected.With("r"))
		if got := kit.ResultOf(k, run); got != "r a" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("OfTwoForOneMessage", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			_, a, err := kagzi.Race(ctx, "race",
				map[string]func(kagzi.Context) (string, error){"one": waits(kit.Approved), "two": waits(kit.Approved)})
			if err != nil {
				return "", err
			}
			b, err := kagzi.WaitSignal(ctx, kit.Approved)
			return a + b, err
		})
		for range 10 {
			got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{}, kit.Approved.With("1"), kit.Approved.With("2")))
			if got != "12" && got != "21" { // the loser's is read after the winner's, whichever that was
				t.Errorf("got %q", got)
			}
		}
	})
	t.Run("InParallelEachReadsItsOwn", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			items := []string{"a", "b", "c", "d"}
			got, err := kagzi.Map(ctx, "map", items, func(ctx kagzi.Context, _ string) (string, error) {
				v, err := kagzi.WaitSignal(ctx, kit.Approved)
				return v, errors.Join(err, kagzi.Sleep(ctx, "nap", 250*time.Millisecond))
			})
			seen := map[string]bool{}
			for _, v := range got {
				seen[v] = true
			}
			return len(seen), err
		})
		run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("1"), kit.Approved.With("2"))
		k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		k.Signal(run.ID(), kit.Approved.With("3"))
		k.Signal(run.ID(), kit.Approved.With("4"))
		if got := kit.ResultOf(k, run); got != 4 {
			t.Errorf("%d messages, want 4", got)
		}
	})
}
