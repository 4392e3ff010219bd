package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// many waits for as many events as its input says.
var many = kagzi.Define[int, int]("many")

func waitingForMany(ctx kagzi.Context, n int) (int, error) {
	ids := make([]kagzi.ID, n)
	for i := range ids {
		ids[i] = kagzi.ID(fmt.Sprint("many-", i))
	}
	out, err := kagzi.Map(ctx, "all", ids, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		e, err := topic.WaitEvent(ctx, "paid", paid, id)
		return e.Payload, err
	})
	return len(out), err
}

// An event that was published in time is read, although its message comes after the timeout, because there was no
// coordinator. One that was published later is not.
func TestEventInTime(t *testing.T) {
	t.Parallel()
	for want, published := range map[int]string{7: "wake_at - interval '1 ms'", -1: "wake_at + interval '1 ms'"} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			k := kit.New(t)
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true})
			kagzi.Handle(w, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
				n, err := waiting(kagzi.Timeout(time.Hour))(ctx, id)
				if err != nil {
					return -1, nil
				}
				return n, nil
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, order, "order-7")
			k.WaitStatus(run, kagzi.StatusSleeping)
			publish(k, paid.With(7).WithID("order-7"))
			k.Exec(`UPDATE kagzi.step_runs SET wake_at = now() - interval '1 minute' WHERE step_kind = 'EVENT'`)
			k.Exec(`UPDATE kagzi.events SET published_at = ` + published + `
				FROM kagzi.step_runs WHERE step_kind = 'EVENT'`)
			k.Forward(run.ID())
			if got := kit.ResultOf(k, run); got != want {
				t.Errorf("got %d", got)
			}
		})
	}
}

// The same holds for a run that is under way when the time is over, because another of its branches is busy.
func TestEventInTimeOfARunUnderWay(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true})
	over := make(chan struct{})
	kagzi.Handle(w, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		busy := kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (int, error) {
			return 0, kagzi.Do(ctx, "works", func(context.Context) error {
				<-over
				return nil
			})
		})
		n, err := waiting(kagzi.Timeout(2*time.Second))(ctx, id)
		close(over)
		if errors.Is(err, kind.Timeout) {
			n, err = -1, nil
		}
		_, failed := busy.Result(ctx)
		return n, errors.Join(err, failed)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, order, "order-7")
	await.True(t, "the wait has begun", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'EVENT'`) == 1
	})
	publish(k, paid.With(7).WithID("order-7"))
	got := kit.ResultOf(k, run)
	inTime := k.Count(`SELECT count(*) FROM kagzi.events e, kagzi.step_runs s WHERE s.step_kind = 'EVENT'
		AND e.namespace_id = s.namespace_id AND e.published_at <= s.wake_at`)
	if got != 7 && inTime == 1 {
		t.Errorf("got %d", got)
	}
}

// Hundreds of events that cannot be told, because a transaction of the application has locked their run, hold up no
// other event.
func TestLockedRunHoldsUpNoOtherEvent(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, order, waiting())
	kagzi.Handle(w, many, waitingForMany)
	kit.StartWorker(t, w)
	const n = 120 // more than a pass reads at once
	held, free := kit.Begin(k, many, n), kit.Begin(k, order, "order-7")
	k.WaitStatus(held, kagzi.StatusSleeping)
	k.WaitStatus(free, kagzi.StatusSleeping)
	tx := k.CallersTx()
	if err := k.Client.Signal(k.Ctx, held, answer.With("locks the row"), kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	events := make([]topic.NewEvent, n)
	for i := range events {
		events[i] = paid.With(i).WithID(kagzi.ID(fmt.Sprint("many-", i)))
	}
	if err := topic.New(k.Client).PublishMany(k.Ctx, events); err != nil {
		t.Fatal(err)
	}
	publish(k, paid.With(7).WithID("order-7"))
	if got := kit.ResultOf(k, free); got != 7 {
		t.Errorf("got %d", got)
	}
	kit.CommitTx(t, tx)
	if got := kit.ResultOf(k, held); got != n {
		t.Errorf("got %d", got)
	}
}

// A connection that answers no more holds up the coordinator for a while only.
func TestHungConnectionOfTheCoordinator(t *testing.T) {
	t.Parallel()
	l := kit.NewLossy(t, false)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{NoCoordinator: true})
	kagzi.Handle(w, order, waiting())
	kit.StartWorker(t, w)
	first, second := kit.Begin(k, order, "order-7"), kit.Begin(k, order, "order-8")
	k.WaitStatus(first, kagzi.StatusSleeping)
	k.WaitStatus(second, kagzi.StatusSleeping)
	hangs := l.Proxy.HoldAck(pgproxy.Contains("INSERT INTO kagzi.signals"))
	defer hangs.Release()
	host := kit.NewWorker(t, l.Client(t, 12), kagzi.WorkerConfig{Queue: "other"})
	kagzi.Handle(host, many, waitingForMany)
	kit.StartWorker(t, host)
	publish(k, paid.With(7).WithID("order-7"))
	await.True(t, "the connection hangs", hangs.Holds)
	publish(k, paid.With(8).WithID("order-8"))
	if got := kit.ResultOf(k, second); got != 8 {
		t.Errorf("got %d", got)
	}
	if got := kit.ResultOf(k, first); got != 7 {
		t.Errorf("got %d", got)
	}
}

// An event for which no run can be started is left, and the others have one run each, however often it is tried.
func TestStartOnLeavesWhatFails(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]topic.NewEvent{
		// with the consumer's name it is too long
		"Refused":       paid.With(2).WithID(kagzi.ID(strings.Repeat("x", 250))),
		"DoesNotDecode": topic.Define[string]("paid").With("two").WithID("bad"),
	} {
		t.Run(what, func(t *testing.T) {
			k := kit.New(t)
			var shipped atomic.Int64
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			shipper := topic.DefineConsumer("shipper", topic.ConsumerConfig{
				Topics: []topic.AnyTopic{paid}, LeastWake: time.Millisecond,
			})
			topic.StartOn(w, shipper, paid, ship)
			kagzi.Handle(w, ship, func(ctx kagzi.Context, n int) (int, error) {
				shipped.Add(1)
				return n, nil
			})
			publish(k, paid.With(1).WithID("first"))
			publish(k, bad)
			publish(k, paid.With(3).WithID("third"))
			kit.StartWorker(t, w)
			failed := func(n int) {
				t.Helper()
				await.True(t, "the consumer's run fails, which pauses its group", func() bool {
					return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'FAILED'`) == n &&
						k.Count(`SELECT count(*) FROM kagzi.run_keys WHERE paused_at IS NOT NULL`) == 1
				})
			}
			failed(1)
			ends := admin.New(k.Client).Pauses.End
			if err := ends(k.Ctx, admin.Target{Group: shipper.Group()}); err != nil {
				t.Fatal(err)
			}
			failed(2)
			want := int64(2)
			if what == "DoesNotDecode" {
				want = 1 // Peek ends at what does not decode
			}
			await.True(t, "the others have their runs", func() bool { return shipped.Load() >= want })
			if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'ship'`); n != int(want) {
				t.Errorf("%d runs", n)
			}
		})
	}
}

// Names of every length that is allowed.
func TestLongNamesOfWaits(t *testing.T) {
	t.Parallel()
	text := func(n int) string { // that does not compress
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, "%x", uint32(i+1)*2654435761)
		}
		return b.String()[:n]
	}
	k := kit.NewWith(t, kagzi.ClientConfig{Namespace: text(255)})
	long, id := topic.Define[int](text(255)), kagzi.ID(text(255))
	var down func(ctx kagzi.Context, depth int) (int, error)
	down = func(ctx kagzi.Context, depth int) (int, error) {
		if depth == 7 {
			e, err := topic.WaitEvent(ctx, text(200), long, id)
			return e.Payload, err
		}
		return kagzi.Go(ctx, text(254), func(ctx kagzi.Context) (int, error) { return down(ctx, depth+1) }).Result(ctx)
	}
	kit.Serve(k, order, func(ctx kagzi.Context, _ kagzi.ID) (int, error) { return down(ctx, 0) })
	run := kit.Begin(k, order, "x")
	k.WaitStatus(run, kagzi.StatusSleeping)
	publish(k, long.With(7).WithID(id))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
}

// A message of the application cannot take the place of an event's.
func TestMessageIDsOfKagzi(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, waiting())
	run := kit.Begin(k, order, "order-7")
	k.WaitStatus(run, kagzi.StatusSleeping)
	kit.MustContain(t, k.Client.Signal(k.Ctx, run, answer.With("x").WithID("##paid")), "for messages of Kagzi")
	k.Cancel(run)
}

// What a branch that has lost did not read goes when the run continues.
func TestUnreadEventsOfEpochs(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, many, func(ctx kagzi.Context, n int) (int, error) {
		_, _, err := kagzi.Race(ctx, "either", map[string]func(kagzi.Context) (int, error){
			"both": func(ctx kagzi.Context) (int, error) {
				if _, err := waiting()(ctx, kagzi.ID(fmt.Sprint("event-", n))); err != nil {
					return 0, err
				}
				return 0, kagzi.Sleep(ctx, "then", time.Hour)
			},
			"answer": func(ctx kagzi.Context) (int, error) {
				_, err := kagzi.WaitSignal(ctx, answer)
				return 0, err
			},
		})
		if err != nil || n == 2 {
			return n, err
		}
		return 0, kagzi.Continue(ctx, n+1)
	})
	run := kit.Begin(k, many, 0)
	for n := range 3 {
		await.True(t, "it waits for the event of this epoch", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.event_waits
				JOIN kagzi.workflow_runs USING (run_id, namespace_id)
				WHERE event_id = $1 AND status = 'SLEEPING'`, fmt.Sprint("event-", n)) == 1
		})
		if err := admin.New(k.Client).Runs.Pause(k.Ctx, run); err != nil {
			t.Fatal(err)
		}
		k.Signal(run, answer.With("x"))
		publish(k, paid.With(1).WithID(kagzi.ID(fmt.Sprint("event-", n))))
		await.True(t, "the run has the event", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.awaited_events`) == 0
		})
		if n < 2 { // the events of the last epoch stay with the run
			if unread := k.Count(`SELECT count(*) FROM kagzi.signals WHERE consumed_by IS NULL`); unread != 2 {
				t.Errorf("epoch %d: %d unread messages", n, unread)
			}
		}
		if err := admin.New(k.Client).Runs.Unpause(k.Ctx, run); err != nil {
			t.Fatal(err)
		}
	}
	kit.ResultOf(k, run)
}

// A run that was deleted leaves no wait behind, although a worker that has lost it registers one late.
func TestLateRegistration(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{NoCoordinator: true})
	begun, late := make(chan struct{}), make(chan struct{})
	kagzi.Handle(w, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		close(begun)
		await.Opened(t, late)
		return waiting()(ctx, id)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, order, "order-7")
	await.Opened(t, begun)
	k.Exec(`UPDATE kagzi.workflow_runs SET task_queue = 'other'`)
	kit.LoseRun(t, k.Pool, run.ID(), 1)
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "other"}, order, func(kagzi.Context, kagzi.ID) (int, error) {
		return 1, nil
	})
	kit.ResultOf(k, run)
	if err := admin.New(k.Client).Runs.Delete(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	close(late)
	ctx, cancel := context.WithTimeout(k.Ctx, await.Patience)
	defer cancel()
	for ctx.Err() == nil && k.Count(`SELECT count(*) FROM kagzi.workers WHERE active_count > 0`) > 0 {
		kit.WakeWorkers(t, k.Pool)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.event_waits`); n != 0 {
		t.Errorf("%d waits", n)
	}
}
