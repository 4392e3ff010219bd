package operations_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// serveConsumer starts a worker with the function of a consumer.
func serveConsumer[S any](k *kit.Kit, c topic.Consumer, fn func(kagzi.Context, S) (S, error)) (stop func() error) {
	k.T.Helper()
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	topic.Consume(w, c, fn)
	return kit.StartWorker(k.T, w)
}

// A consumer gets each event once, in order, and its state.
func TestConsumer(t *testing.T) {
	k := kit.New(t)
	sum := topic.DefineConsumer("sum", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	type state struct{ Sum, Runs int }
	states := make(chan state, 1000)
	var want int
	publish := func(n int) {
		t.Helper()
		must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(n)))
		want += n
	}
	for i := range 10 {
		publish(i)
	}
	serveConsumer(k, sum, func(ctx kagzi.Context, last state) (state, error) {
		events, err := topic.Peek(ctx, "new", numbers, 3)
		if err != nil {
			return last, err
		}
		for _, e := range events {
			last.Sum += e.Payload
		}
		last.Runs++
		err = topic.Reserve(ctx, "all", events...)
		states <- last
		return last, err
	})
	for {
		s := await.Receive(t, states)
		if s.Sum == want && s.Runs < 20 {
			publish(100)
		}
		if s.Sum > want {
			t.Fatalf("sum %d, want %d", s.Sum, want)
		}
		if s.Runs >= 20 {
			break
		}
	}
}

// Peek of a run returns the rest once it has reserved some, and a replay the same.
func TestPeekAndReserve(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	for i := range 5 {
		must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(i)))
	}
	seen := make(chan []int, 10)
	serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		var all []int
		for range 3 {
			events, err := topic.Peek(ctx, "some", numbers, 2)
			if err != nil {
				return 0, err
			}
			for _, e := range events {
				all = append(all, e.Payload)
			}
			if err := topic.Reserve(ctx, "take", events...); err != nil {
				return 0, err
			}
		}
		if err := kagzi.Sleep(ctx, "pause", time.Second); err != nil { // suspends the run
			return 0, err
		}
		seen <- all
		return last + len(all), nil
	})
	if got := await.Receive(t, seen); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
		t.Errorf("saw %v", got)
	}
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(5)))
	if got := await.Receive(t, seen); !slices.Equal(got, []int{5}) {
		t.Errorf("saw %v", got)
	}
}

// A consumer that reserves nothing runs once for each event, however many are pending.
func TestConsumerNeverSpins(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	var many []topic.NewEvent
	for i := range 1000 {
		many = append(many, numbers.With(i))
	}
	must(t, topic.New(k.Client).PublishMany(k.Ctx, many))
	runs := make(chan int, 1000)
	stop := serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		_, err := topic.Peek(ctx, "new", numbers, 100)
		runs <- last
		return last + 1, err
	})
	await.Receive(t, runs)
	for range 3 {
		must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(0)))
		await.Receive(t, runs)
	}
	must(t, topic.New(k.Client).Trigger(k.Ctx, c))
	if n := await.Receive(t, runs); n != 4 {
		t.Errorf("%d runs before the last, want 4", n)
	}
	await.True(t, "the last run has ended, and its key was looked at", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE finished_at IS NULL`) == 0 &&
			k.Count(`SELECT count(*) FROM kagzi.key_changes`) == 0
	})
	must(t, stop())
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 5 {
		t.Errorf("%d runs, want 5", n)
	}
}

// A failure pauses the consumer until an operator ends the pause. It has kept its state and its events.
func TestConsumerThatFails(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}, Group: "g"})
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(7)))
	outcomes := make(chan error, 2)
	outcomes <- errors.New("out of order")
	outcomes <- nil
	done := make(chan int, 1)
	serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 10)
		if err != nil {
			return 0, err
		}
		if err := topic.Reserve(ctx, "all", events...); err != nil || len(events) == 0 {
			return last, err
		}
		if err := <-outcomes; err != nil {
			return 100, err
		}
		done <- last + events[0].Payload
		return last, nil
	})
	var pauses []admin.Pause
	await.True(t, "the group is paused", func() bool {
		var err error
		pauses, err = admin.New(k.Client).Pauses.List(k.Ctx)
		return err == nil && len(pauses) == 1
	})
	if pauses[0].Target != (admin.Target{Group: c.Group()}) {
		t.Errorf("paused: %+v", pauses[0])
	}
	must(t, admin.New(k.Client).Pauses.End(k.Ctx, pauses[0].Target))
	if got := await.Receive(t, done); got != 7 {
		t.Errorf("got %d", got)
	}
}

// A run that publishes wakes the consumer, although no worker polls.
func TestARunWakesAConsumer(t *testing.T) {
	k := kit.New(t)
	all := topic.DefineConsumer("all", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	seen := make(chan int, 100)
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.NotifiedOnly)
	topic.Consume(w, all, func(ctx kagzi.Context, _ int) (int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 10)
		if err == nil {
			err = topic.Reserve(ctx, "all", events...)
		}
		for _, e := range events {
			seen <- e.Payload
		}
		if err == nil && len(events) == 0 {
			seen <- 0
		}
		return 0, err
	})
	kit.StartWorker(t, w)
	if n := await.Receive(t, seen); n != 0 { // a new consumer runs once
		t.Fatalf("saw %d", n)
	}
	await.True(t, "the consumer has nothing to do", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status <> 'COMPLETED'`) == 0
	})
	wf := kagzi.Define[int, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		return n, topic.Publish(ctx, "tell", numbers.With(n))
	})
	for n := range 3 {
		kit.ResultOf(k, kit.Begin(k, wf, n+1))
		for got := 0; got != n+1; { // a replay sees it, too
			got = await.Receive(t, seen)
		}
	}
}
