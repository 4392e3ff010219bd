package events_test

import (
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
	"github.com/kagzi/kagzi/topic"
)

var writer = topic.DefineConsumer("writer", topic.ConsumerConfig{
	Topics: []topic.AnyTopic{paid}, LeastWake: 10 * time.Millisecond,
})

// publishMany publishes the payloads from first to last.
func publishMany(k *kit.Kit, first, last int) {
	k.T.Helper()
	var events []topic.NewEvent
	for n := first; n <= last; n++ {
		events = append(events, paid.With(n))
	}
	if err := topic.New(k.Client).PublishMany(k.Ctx, events); err != nil {
		k.T.Fatal(err)
	}
}

// writes serves the consumer of batches. Each batch adds its first and last payload to j, or fails with what fail
// returns.
func writes(k *kit.Kit, j *kit.Journal, b topic.Batch, fail func() error) {
	k.T.Helper()
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	topic.ConsumeBatch(w, writer, paid, b, func(ctx kagzi.Context, events []topic.Event[int]) error {
		if err := fail(); err != nil {
			return err
		}
		return kit.DoLine(ctx, j, fmt.Sprintf("%d-%d", events[0].Payload, events[len(events)-1].Payload))
	})
	kit.StartWorker(k.T, w)
}

func succeeds() error { return nil }

// consumed waits until the consumer has no events, and returns how many runs it has had.
func consumed(k *kit.Kit) (runs int) {
	k.T.Helper()
	await.True(k.T, "all events are consumed", func() bool {
		all, err := admin.New(k.Client).Consumers.List(k.Ctx)
		return err == nil && len(all) == 1 && all[0].Topics[0].Pending == 0
	})
	return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'writer'`)
}

func TestConsumeBatch(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	publishMany(k, 1, 25)
	writes(k, j, topic.Batch{Most: 10}, succeeds)
	if runs := consumed(k); runs != 3 {
		t.Errorf("%d runs for three batches", runs)
	}
	j.Want(t, "1-10 11-20 21-25")
}

// An incomplete batch waits in its run. It ends with the event that completes it, or with its time.
func TestBatchThatWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(k *kit.Kit)
		want string
	}{
		"ForAnEvent": {func(k *kit.Kit) { publishMany(k, 3, 3) }, "1-3"},
		"ForItsTime": {func(k *kit.Kit) {
			k.Exec(`UPDATE kagzi.events SET published_at = published_at - interval '9 hours'`)
		}, "1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			publishMany(k, 1, 2)
			writes(k, j, topic.Batch{Most: 3, Within: 8 * time.Hour}, succeeds)
			var run kagzi.RunInfo
			await.True(t, "the run waits", func() bool {
				runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{
					Workflow: "writer", Status: []kagzi.Status{kagzi.StatusSleeping},
				})
				if err == nil && len(runs) == 1 {
					run = runs[0]
				}
				return run.WaitingOn.String() == "timer wait"
			})
			tt.then(k)
			k.Forward(run.ID)
			if runs := consumed(k); runs != 1 {
				t.Errorf("%d runs for a batch", runs)
			}
			j.Want(t, tt.want)
		})
	}
}

// A batch that fails consumes nothing. The next run gets the same events.
func TestBatchThatFails(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	var mended atomic.Bool
	publishMany(k, 1, 2)
	writes(k, j, topic.Batch{Most: 10}, func() error {
		if mended.Load() {
			return nil
		}
		return errors.New("the table is locked")
	})
	target := admin.Target{Group: writer.Group()}
	await.True(t, "the consumer is paused", func() bool {
		pauses, err := admin.New(k.Client).Pauses.List(k.Ctx)
		return err == nil && len(pauses) == 1
	})
	publishMany(k, 3, 3)
	mended.Store(true)
	if err := admin.New(k.Client).Pauses.End(k.Ctx, target); err != nil {
		t.Fatal(err)
	}
	consumed(k)
	j.Want(t, "1-3")
}

// A batch ends before an event that does not decode, and the run that begins with it fails.
func TestBatchBeforeAnEventThatDoesNotDecode(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	publishMany(k, 1, 2)
	publish(k, topic.Define[string]("paid").With("three"))
	publishMany(k, 4, 4)
	writes(k, j, topic.Batch{Most: 10}, succeeds)
	await.True(t, "a run has failed", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'writer'
			AND status = 'FAILED'`) == 1
	})
	j.Want(t, "1-2")
}

func TestWrongBatches(t *testing.T) {
	refunded := topic.Define[int]("refunded")
	type write = func(kagzi.Context, []topic.Event[int]) error
	k := kit.New(t)
	for want, with := range map[string]func(w *kagzi.Worker, fn write){
		"Batch.Most is 0": func(w *kagzi.Worker, fn write) { topic.ConsumeBatch(w, writer, paid, topic.Batch{}, fn) },
		"Batch.Most is 10001": func(w *kagzi.Worker, fn write) {
			topic.ConsumeBatch(w, writer, paid, topic.Batch{Most: 10_001}, fn)
		},
		"Batch.Within is -1s": func(w *kagzi.Worker, fn write) {
			topic.ConsumeBatch(w, writer, paid, topic.Batch{Most: 1, Within: -time.Second}, fn)
		},
		`ConsumeBatch is for topic "refunded"`: func(w *kagzi.Worker, fn write) {
			topic.ConsumeBatch(w, writer, refunded, topic.Batch{Most: 1}, fn)
		},
		"the function is nil": func(w *kagzi.Worker, _ write) {
			topic.ConsumeBatch[int](w, writer, paid, topic.Batch{Most: 1}, nil)
		},
	} {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		with(w, func(kagzi.Context, []topic.Event[int]) error { return nil })
		kit.MustContain(t, w.Run(k.Ctx), want)
	}
}

// A batch is complete, too, if its events are as many bytes as a run reads.
func TestBatchOfLargeEvents(t *testing.T) {
	k := kit.New(t)
	large := topic.Define[string]("large")
	for range 12 {
		if err := topic.New(k.Client).Publish(k.Ctx, large.With(strings.Repeat("x", 1_000_000))); err != nil {
			t.Fatal(err)
		}
	}
	sizes := make(chan int, 10)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	c := topic.DefineConsumer("writer", topic.ConsumerConfig{Topics: []topic.AnyTopic{large}})
	topic.ConsumeBatch(w, c, large, topic.Batch{Most: 20, Within: 8 * time.Hour},
		func(_ kagzi.Context, events []topic.Event[string]) error {
			sizes <- len(events)
			return nil
		})
	kit.StartWorker(t, w)
	if n := await.Receive(t, sizes); n < 2 || n > 11 {
		t.Errorf("a batch of %d", n)
	}
}
