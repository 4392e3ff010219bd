package ports_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

var (
	ordered = kagzi.Define[struct{}, string]("ordered")
	one     = kagzi.DefineSignal[string]("one")
	two     = kagzi.DefineSignal[string]("two")
	three   = kagzi.DefineSignal[string]("three")
)

// inOrder waits for three messages in this order: a minute for all that follow the first, half a minute for each.
func inOrder(ctx kagzi.Context, _ struct{}) (string, error) {
	text, err := kagzi.WaitSignal(ctx, one)
	last := ctx.Now().Add(time.Minute)
	for _, next := range []kagzi.Signal[string]{two, three} {
		if err != nil {
			return "", err
		}
		left := max(min(30*time.Second, last.Sub(ctx.Now())), time.Microsecond)
		var more string
		more, err = kagzi.WaitSignal(ctx, next, kagzi.Timeout(left))
		text += more
	}
	return text, err
}

// TestSignalsOutOfOrder sends three messages in the wrong order. The run deals with them in the right one, and fails if
// one of them does not come in time.
//
// Original: temporal samples-go/await-signals, 118 lines; here 37.
func TestSignalsOutOfOrder(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, ordered, inOrder)
	run := kit.Begin(k, ordered, struct{}{})
	for _, m := range []kagzi.Message{three.With("c"), two.With("b"), one.With("a")} {
		k.Signal(run, m)
	}
	if got := kit.ResultOf(k, run); got != "abc" {
		t.Errorf("got %q", got)
	}
	late := kit.Begin(k, ordered, struct{}{}, one.With("a"))
	k.WaitStatus(late, kagzi.StatusSleeping, "signal two")
	k.Forward(late.ID())
	if _, err := late.Result(k.Ctx); !errors.Is(err, kind.Timeout) {
		t.Errorf("without the second one: %v", err)
	}
}

type decision struct {
	Approved bool
	By       string
}

var (
	expense = kagzi.Define[kagzi.ID, string]("expense")
	decided = topic.Define[decision]("expense.decided")
)

// TestNamedEvent has runs that wait for the decision about an expense, by its name. Who decides knows nothing of runs,
// and may decide before a run waits.
//
// Original: temporal samples-go/expense, 119 lines; here 48. Its server, which completes the activity, is not counted.
func TestNamedEvent(t *testing.T) {
	k := kit.New(t)
	var paid atomic.Int64
	kit.Serve(k, expense, func(ctx kagzi.Context, id kagzi.ID) (string, error) {
		if err := kagzi.Do(ctx, "create", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		e, err := topic.WaitEvent(ctx, "decision", decided, id, kagzi.Timeout(10*24*time.Hour))
		if errors.Is(err, kagzi.ErrNoMessage) || err == nil && !e.Payload.Approved {
			return "not approved", nil
		}
		if err != nil {
			return "", err
		}
		_, err = kagzi.Step(ctx, "pay", kit.Once(&paid, 0))
		return "paid, by " + e.Payload.By, err
	})
	publish := func(d decision, id kagzi.ID) {
		if err := topic.New(k.Client).Publish(k.Ctx, decided.With(d).WithID(id)); err != nil {
			t.Fatal(err)
		}
	}
	publish(decision{false, "ada"}, "expense-1")
	first, second, third := kit.Begin(k, expense, "expense-1"), kit.Begin(k, expense, "expense-2"),
		kit.Begin(k, expense, "expense-3")
	k.WaitStatus(second, kagzi.StatusSleeping)
	k.WaitStatus(third, kagzi.StatusSleeping)
	publish(decision{true, "ada"}, "expense-2")
	k.Forward(third.ID())
	for run, want := range map[*kagzi.Run[string]]string{
		first: "not approved", second: "paid, by ada", third: "not approved",
	} {
		if got := kit.ResultOf(k, run); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if n := paid.Load(); n != 1 {
		t.Errorf("paid %d times", n)
	}
}

var (
	critical = kagzi.Define[string, string]("critical")
	user     = kagzi.Define[string, string]("user")
)

// TestMutex has runs with a critical section on the same resource. The section is a child in the group of the resource,
// in which one run is active at a time. Its Timeout frees the resource.
//
// Original: temporal samples-go/mutex, 180 lines; here 37. Its mock is not counted.
func TestMutex(t *testing.T) {
	k := kit.New(t)
	var inside, most atomic.Int64
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, critical, func(ctx kagzi.Context, resource string) (string, error) {
		err := kagzi.Do(ctx, "enter", func(context.Context) error {
			most.Store(max(most.Load(), inside.Add(1)))
			return nil
		})
		if err == nil {
			err = kagzi.Sleep(ctx, "works", 300*time.Millisecond)
		}
		return resource, errors.Join(err, kagzi.Do(ctx, "leave", func(context.Context) error {
			inside.Add(-1)
			return nil
		}))
	})
	kagzi.Handle(w, user, func(ctx kagzi.Context, resource string) (string, error) {
		return kagzi.RunChild(ctx, "locked", critical, resource, kagzi.Group(resource),
			kagzi.Timeout(10*time.Minute))
	})
	kit.StartWorker(t, w)
	runs := make([]*kagzi.Run[string], 3)
	for i := range runs {
		runs[i] = kit.Begin(k, user, "printer")
	}
	for _, run := range runs {
		kit.ResultOf(k, run)
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d runs were in the section at once", n)
	}
}

var (
	reminding = kagzi.Define[struct{}, int]("reminding")
	complete  = kagzi.DefineSignal[struct{}]("complete")
)

// TestSleepForDays sends an email every thirty days until a message comes.
//
// Original: temporal samples-go/sleep-for-days, 42 lines; here 31.
func TestSleepForDays(t *testing.T) {
	k := kit.New(t)
	var sent atomic.Int64
	kit.Serve(k, reminding, func(ctx kagzi.Context, _ struct{}) (int, error) {
		for n := 1; ; n++ {
			if _, err := kagzi.Step(ctx, "email", kit.Once(&sent, 0)); err != nil {
				return n, err
			}
			_, err := kagzi.WaitSignal(ctx, complete, kagzi.Timeout(30*24*time.Hour))
			if !errors.Is(err, kagzi.ErrNoMessage) {
				return n, err
			}
		}
	})
	run := kit.Begin(k, reminding, struct{}{})
	for month := range 3 {
		await.True(t, "the email is sent", func() bool { return sent.Load() == int64(month+1) })
		k.WaitStatus(run, kagzi.StatusSleeping, "signal complete")
		if month < 2 {
			k.Forward(run.ID())
		}
	}
	k.Signal(run, complete.With(struct{}{}))
	if n := kit.ResultOf(k, run); n != 3 {
		t.Errorf("%d emails", n)
	}
}
