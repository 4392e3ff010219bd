package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// TestSignalWhileBusy sends messages to a run that stays in memory because another of its branches executes a step, which
// goes on only once they are read.
func TestSignalWhileBusy(t *testing.T) {
	t.Parallel()
	busy := func(begun chan<- RunID) func(Context, struct{}) (string, error) {
		return func(ctx Context, _ struct{}) (string, error) {
			open := make(chan struct{})
			f := Go(ctx, "busy", func(ctx Context) (string, error) {
				return Step(ctx, "s", func(context.Context) (string, error) {
					begun <- ctx.RunID()
					<-open
					return "done", nil
				})
			})
			got, err := reading(2, approved)(ctx, struct{}{})
			if err != nil {
				return "", err
			}
			close(open)
			s, err := f.Result(ctx)
			return got + " " + s, err
		}
	}
	t.Run("Told", func(t *testing.T) {
		k := newKit(t)
		wf, begun := Define[struct{}, string]("wf"), make(chan RunID, 1)
		serveWith(k, told, wf, busy(begun))
		run := begin(k, wf, struct{}{}, approved.With("a"))
		k.signal(receive(t, begun), approved.With("b"))
		if got := resultOf(k, run); got != "a b done" {
			t.Errorf("got %q", got)
		}
	})
	// The worker is told before it has the run, and after the claim has read the row.
	t.Run("ToldBetweenClaimAndExecution", func(t *testing.T) {
		k := newKit(t)
		wf, begun := Define[struct{}, string]("wf"), make(chan RunID, 1)
		w := newTestWorker(t, k.c, told)
		Handle(w, wf, busy(begun))
		run := begin(k, wf, struct{}{}, ID("x"))
		var sent atomic.Bool
		failpoint(t, w, func(point string, _ uuid.UUID) {
			if point == "after claim" && sent.CompareAndSwap(false, true) {
				k.signal(ID("x"), approved.With("a"))
				k.signal(ID("x"), approved.With("b"))
			}
		})
		startWorker(t, w)
		if got := resultOf(k, run); got != "a b done" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("NotTold", func(t *testing.T) {
		k := newKit(t)
		wf, begun := Define[struct{}, string]("wf"), make(chan RunID, 1)
		serveWith(k, WorkerConfig{Heartbeat: 100 * time.Millisecond, PollInterval: 50 * time.Millisecond}, wf, busy(begun))
		run := begin(k, wf, struct{}{}, approved.With("a"))
		k.signalQuietly(receive(t, begun), "b")
		if got := resultOf(k, run); got != "a b done" {
			t.Errorf("got %q", got)
		}
	})
}

// signalQuietly stores an approval of which nobody is told.
func (k *kit) signalQuietly(run RunID, v string) {
	k.t.Helper()
	m := store.Message{RunID: uuid.MustParse(string(run)), Name: "approved", ID: v, Payload: []byte(`"` + v + `"`)}
	if _, err := store.New(k.pool, "default").Signal(k.ctx, nil, m); err != nil {
		k.t.Fatal(err)
	}
}

func TestSignalWithoutNotification(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	serveWith(k, WorkerConfig{PollInterval: 50 * time.Millisecond}, wf, reading(3, approved))
	run := begin(k, wf, struct{}{})
	for i := range 3 {
		k.waitStatus(run.ID(), StatusSleeping)
		k.signalQuietly(run.ID(), fmt.Sprint(i))
		waitFor(t, "the message is read", func() bool { return k.count(unread) == 0 })
	}
	if got := resultOf(k, run); got != "0 1 2" {
		t.Errorf("got %q", got)
	}
}

// TestSignalToASuspendingRun sends a message at each suspension of a run, after the run has looked for the last time and
// before it sleeps.
func TestSignalToASuspendingRun(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	w := newTestWorker(t, k.c, told)
	Handle(w, wf, reading(5, approved))
	var n atomic.Int64
	failpoint(t, w, func(point string, run uuid.UUID) {
		if point == "suspend" {
			k.signal(RunID(run.String()), approved.With(fmt.Sprint(n.Add(1))))
		}
	})
	startWorker(t, w)
	if got := resultOf(k, begin(k, wf, struct{}{})); got != "1 2 3 4 5" {
		t.Errorf("got %q", got)
	}
}

// waits is a branch that reads one message.
func waits(s Signal[string]) func(Context) (string, error) {
	return func(ctx Context) (string, error) { return WaitSignal(ctx, s) }
}

func TestRaceForSignals(t *testing.T) {
	t.Parallel()
	// both races for two messages, and reads the loser's afterwards.
	both := func(ctx Context, _ struct{}) (string, error) {
		signals := map[string]Signal[string]{"a": approved, "r": rejected}
		winner, v, err := Race(ctx, "race", map[string]func(Context) (string, error){"a": waits(approved), "r": waits(rejected)})
		if err != nil {
			return "", err
		}
		delete(signals, winner)
		for name, s := range signals {
			other, err := WaitSignal(ctx, s)
			if err != nil {
				return "", err
			}
			if err := Sleep(ctx, "long", time.Hour); err != nil {
				return "", err
			}
			return fmt.Sprint(winner, "=", v, " ", name, "=", other), nil
		}
		return "", nil
	}
	right := func(got string) bool { return got == "a=yes r=no" || got == "r=no a=yes" }
	t.Run("TheLoserReadsNothing", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serve(k, wf, both)
		var runs []*Run[string]
		for range 20 {
			runs = append(runs, begin(k, wf, struct{}{}, approved.With("yes"), rejected.With("no")))
		}
		for _, run := range runs {
			k.waitStatus(run.ID(), StatusSleeping)
			k.forward(run.ID())
			if got := resultOf(k, run); !right(got) {
				t.Errorf("got %q", got)
			}
		}
		if n := k.count(unread); n != 0 {
			t.Errorf("%d messages are unread", n)
		}
	})
	t.Run("TheWinnerStaysInAReplay", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		_, stop := serveWith(k, WorkerConfig{}, wf, both)
		run := begin(k, wf, struct{}{})
		k.waitStatus(run.ID(), StatusSleeping)
		k.signal(run.ID(), rejected.With("no"))
		waitFor(t, "the race is won", func() bool { return len(k.steps(run.ID())["race"]) == 1 })
		k.waitStatus(run.ID(), StatusSleeping)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		k.signal(run.ID(), approved.With("yes"))
		serveWith(k, WorkerConfig{}, wf, both)
		waitFor(t, "the loser's message is read", func() bool { return k.count(unread) == 0 })
		k.waitStatus(run.ID(), StatusSleeping)
		k.forward(run.ID())
		if got := resultOf(k, run); got != "r=no a=yes" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("AgainstASleep", func(t *testing.T) {
		k := newKit(t)
		wf := Define[time.Duration, string]("wf")
		serve(k, wf, func(ctx Context, d time.Duration) (string, error) {
			winner, v, err := Race(ctx, "race", map[string]func(Context) (string, error){
				"message": waits(approved),
				"time":    func(ctx Context) (string, error) { return "over", Sleep(ctx, "nap", d) },
			})
			if err != nil || winner == "message" {
				return v, err
			}
			if err := Do(ctx, "lost", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			late, err := WaitSignal(ctx, approved)
			return v + " " + late, err
		})
		inTime := begin(k, wf, time.Hour)
		k.waitStatus(inTime.ID(), StatusSleeping)
		k.signal(inTime.ID(), approved.With("a"))
		if got := resultOf(k, inTime); got != "a" {
			t.Errorf("got %q", got)
		}
		late := begin(k, wf, 300*time.Millisecond)
		waitFor(t, "the time is over", func() bool { return len(k.steps(late.ID())["lost"]) == 1 })
		k.signal(late.ID(), approved.With("b"))
		if got := resultOf(k, late); got != "over b" {
			t.Errorf("got %q", got)
		}
	})
	// A branch that has failed while the race goes on has not lost it yet, and may: what it read is not marked.
	t.Run("AFailedBranchWhileTheRaceGoesOn", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serveWith(k, told, wf, func(ctx Context, _ struct{}) (string, error) {
			_, v, err := Race(ctx, "race", map[string]func(Context) (string, error){
				"fails": func(ctx Context) (string, error) {
					if _, err := WaitSignal(ctx, approved); err != nil {
						return "", err
					}
					return "", errors.New("no")
				},
				"r": waits(rejected),
			})
			if err != nil {
				return "", err
			}
			again, err := WaitSignal(ctx, approved)
			return v + " " + again, err
		})
		run := begin(k, wf, struct{}{}, approved.With("a"))
		k.waitStatus(run.ID(), StatusSleeping)
		if n := k.count(unread); n != 1 {
			t.Errorf("%d messages are unread, want the one", n)
		}
		k.signal(run.ID(), rejected.With("r"))
		if got := resultOf(k, run); got != "r a" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("OfTwoForOneMessage", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
			_, a, err := Race(ctx, "race", map[string]func(Context) (string, error){"one": waits(approved), "two": waits(approved)})
			if err != nil {
				return "", err
			}
			b, err := WaitSignal(ctx, approved)
			return a + b, err
		})
		for range 10 {
			got := resultOf(k, begin(k, wf, struct{}{}, approved.With("1"), approved.With("2")))
			if got != "12" && got != "21" { // the loser's is read after the winner's, whichever that was
				t.Errorf("got %q", got)
			}
		}
	})
	t.Run("InParallelEachReadsItsOwn", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, int]("wf")
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			items := []string{"a", "b", "c", "d"}
			got, err := Map(ctx, "map", items, func(ctx Context, _ string) (string, error) {
				v, err := WaitSignal(ctx, approved)
				return v, errors.Join(err, Sleep(ctx, "nap", 250*time.Millisecond))
			})
			seen := map[string]bool{}
			for _, v := range got {
				seen[v] = true
			}
			return len(seen), err
		})
		run := begin(k, wf, struct{}{}, approved.With("1"), approved.With("2"))
		k.waitStatus(run.ID(), StatusSleeping)
		k.signal(run.ID(), approved.With("3"))
		k.signal(run.ID(), approved.With("4"))
		if got := resultOf(k, run); got != 4 {
			t.Errorf("%d messages, want 4", got)
		}
	})
}
