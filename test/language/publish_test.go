package language_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

var told = topic.Define[string]("told")

// wantTold compares the payloads of the topic's events, in their order, with want.
func wantTold(k *kit.Kit, want ...string) {
	k.T.Helper()
	var got []string
	for e, err := range topic.Events(k.Ctx, k.Client, told, 0) {
		if err != nil {
			k.T.Fatal(err)
		}
		got = append(got, e.Payload)
	}
	if !slices.Equal(got, want) {
		k.T.Errorf("the events are %q, want %q", got, want)
	}
}

func tell(ctx kagzi.Context, words ...string) error {
	var events []topic.NewEvent
	for _, w := range words {
		events = append(events, told.With(w))
	}
	return topic.Publish(ctx, "tell", events...)
}

// Executions that pass the record publish nothing: replays, further attempts of the run, and Worker.Replay. They see
// the same times.
func TestAReplayPublishesNothing(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	var executions atomic.Int32
	var times [3][]time.Time
	w, _ := kit.ServeWith(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		n := executions.Add(1)
		now := func() {
			if n <= 3 {
				times[n-1] = append(times[n-1], ctx.Now())
			}
		}
		now()
		if err := topic.Publish(ctx, "tell", told.With(fmt.Sprint("first of ", n)).Title("a title"),
			told.With("named").WithID("ID")); err != nil {
			return 0, err
		}
		now()
		if err := tell(ctx, "again", "again"); err != nil {
			return 0, err
		}
		now()
		if err := topic.Publish(ctx, "none"); err != nil {
			return 0, err
		}
		if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		now()
		branch := func(ctx kagzi.Context) error { return tell(ctx, "in a branch") }
		if err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{"b": branch}); err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
			return 0, err
		}
		if ctx.Attempt() == 1 {
			return 0, errors.New("once more")
		}
		return 1, tell(ctx, "last")
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	want := []string{"first of 1", "named", "again", "again", "in a branch"}
	wantTold(k, want...)
	k.Forward(run.ID())
	kit.ResultOf(k, run)
	if n := executions.Load(); n != 3 {
		t.Errorf("%d executions", n)
	}
	for _, later := range times[1:] {
		if !slices.EqualFunc(times[0], later, time.Time.Equal) {
			t.Errorf("the executions saw %v and %v", times[0], later)
		}
	}
	if err := w.Replay(k.Ctx, run.ID()); err != nil {
		t.Error(err)
	}
	wantTold(k, append(want, "last")...)
	for step, attempts := range k.Steps(run.ID()) {
		if strings.Contains(step, "tell") && (len(attempts) != 1 || attempts[0].Type != "PUBLISH" ||
			attempts[0].Status != kagzi.StatusCompleted || attempts[0].EndedAt.IsZero()) {
			t.Errorf("step %s: %+v", step, attempts)
		}
	}
}

// The ID of an event is derived from its place, so that events are recognised even without the record. The time of the
// record is that of the call.
func TestIDsOfEventsOfARun(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	var session testhook.Session
	kit.HooksOf(t, w).Begun = func(s testhook.Session) { session = s }
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		last := ctx.Now()
		await.True(t, "the clock is past the step's end", func() bool {
			asked, now := time.Now(), k.Now()
			session.SetClock(now, asked) // the worker's estimate lags as long as an answer took
			return now.Sub(last) > 100*time.Millisecond
		})
		if err := topic.Publish(ctx, "tell", told.With("a"), told.With("b"),
			told.With("c").WithID("named")); err != nil {
			return 0, err
		}
		return 1, errors.Join(kagzi.Sleep(ctx, "nap", time.Hour), tell(ctx, "d"))
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	steps := k.Steps(run.ID())
	if d := steps["tell"][0].EndedAt.Sub(steps["s"][0].EndedAt); d < 50*time.Millisecond {
		t.Errorf("the record is of %v after the step before", d)
	}
	k.Exec(`DELETE FROM kagzi.step_runs WHERE step_id = 'tell'`)
	k.Forward(run.ID())
	kit.ResultOf(k, run)
	wantTold(k, "a", "b", "c", "d")
	if n := k.Count(`SELECT count(*) FROM kagzi.events WHERE event_id = 'named'
		AND convert_from(payload, 'UTF8') = '"c"' OR event_id LIKE 'run:%'`); n != 4 {
		t.Errorf("%d events have the expected IDs", n)
	}
}

// A run whose code begins with another operation under the name is quarantined.
func TestAPublishInPlaceOfAStep(t *testing.T) {
	k := kit.New(t)
	var deployed atomic.Bool
	wf := kagzi.Define[struct{}, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		if deployed.Load() {
			return 0, tell(ctx, "x")
		}
		_ = kagzi.Do(ctx, "tell", func(context.Context) error { return nil })
		return 0, kagzi.Sleep(ctx, "nap", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	deployed.Store(true)
	k.Wake(run.ID())
	re := kit.FailureOf(k, run, kagzi.StatusFailed)
	if re.Kind != kind.Nondeterminism {
		t.Errorf("failed with %v", re)
	}
	kit.MustContain(t, re,
		`step "tell" was recorded as a step, and the code now uses the name for a publishing of events`)
	wantTold(k)
}

// A fork publishes what the old run published from the step on, as events of its own.
func TestAForkPublishesFromItsStepOn(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	for from, want := range map[string][]string{
		"tell": all, "tell#2": all[1:], "s": all[2:], "tell#3": all[2:],
		"t": nil,
	} {
		t.Run(from, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[struct{}, int]("wf")
			step := func(ctx kagzi.Context, name string) error {
				return kagzi.Do(ctx, name, func(context.Context) error { return nil })
			}
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				return 0, errors.Join(step(ctx, "r"), tell(ctx, "a"), tell(ctx, "b"), step(ctx, "s"), tell(ctx, "c"),
					step(ctx, "t"))
			})
			run := kit.Begin(k, wf, struct{}{})
			kit.ResultOf(k, run)
			id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), from)
			if err != nil {
				t.Fatal(err)
			}
			kit.ResultOf(k, kit.Find(t, k.Client, wf, id))
			wantTold(k, append(slices.Clone(all), want...)...)
		})
	}
}

// The loser of a race has published what it recorded before the decision, and nothing after it.
func TestALoserPublishesNothing(t *testing.T) {
	k := kit.New(t)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		early := make(chan bool)
		_, n, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){
			"winner": func(ctx kagzi.Context) (int, error) { await.Opened(t, early); return 1, tell(ctx, "winner") },
			"loser": func(ctx kagzi.Context) (int, error) {
				_ = topic.Publish(ctx, "early", told.With("early"))
				close(early)
				<-ctx.Done()
				if err := tell(ctx, "late"); !errors.Is(err, kind.Cancelled) {
					t.Errorf("the loser got %v", err)
				}
				return 0, nil
			},
		})
		return n, err
	})
	wantTold(k, "early", "winner")
}

// A function may handle the error of events that are too many or too large, and go on.
func TestEventsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 9 << 20})
	large := strings.Repeat("x", 8<<20)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		if err := tell(ctx, strings.Repeat("x", 9<<20)); !errors.Is(err, kagzi.ErrPayloadTooLarge) ||
			kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("a large payload: %v", err)
		}
		if err := tell(ctx, "x", large); !errors.Is(err, kagzi.ErrPayloadTooLarge) {
			t.Errorf("large payloads: %v", err)
		}
		err := tell(ctx, make([]string, 1001)...)
		kit.MustContain(t, err, `kagzi: publish "tell#3": there are 1001 events, and one Publish takes up to 1000`)
		if kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("the error is of kind %s", kagzi.KindOf(err))
		}
		return 0, errors.Join(tell(ctx, large), tell(ctx, make([]string, 1000)...), tell(ctx, "last"))
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.events`); n != 1002 {
		t.Errorf("%d events", n)
	}
}

// A step that is repeated publishes an event only once, and equal events as often as an attempt publishes them.
func TestARepeatedStepPublishesOnce(t *testing.T) {
	k := kit.New(t)
	retried := kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond}
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		err := kagzi.Do(ctx, "s", func(ctx context.Context) error {
			err := topic.New(k.Client).Publish(ctx, told.With("equal"))
			if n := kagzi.CurrentStep(ctx).Attempt; n < 3 {
				return errors.Join(err, topic.New(k.Client).Publish(ctx, told.With(fmt.Sprint("attempt ", n))),
					errors.New("again"))
			}
			return errors.Join(err, topic.New(k.Client).PublishMany(ctx,
				[]topic.NewEvent{told.With("attempt 1"), told.With("equal"), told.With("last")}))
		}, retried)
		if err != nil {
			return 0, err
		}
		return 0, kagzi.DoTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) error {
			err := topic.New(k.Client).Publish(ctx, told.With(fmt.Sprint("tx ", kagzi.CurrentStep(ctx).Attempt)),
				kagzi.InTx(tx))
			if err == nil && kagzi.CurrentStep(ctx).Attempt == 1 {
				err = errors.New("again")
			}
			return err
		}, retried)
	})
	wantTold(k, "equal", "attempt 1", "attempt 2", "equal", "last", "tx 2")
	if err := topic.New(k.Client).PublishMany(k.Ctx,
		[]topic.NewEvent{told.With("outside"), told.With("outside")}); err != nil {
		t.Error(err)
	}
	wantTold(k, "equal", "attempt 1", "attempt 2", "equal", "last", "tx 2", "outside", "outside")
}

// A worker that has lost the run publishes nothing of what it has not written yet.
func TestAWorkerThatLostTheRunPublishesNothing(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf")
	w := kit.NewWorker(t, k.Client, kit.Unmonitored)
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		return 1, tell(ctx, "of the first worker")
	})
	writing, goOn := kit.HangAt(t, w, "before flush")
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, wf, struct{}{})
	await.Receive(t, writing)
	k.TakeAway(run.ID())
	goOn()
	if err := stop(); err != nil {
		t.Error(err)
	}
	wantTold(k)
	kit.Rescue(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) { return 2, tell(ctx, "of the second") })
	if got := kit.ResultOf(k, run); got != 2 {
		t.Errorf("the run returned %d", got)
	}
	wantTold(k, "of the second")
}
