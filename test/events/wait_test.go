package events_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

var (
	paid   = topic.Define[int]("paid")
	order  = kagzi.Define[kagzi.ID, int]("order")
	answer = kagzi.DefineSignal[string]("answer")
)

// waiting waits for the event of its input, and returns its payload.
func waiting(timeout ...kagzi.Timeout) func(kagzi.Context, kagzi.ID) (int, error) {
	return func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		e, err := topic.WaitEvent(ctx, "paid", paid, id, timeout...)
		return e.Payload, err
	}
}

func publish(k *kit.Kit, e topic.NewEvent, opts ...kagzi.ChangeOption) {
	k.T.Helper()
	if err := topic.New(k.Client).Publish(k.Ctx, e, opts...); err != nil {
		k.T.Fatal(err)
	}
}

// nothingLeft reports rows of waits that are over.
func nothingLeft(k *kit.Kit) {
	k.T.Helper()
	for _, table := range []string{"event_waits", "awaited_events", "signals WHERE consumed_by IS NULL"} {
		await.True(k.T, "no row is left in "+table, func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.`+table) == 0
		})
	}
}

func TestWaitEvent(t *testing.T) {
	t.Parallel()
	t.Run("PublishedBefore", func(t *testing.T) {
		k := kit.New(t)
		publish(k, paid.With(7).WithID("order-7").Title("seven"))
		kit.Serve(k, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
			e, err := topic.WaitEvent(ctx, "paid", paid, id)
			if e.ID != "order-7" || e.Title != "seven" || e.Position == 0 || time.Since(e.PublishedAt) > time.Hour {
				t.Errorf("got %+v", e)
			}
			if again, err := topic.WaitEvent(ctx, "paid", paid, id); again != e || err != nil {
				t.Errorf("then %+v, %v", again, err)
			}
			return e.Payload, errors.Join(err, kagzi.Sleep(ctx, "replay", 300*time.Millisecond))
		})
		if got := kit.ResultOf(k, kit.Begin(k, order, "order-7")); got != 7 {
			t.Errorf("got %d", got)
		}
		nothingLeft(k)
	})
	t.Run("PublishedLater", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, order, waiting())
		first, second, other := kit.Begin(k, order, "order-7"), kit.Begin(k, order, "order-7"),
			kit.Begin(k, order, "order-8")
		for _, run := range []*kagzi.Run[int]{first, second, other} {
			k.WaitStatus(run, kagzi.StatusSleeping)
		}
		if on := k.InfoOf(first).WaitingOn.String(); on != "event paid/order-7" {
			t.Errorf("it waits for %q", on)
		}
		publish(k, paid.With(7).WithID("order-7"))
		if a, b := kit.ResultOf(k, first), kit.ResultOf(k, second); a != 7 || b != 7 {
			t.Errorf("got %d and %d", a, b)
		}
		if status := k.InfoOf(other).Status; status != kagzi.StatusSleeping {
			t.Errorf("the run that waits for another event is %s", status)
		}
		steps, err := k.Client.Steps(k.Ctx, first)
		if err != nil || len(steps) != 1 || steps[0].Type != "EVENT" || string(steps[0].Output) != "7" ||
			steps[0].Headers != nil {
			t.Errorf("steps %+v, %v", steps, err)
		}
		messages, err := admin.New(k.Client).Messages.List(k.Ctx, first, admin.MessageFilter{})
		if err != nil || len(messages) != 1 || !messages[0].Awaited || messages[0].Signal != "paid" ||
			messages[0].Headers != nil || string(messages[0].Payload) != "7" {
			t.Errorf("messages %+v, %v", messages, err)
		}
		publish(k, paid.With(8).WithID("order-8"))
		kit.ResultOf(k, other)
		nothingLeft(k)
	})
	t.Run("PublishedInATransaction", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, order, waiting())
		run := kit.Begin(k, order, "order-7")
		k.WaitStatus(run, kagzi.StatusSleeping)
		tx := k.CallersTx()
		publish(k, paid.With(6).WithID("order-7"), kagzi.InTx(tx))
		kit.RollbackTx(t, tx)
		tx = k.CallersTx()
		publish(k, paid.With(7).WithID("order-7"), kagzi.InTx(tx))
		kit.CommitTx(t, tx)
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		nothingLeft(k)
	})
	t.Run("PublishedByAWorkflow", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, order, waiting())
		run := kit.Begin(k, order, "order-7")
		k.WaitStatus(run, kagzi.StatusSleeping)
		payment := kagzi.DefineDo[int]("payment")
		kit.Serve(k, payment, func(ctx kagzi.Context, n int) (none struct{}, err error) {
			return none, topic.Publish(ctx, "pay", paid.With(n).WithID("order-7"), paid.With(0))
		})
		kit.ResultOf(k, kit.Begin(k, payment, 7))
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("got %d", got)
		}
		nothingLeft(k)
	})
	t.Run("TimesOut", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
			_, err := topic.WaitEvent(ctx, "paid", paid, id, kagzi.Timeout(400*time.Millisecond))
			if !errors.Is(err, kind.Timeout) || !strings.Contains(err.Error(), "was not published in time") {
				t.Errorf("got %v", err)
			}
			text, err := kagzi.WaitSignal(ctx, answer)
			return len(text), err
		})
		run := kit.Begin(k, order, "order-7")
		await.True(t, "the timeout is recorded", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'EVENT'
				AND status = 'COMPLETED'`) == 1
		})
		publish(k, paid.With(7).WithID("order-7")) // too late
		k.Signal(run, answer.With("four"))
		if got := kit.ResultOf(k, run); got != 4 {
			t.Errorf("got %d", got)
		}
		nothingLeft(k)
	})
	t.Run("DoesNotDecode", func(t *testing.T) {
		k := kit.New(t)
		publish(k, topic.Define[string]("paid").With("seven").WithID("order-7"))
		kit.Serve(k, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
			e, err := topic.WaitEvent(ctx, "paid", paid, id)
			if err == nil || e.ID != "order-7" || e.Position == 0 || !strings.Contains(err.Error(), "does not decode") {
				t.Errorf("got %+v, %v", e, err)
			}
			return 1, kagzi.Sleep(ctx, "replay", 300*time.Millisecond)
		})
		kit.ResultOf(k, kit.Begin(k, order, "order-7"))
	})
	t.Run("LosesARace", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
			_, n, err := kagzi.Race(ctx, "either", map[string]func(kagzi.Context) (int, error){
				"paid": func(ctx kagzi.Context) (int, error) { return waiting()(ctx, id) },
				"answer": func(ctx kagzi.Context) (int, error) {
					text, err := kagzi.WaitSignal(ctx, answer)
					return len(text), err
				},
			})
			return n, err
		})
		paying, answering := kit.Begin(k, order, "order-7"), kit.Begin(k, order, "order-8")
		k.WaitStatus(paying, kagzi.StatusSleeping)
		k.WaitStatus(answering, kagzi.StatusSleeping)
		publish(k, paid.With(7).WithID("order-7"))
		k.Signal(answering, answer.With("four"))
		if a, b := kit.ResultOf(k, paying), kit.ResultOf(k, answering); a != 7 || b != 4 {
			t.Errorf("got %d and %d", a, b)
		}
		publish(k, paid.With(8).WithID("order-8")) // for a run that is over
		await.True(t, "the event is not awaited any more", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.awaited_events`) == 0
		})
		if err := admin.New(k.Client).Runs.Delete(k.Ctx, answering); err != nil {
			t.Fatal(err)
		}
		nothingLeft(k)
	})
	for what, wait := range map[string]func(kagzi.Context) error{
		"the event's ID is empty": func(ctx kagzi.Context) error {
			_, err := topic.WaitEvent(ctx, "paid", paid, "")
			return err
		},
		"Kagzi gives the events of this topic their IDs": func(ctx kagzi.Context) error {
			_, err := topic.WaitEvent(ctx, "paid", topic.Runs, "a")
			return err
		},
		"topic is empty": func(ctx kagzi.Context) error {
			_, err := topic.WaitEvent(ctx, "paid", topic.Define[int](""), "a")
			return err
		},
		"timeout is -1ns": func(ctx kagzi.Context) error {
			_, err := topic.WaitEvent(ctx, "paid", paid, "a", kagzi.Timeout(-1))
			return err
		},
	} {
		t.Run("Wrong/"+what, func(t *testing.T) {
			e := kit.Refused(kit.New(t), func(ctx kagzi.Context) (int, error) { return 1, wait(ctx) })
			if !strings.Contains(e.Message, what) {
				t.Error(e)
			}
		})
	}
}

// A publisher that has looked for waits before the run registered its own commits later: it leaves no message, so the
// worker has to look again.
func TestEventBehindAnOpenPublisher(t *testing.T) {
	k := kit.New(t)
	tx := k.CallersTx()
	publish(k, paid.With(7).WithID("order-7"), kagzi.InTx(tx))
	kit.Serve(k, order, waiting())
	run, other := kit.Begin(k, order, "order-7"), kit.Begin(k, order, "order-8")
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.WaitStatus(other, kagzi.StatusSleeping)
	kit.CommitTx(t, tx)
	k.WaitStatus(run, kagzi.StatusCompleted)
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.awaited_events`); n != 0 {
		t.Errorf("%d awaited events: the publisher has seen the wait, so this test shows nothing", n)
	}
	// While no publisher is under way, the other one sleeps for long.
	await.True(t, "the other run looks no more", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'
			AND available_at > now() + interval '30 minutes'`) == 1
	})
	k.Cancel(other)
}

// An open transaction of the application that has locked a run holds up no other run that waits for the same event.
func TestLockedRunHoldsUpNoOther(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, waiting())
	held, free := kit.Begin(k, order, "order-7"), kit.Begin(k, order, "order-7")
	k.WaitStatus(held, kagzi.StatusSleeping)
	k.WaitStatus(free, kagzi.StatusSleeping)
	tx := k.CallersTx()
	if _, err := tx.Exec(k.Ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1
		AND namespace_id = 'default' FOR UPDATE`, held.ID()); err != nil {
		t.Fatal(err)
	}
	publish(k, paid.With(7).WithID("order-7"))
	if got := kit.ResultOf(k, free); got != 7 {
		t.Errorf("got %d", got)
	}
	kit.CommitTx(t, tx)
	k.WaitStatus(held, kagzi.StatusCompleted)
	if got := kit.ResultOf(k, held); got != 7 {
		t.Errorf("got %d", got)
	}
}

// A run that continues leaves its waits behind, and its next epoch waits anew.
func TestWaitsOfEpochs(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		_, n, err := kagzi.Race(ctx, "either", map[string]func(kagzi.Context) (int, error){
			"paid": func(ctx kagzi.Context) (int, error) { return waiting()(ctx, id) },
			"answer": func(ctx kagzi.Context) (int, error) {
				text, err := kagzi.WaitSignal(ctx, answer)
				return -len(text), err
			},
		})
		if n < 0 && err == nil {
			return 0, kagzi.Continue(ctx, id)
		}
		return n, err
	})
	run := kit.Begin(k, order, "order-7")
	for range 3 {
		k.WaitStatus(run, kagzi.StatusSleeping)
		epoch := k.InfoOf(run).Epoch
		k.Signal(run, answer.With("go on"))
		await.True(t, "the run continues", func() bool { return k.InfoOf(run).Epoch > epoch })
	}
	k.WaitStatus(run, kagzi.StatusSleeping)
	if n := k.Count(`SELECT count(*) FROM kagzi.event_waits`); n != 1 {
		t.Errorf("%d waits", n)
	}
	publish(k, paid.With(7).WithID("order-7"))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
	nothingLeft(k)
}
