package operations_test

import (
	"context"
	"errors"
	"slices"
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

func counts(_ kagzi.Context, n int) (int, error) { return n + 1, nil }

// A worker whose consumer is configured wrongly says so, and does not run.
func TestConsumersThatAreRefused(t *testing.T) {
	k := kit.New(t)
	for want, c := range map[string]topic.Consumer{
		"the consumer's name is empty: name it in topic.DefineConsumer": {},
		`consumer name "a\nb" contains the control character`: topic.DefineConsumer("a\nb",
			topic.ConsumerConfig{}),
		`has topic "numbers" twice`: topic.DefineConsumer("c",
			topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers, numbers}}),
		"a topic is nil": topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{nil}}),
		"topic is empty": topic.DefineConsumer("c",
			topic.ConsumerConfig{Topics: []topic.AnyTopic{topic.Define[int]("")}}),
		"at most 100": topic.DefineConsumer("c",
			topic.ConsumerConfig{Topics: slices.Repeat([]topic.AnyTopic{numbers}, 101)}),
		`Queue is "other", from which the worker does not claim`: topic.DefineConsumer("c",
			topic.ConsumerConfig{Queue: "other"}),
		"LeastWake is -1ns: give at least a millisecond": topic.DefineConsumer("c",
			topic.ConsumerConfig{LeastWake: -1}),
		"MostWake 1m0s is less than LeastWake 1h0m0s": topic.DefineConsumer("c",
			topic.ConsumerConfig{LeastWake: time.Hour, MostWake: time.Minute}),
		"Priority is 9: use 1 (first) to 4 (last)":    topic.DefineConsumer("c", topic.ConsumerConfig{Priority: 9}),
		`Group "a\nb" contains the control character`: topic.DefineConsumer("c", topic.ConsumerConfig{Group: "a\nb"}),
		"Timeout is -1ns: it must not be negative":    topic.DefineConsumer("c", topic.ConsumerConfig{Timeout: -1}),
		"Backoff": topic.DefineConsumer("c",
			topic.ConsumerConfig{RetryPolicy: kagzi.RetryPolicy{Backoff: -1}}),
		`handler of "nil": the function is nil`: topic.DefineConsumer("nil",
			topic.ConsumerConfig{}),
		`two handlers for version 1 of workflow "twice"`: topic.DefineConsumer("twice",
			topic.ConsumerConfig{}),
		"the worker has several queues: set ConsumerConfig.Queue to one of them": topic.DefineConsumer("several",
			topic.ConsumerConfig{}),
	} {
		var cfg kagzi.WorkerConfig
		if c.Name() == "several" {
			cfg.Queues = map[string]int{"a": 1, "b": 1}
		}
		w, err := kagzi.NewWorker(k.Client, cfg)
		must(t, err)
		fn := counts
		switch c.Name() {
		case "nil":
			fn = nil
		case "twice":
			topic.Consume(w, c, fn)
		}
		topic.Consume(w, c, fn)
		if err := w.Run(k.Ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := topic.New(k.Client).Trigger(k.Ctx, topic.Consumer{}); err == nil ||
		!strings.Contains(err.Error(), "the consumer's name is empty") {
		t.Error(err)
	}
}

// A wrong call in the function of a consumer fails the run, whatever the function does with the error.
func TestWrongCallsOfConsumers(t *testing.T) {
	k := kit.New(t)
	words := topic.Define[string]("words")
	calls := []struct {
		want string
		call func(kagzi.Context) error
	}{
		{`the consumer has no topic "words": add it to ConsumerConfig.Topics`, func(ctx kagzi.Context) error {
			_, err := topic.Peek(ctx, "x", words, 1)
			return err
		}},
		{"Peek of 0 events: give between 1 and 10,000", func(ctx kagzi.Context) error {
			_, err := topic.Peek(ctx, "x", numbers, 0)
			return err
		}},
		{"the Peek's name is empty", func(ctx kagzi.Context) error {
			_, err := topic.Peek(ctx, "", numbers, 1)
			return err
		}},
		{"the Reserve's name is empty", func(ctx kagzi.Context) error { return topic.Reserve[int](ctx, "") }},
		{`event "foreign" at position 99 does not come from a Peek of this run`, func(ctx kagzi.Context) error {
			return topic.Reserve(ctx, "x", topic.Event[int]{ID: "foreign", Position: 99})
		}},
		{"WakeAt is in the year", func(ctx kagzi.Context) error { return topic.WakeAt(ctx, time.Unix(1<<50, 0)) }},
		{"a durable operation inside of a step", func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "step", func(context.Context) error {
				_, err := topic.Peek(ctx, "x", numbers, 1)
				return err
			}, kagzi.RetryPolicy{MaxAttempts: 1})
		}},
	}
	c := topic.DefineConsumer("c", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{numbers}, IgnoreFailure: true,
		LeastWake: time.Millisecond,
	})
	next, errs := make(chan func(kagzi.Context) error, 1), make(chan error)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	topic.Consume(w, c, func(ctx kagzi.Context, n int) (int, error) {
		select {
		case call := <-next:
			errs <- call(ctx)
		default:
		}
		return n + 1, nil
	})
	plain := kagzi.Define[int, int]("plain")
	kagzi.Handle(w, plain, func(ctx kagzi.Context, n int) (int, error) {
		_, err := topic.Peek(ctx, "x", numbers, 1)
		return n, errors.Join(err, topic.Reserve[int](ctx, "y"), topic.WakeAt(ctx, ctx.Now()))
	})
	kit.StartWorker(t, w)
	for i, call := range calls {
		next <- call.call
		await.True(t, "the consumer is there", func() bool { return topic.New(k.Client).Trigger(k.Ctx, c) == nil })
		if err := await.Receive(t, errs); err == nil || !strings.Contains(err.Error(), call.want) {
			t.Errorf("call %d: got %v, want %q", i, err, call.want)
		}
	}
	run, err := kagzi.Start(k.Ctx, k.Client, plain, 1)
	must(t, err)
	if _, err := run.Result(k.Ctx); !errors.Is(err, kind.BadRequest) ||
		!strings.Contains(err.Error(), "is for the function of a consumer") {
		t.Error(err)
	}
}

// A state that the function's new type does not decode stops the consumer, which goes on with the state once other code
// is deployed.
func TestStateOfAnotherType(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{})
	stop := serveConsumer(k, c, counts)
	last := func() kagzi.RunInfo {
		runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{Workflow: "c", Limit: 1, Payloads: true})
		if err != nil || len(runs) == 0 {
			return kagzi.RunInfo{}
		}
		return runs[0]
	}
	await.True(t, "the first run has ended", func() bool { return last().Status == kagzi.StatusCompleted })
	must(t, stop())

	stop = serveConsumer(k, c, func(_ kagzi.Context, s struct{ N int }) (struct{ N int }, error) { return s, nil })
	must(t, topic.New(k.Client).Trigger(k.Ctx, c))
	target := admin.Target{Group: c.Group()}
	await.True(t, "the consumer is paused", func() bool {
		pauses, err := admin.New(k.Client).Pauses.List(k.Ctx)
		return err == nil && len(pauses) == 1 && pauses[0].Target == target
	})
	run := last()
	if run.Kind != kind.BadInput || !strings.Contains(run.Error, "the consumer's state does not decode into struct { "+
		"N int }") || !strings.Contains(run.Error, "unpause the consumer's group") {
		t.Errorf("the run is %s (%s): %s", run.Status, run.Kind, run.Error)
	}
	must(t, stop())

	serveConsumer(k, c, counts)
	must(t, admin.New(k.Client).Pauses.End(k.Ctx, target))
	await.True(t, "the next run has the state", func() bool { return string(last().Output) == "2" })
}

// An event that does not decode comes with the error of Peek, so that a function can put it aside.
func TestPeekOfAnEventThatDoesNotDecode(t *testing.T) {
	k := kit.New(t)
	words := topic.Define[string](numbers.Name())
	must(t, topic.New(k.Client).PublishMany(k.Ctx, []topic.NewEvent{
		numbers.With(1), words.With("two").WithID("bad"),
		numbers.With(3),
	}))
	type seen struct {
		Sum  int
		Bad  []kagzi.ID
		Runs int
	}
	done := make(chan seen, 10)
	serveConsumer(k, topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}}),
		func(ctx kagzi.Context, s seen) (seen, error) {
			events, err := topic.Peek(ctx, "new", numbers, 10)
			if err := topic.Reserve(ctx, "all", events...); err != nil {
				return s, err
			}
			if err != nil && len(events) > 0 {
				s.Bad = append(s.Bad, events[len(events)-1].ID)
				more, err := topic.Peek(ctx, "behind it", numbers, 10)
				if err := errors.Join(err, topic.Reserve(ctx, "the rest", more...)); err != nil {
					return s, err
				}
				events = append(events, more...)
			}
			for _, e := range events {
				s.Sum += e.Payload
			}
			s.Runs++
			done <- s
			return s, nil
		})
	if s := await.Receive(t, done); s.Sum != 4 || !slices.Equal(s.Bad, []kagzi.ID{"bad"}) {
		t.Errorf("saw %+v", s)
	}
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(5)))
	if s := await.Receive(t, done); s.Sum != 9 || s.Runs != 2 || len(s.Bad) != 1 {
		t.Errorf("then saw %+v", s)
	}
}

// Runs of the application cannot have the IDs of runs of consumers: they would keep these from starting.
func TestIDsOfConsumersAreReserved(t *testing.T) {
	k := kit.New(t)
	id := kagzi.ID("consumer c")
	if _, err := kagzi.Start(k.Ctx, k.Client, kit.Report, "in", id); err == nil ||
		!strings.Contains(err.Error(), "give another one") {
		t.Errorf("Start: %v", err)
	}
	run := kit.Begin(k, kit.Report, "in")
	must(t, admin.New(k.Client).Runs.Terminate(k.Ctx, run))
	if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, run, id); err == nil ||
		!strings.Contains(err.Error(), "give another one") {
		t.Errorf("Restart: %v", err)
	}
	if _, err := k.Client.Get(k.Ctx, id); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
}
