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

// A schedule's run sleeps in a namespace without a worker, and the next one is queued behind it. A client cancels the
// first.
func TestQueuedRunBehindATerminatedOne(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	var j kit.Journal
	w, _ := run(t, pool, Config{Handle: handlers(&j), Idle: 20 * time.Millisecond})
	c := elsewhere(t, pool, "tenant")
	if err := c.Schedule(t.Context(), kagzi.Schedule{
		Name: "s", Every: time.Second, Run: listen.With(1), Overlap: kagzi.OverlapQueueOne, CatchUp: 2,
	}); err != nil {
		t.Fatal(err)
	}
	count := func(where string) int {
		return int(dbtest.QueryOne[int64](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE `+where))
	}
	await.True(t, "a run is queued", func() bool {
		return count(`status = 'SLEEPING'`) == 1 && count(`available_at = 'infinity' AND status = 'PENDING'`) == 1
	})
	if _, err := pool.Exec(t.Context(), `UPDATE kagzi.schedules SET paused = true`); err != nil {
		t.Fatal(err)
	}
	await.True(t, "no worker", func() bool { return len(w.Active()) == 0 })
	id := dbtest.QueryOne[string](t, pool, `SELECT run_id::text FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`)
	if err := admin.New(c).Runs.Terminate(t.Context(), kagzi.RunID(id)); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the queued run has begun", func() bool {
		return count(`status = 'SLEEPING'`) == 1
	})
}

var (
	waker      = topic.DefineConsumer("waker", topic.ConsumerConfig{LeastWake: time.Second})
	payments   = topic.Define[int]("payments")
	waitsEvent = kagzi.DefineDo[int]("waits-event")
	batched    = kagzi.DefineDo[[]int]("batched", kagzi.Batch{Most: 10, Within: 500 * time.Millisecond})
	failing    = kagzi.DefineDo[int]("failing", kit.NoRetry)
	sleeper    = kagzi.DefineDo[int]("sleeper")
	goes       = kagzi.DefineDo[int]("goes")
)

func moreHandlers(j *kit.Journal) func(*kagzi.Worker, *kagzi.Client) error {
	basic := handlers(j)
	write := func(ctx kagzi.Context, line string) error {
		return kagzi.Do(ctx, line, func(context.Context) error { j.Add(line); return nil })
	}
	return func(w *kagzi.Worker, c *kagzi.Client) error {
		if err := basic(w, c); err != nil {
			return err
		}
		topic.Consume(w, waker, func(ctx kagzi.Context, n int) (int, error) {
			if err := write(ctx, "woken"); err != nil {
				return n, err
			}
			return n + 1, topic.WakeAt(ctx, ctx.Now().Add(1500*time.Millisecond))
		})
		kagzi.HandleDo(w, waitsEvent, func(ctx kagzi.Context, _ int) error {
			if _, err := topic.WaitEvent(ctx, "wait", payments, "p1"); err != nil {
				return err
			}
			return write(ctx, "event")
		})
		kagzi.HandleDo(w, batched, func(ctx kagzi.Context, all []int) error { return write(ctx, "batch") })
		kagzi.HandleDo(w, failing, func(ctx kagzi.Context, _ int) error {
			if err := write(ctx, "failing"); err != nil {
				return err
			}
			return errors.New("no")
		})
		kagzi.HandleDo(w, sleeper, func(ctx kagzi.Context, n int) error {
			kagzi.Compensate(ctx, "undo", undo.With(n))
			if err := kagzi.Do(ctx, "x", func(context.Context) error { return nil }); err != nil {
				return err
			}
			return kagzi.Sleep(ctx, "long", time.Hour)
		})
		kagzi.HandleDo(w, goes, func(ctx kagzi.Context, n int) error {
			if err := write(ctx, "goes"); err != nil {
				return err
			}
			if err := kagzi.Sleep(ctx, "nap", 300*time.Millisecond); err != nil {
				return err
			}
			if n == 0 {
				return nil
			}
			return kagzi.Continue(ctx, n-1)
		})
		return nil
	}
}

func TestMoreFeaturesOfIdleNamespaces(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	var j kit.Journal
	w, _ := run(t, pool, Config{Handle: moreHandlers(&j), Idle: 20 * time.Millisecond, Worker: kagzi.WorkerConfig{
		Coordinator: kagzi.CoordinatorConfig{Interval: 100 * time.Millisecond},
	}})
	c := elsewhere(t, pool, "tenant")
	adm := admin.New(c)
	start := func(call kagzi.Call, opts ...kagzi.StartOption) kagzi.RunID { return startOne(t, c, call, opts...) }
	becomes := func(id kagzi.RunID, status kagzi.Status) { awaitStatus(t, c, id, status) }
	for _, step := range []struct {
		name string
		do   func()
		want string
		n    int
	}{
		{"first", func() { start(nap.With(0)) }, "napped", 1},
		{"wake at", func() {
			n := strings.Count(j.String(), "woken")
			await.True(t, "woken thrice", func() bool {
				return strings.Count(j.String(), "woken") > n+2
			})
		}, "", 0},
		{"wait event", func() {
			id := start(waitsEvent.With(1))
			becomes(id, kagzi.StatusSleeping)
			ok(t, topic.New(c).Publish(t.Context(), payments.With(1).WithID("p1")))
			becomes(id, kagzi.StatusCompleted)
		}, "", 0},
		{"debounce", func() {
			start(nap.With(0), kagzi.Debounce{Key: "k", Delay: 500 * time.Millisecond})
		}, "napped", 1},
		{"batch", func() {
			_, err := kagzi.StartItem(t.Context(), c, batched, 1)
			ok(t, err)
		}, "batch", 1},
		{"restart", func() {
			id := start(failing.With(1))
			becomes(id, kagzi.StatusFailed)
			_, err := adm.Runs.Restart(t.Context(), id)
			ok(t, err)
		}, "failing", 2},
		{"cancel sleeping with compensation", func() {
			id := start(sleeper.With(1))
			becomes(id, kagzi.StatusSleeping)
			ok(t, c.Cancel(t.Context(), id))
		}, "undone", 1},
		{"pause of the queue", func() {
			ok(t, adm.Pauses.Set(t.Context(), admin.Target{Queue: "default"}))
			start(nap.With(0))
			ok(t, adm.Pauses.End(t.Context(), admin.Target{Queue: "default"}))
		}, "napped", 1},
		{"pause of a key", func() {
			ok(t, adm.Pauses.Set(t.Context(), admin.Target{Queue: "default", Key: "k"}))
			start(nap.With(0), kagzi.Key("k"))
			ok(t, adm.Pauses.End(t.Context(), admin.Target{Queue: "default", Key: "k"}))
		}, "napped", 1},
		{"pause of a group", func() {
			ok(t, adm.Pauses.Set(t.Context(), admin.Target{Group: "g"}))
			start(nap.With(0), kagzi.Group("g"))
			ok(t, adm.Pauses.End(t.Context(), admin.Target{Group: "g"}))
		}, "napped", 1},
		{"pause of a run", func() {
			id := start(nap.With(600 * time.Millisecond))
			ok(t, adm.Runs.Pause(t.Context(), id))
			await.True(t, "due", func() bool {
				return dbtest.QueryOne[int64](t, pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE run_id = '`+string(id)+
					`' AND available_at < now()`) == 1
			})
			ok(t, adm.Runs.Unpause(t.Context(), id))
		}, "napped", 1},
		{"continue", func() { start(goes.With(3)) }, "goes", 4},
		{"key limit declared", func() {
			ok(t, adm.Queues.Set(t.Context(), admin.QueueLimits{
				Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1},
			}))
			for range 3 {
				start(nap.With(200*time.Millisecond), kagzi.Key("q"))
			}
		}, "napped", 3},
		{"queue limit", func() {
			ok(t, adm.Queues.Set(t.Context(), admin.QueueLimits{Queue: "default", MaxRunning: 1}))
			for range 3 {
				start(nap.With(200 * time.Millisecond))
			}
		}, "napped", 3},
		{"queue limit raised", func() {
			ok(t, adm.Queues.Set(t.Context(), admin.QueueLimits{Queue: "default", MaxRunning: 10}))
			for range 3 {
				start(nap.With(200*time.Millisecond), kagzi.Key("q"))
			}
		}, "napped", 3},
		{"step limit", func() {
			ok(t, adm.Limits.Set(t.Context(), admin.StepLimit{Name: "api", MaxRunning: 1}))
			for range 3 {
				start(limited.With(1))
			}
		}, "called", 3},
	} {
		if step.name != "wake at" { // the consumer's runs wake it again
			await.True(t, "no worker before "+step.name, func() bool { return len(w.Active()) == 0 })
		}
		before := strings.Count(j.String(), step.want)
		step.do()
		await.True(t, step.name, func() bool {
			return strings.Count(j.String(), step.want) >= before+step.n
		})
	}
}
