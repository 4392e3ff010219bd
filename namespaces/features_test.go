package namespaces

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

var (
	nap     = kagzi.DefineDo[time.Duration]("nap")
	listen  = kagzi.DefineDo[int]("listen")
	limited = kagzi.DefineDo[int]("limited")
	undone  = kagzi.DefineDo[int]("undone", kit.NoRetry)
	undo    = kagzi.DefineDo[int]("undo")
	orders  = topic.Define[int]("orders")
	reader  = topic.DefineConsumer("reader", topic.ConsumerConfig{Topics: []topic.AnyTopic{orders}})
	parent  = kagzi.DefineDo[int]("parent")
	goOn    = kagzi.DefineSignal[int]("go")
)

// handlers gives a worker the handlers of these workflows, which write to j.
func handlers(j *kit.Journal) func(*kagzi.Worker, *kagzi.Client) error {
	write := func(ctx kagzi.Context, line string) error {
		return kagzi.Do(ctx, line, func(context.Context) error { j.Add(line); return nil })
	}
	return func(w *kagzi.Worker, _ *kagzi.Client) error {
		kagzi.HandleDo(w, nap, func(ctx kagzi.Context, d time.Duration) error {
			if err := kagzi.Sleep(ctx, "nap", d); err != nil {
				return err
			}
			return write(ctx, "napped")
		})
		kagzi.HandleDo(w, listen, func(ctx kagzi.Context, _ int) error {
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
				return err
			}
			return write(ctx, "heard")
		})
		kagzi.HandleDo(w, limited, func(ctx kagzi.Context, _ int) error {
			return kagzi.Do(ctx, "call", func(context.Context) error { j.Add("called"); return nil },
				kagzi.Limit("api"))
		})
		kagzi.HandleDo(w, undone, func(ctx kagzi.Context, n int) error {
			kagzi.Compensate(ctx, "undo", undo.With(n))
			return errors.New("no")
		})
		kagzi.HandleDo(w, undo, func(ctx kagzi.Context, _ int) error { return write(ctx, "undone") })
		kagzi.HandleDo(w, parent, func(ctx kagzi.Context, _ int) error {
			_, err := kagzi.RunChild(ctx, "child", nap, 300*time.Millisecond)
			return err
		})
		topic.Consume(w, reader, func(ctx kagzi.Context, n int) (int, error) {
			events, err := topic.Peek(ctx, "read", orders, 10)
			if err != nil || len(events) == 0 {
				return n, err
			}
			if err := write(ctx, "read"); err != nil {
				return n, err
			}
			return n + len(events), topic.Reserve(ctx, "read", events...)
		})
		return nil
	}
}

// TestFeaturesOfIdleNamespaces lets each kind of work come to a namespace that has no worker any more.
func TestFeaturesOfIdleNamespaces(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	var j kit.Journal
	w, _ := run(t, pool, Config{Handle: handlers(&j), Idle: 20 * time.Millisecond, Worker: kagzi.WorkerConfig{
		Coordinator: kagzi.CoordinatorConfig{Interval: 100 * time.Millisecond},
	}})
	idle := func() { await.True(t, "no namespace has a worker", func() bool { return len(w.Active()) == 0 }) }
	c := elsewhere(t, pool, "tenant")
	start := func(call kagzi.Call, opts ...kagzi.StartOption) kagzi.RunID { return startOne(t, c, call, opts...) }
	becomes := func(id kagzi.RunID, status kagzi.Status) { awaitStatus(t, c, id, status) }
	for _, step := range []struct {
		name string
		do   func()
		want string
		n    int
	}{
		{"a sleep", func() { start(nap.With(500 * time.Millisecond)) }, "napped", 1},
		{"a delay", func() { start(nap.With(0), kagzi.Delay(500*time.Millisecond)) }, "napped", 1},
		{"a signal", func() {
			id := start(listen.With(1))
			becomes(id, kagzi.StatusSleeping)
			idle()
			ok(t, c.Signal(t.Context(), id, goOn.With(1)))
		}, "heard", 1},
		{"a key", func() { start(nap.With(300*time.Millisecond), kagzi.Key("k")) }, "napped", 1},
		{"a group", func() { start(nap.With(300*time.Millisecond), kagzi.Group("g")) }, "napped", 1},
		{"a child", func() { start(parent.With(1)) }, "napped", 1},
		{"a compensation", func() { start(undone.With(1)) }, "undone", 1},
		{"a schedule", func() {
			ok(t, c.Schedule(t.Context(), kagzi.Schedule{Name: "soon", Every: time.Second, Run: nap.With(0)}))
			await.True(t, "the schedule fires", func() bool { return strings.Count(j.String(), "napped") > 5 })
			ok(t, c.DeleteSchedule(t.Context(), "soon"))
		}, "", 0},
		{"an event", func() { ok(t, topic.New(c).Publish(t.Context(), orders.With(1))) }, "read", 1},
		{"a timeout", func() {
			becomes(start(listen.With(1), kagzi.Timeout(300*time.Millisecond)), kagzi.StatusFailed)
		}, "", 0},
		{"a limit", func() {
			ok(t, admin.New(c).Limits.Set(t.Context(), admin.StepLimit{
				Name: "api", Rate: admin.Rate{Starts: 1, Per: time.Second},
			}))
			start(limited.With(1))
			start(limited.With(1))
		}, "called", 2},
	} {
		idle()
		t.Log(step.name)
		before := strings.Count(j.String(), step.want)
		step.do()
		await.True(t, step.name, func() bool { return strings.Count(j.String(), step.want) >= before+step.n })
	}
	idle()
}
