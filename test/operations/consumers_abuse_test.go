package operations_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// What branches reserve is the same in a replay. The reservations of one that has lost a Race or has failed go back.
func TestReserveInBranches(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	for i := range 6 {
		must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(i)))
	}
	seen := make(chan []int, 10)
	serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		if last > 0 {
			events, err := topic.Peek(ctx, "rest", numbers, 10)
			var rest []int
			for _, e := range events {
				rest = append(rest, e.Payload)
			}
			seen <- rest
			return last, err
		}
		events, err := topic.Peek(ctx, "all", numbers, 10)
		if err != nil {
			return 0, err
		}
		fails := kagzi.Go(ctx, "fails", func(ctx kagzi.Context) (int, error) {
			return 0, errors.Join(topic.Reserve(ctx, "r", events[5]), errors.New("failed"))
		})
		if _, err := fails.Result(ctx); err == nil {
			return 0, errors.New("the branch has not failed")
		}
		winner, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"loser": func(ctx kagzi.Context) (int, error) {
				if err := topic.Reserve(ctx, "r", events[1]); err != nil {
					return 0, err
				}
				return 0, kagzi.Sleep(ctx, "long", time.Hour)
			},
			"winner": func(ctx kagzi.Context) (int, error) {
				if err := kagzi.Sleep(ctx, "short", time.Second); err != nil {
					return 0, err
				}
				return 1, topic.Reserve(ctx, "r", events[3])
			},
		})
		if err != nil || winner != "winner" {
			return 0, errors.Join(err, errors.New(winner))
		}
		if err := kagzi.Sleep(ctx, "pause", time.Second); err != nil { // suspends the run
			return 0, err
		}
		more, err := topic.Peek(ctx, "more", numbers, 10)
		if err != nil {
			return 0, err
		}
		var got []int
		for _, e := range more {
			got = append(got, e.Payload)
		}
		seen <- got
		return 1, kagzi.Sleep(ctx, "pause again", time.Second)
	})
	if got := await.Receive(t, seen); !slices.Equal(got, []int{0, 1, 2, 4, 5}) {
		t.Errorf("saw %v", got)
	}
	must(t, topic.New(k.Client).Trigger(k.Ctx, c))
	if got := await.Receive(t, seen); !slices.Equal(got, []int{0, 1, 2, 4, 5}) {
		t.Errorf("saw %v", got)
	}
}

// A client starts the consumer's workflow by its name: no run of it may see events beside that of the consumer.
func TestStartOfConsumersWorkflow(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(7)))
	took, held := make(chan int, 10), make(chan struct{})
	defer close(held)
	serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 10)
		if err != nil {
			return 0, err
		}
		if err := topic.Reserve(ctx, "all", events...); err != nil {
			return 0, err
		}
		for _, e := range events {
			took <- e.Payload
		}
		if err := kagzi.Do(ctx, "hold", func(context.Context) error { <-held; return nil }); err != nil {
			return 0, err
		}
		return 1, nil
	})
	await.Receive(t, took)
	run, err := kagzi.Start(k.Ctx, k.Client, kagzi.Define[int, int]("c"), 1)
	must(t, err)
	_, err = run.Result(k.Ctx)
	kit.MustContain(t, err, "validation", "Trigger of package topic")
	select {
	case n := <-took:
		t.Errorf("took %d again", n)
	default:
	}
}

// The history of a consumer's run is verified as that of others.
func TestReplayOfConsumer(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(7)))
	runs := make(chan kagzi.RunID, 10)
	fn := func(ctx kagzi.Context, last int) (int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 10)
		if err != nil {
			return 0, err
		}
		if err := topic.Reserve(ctx, "all", events...); err != nil {
			return 0, err
		}
		select {
		case runs <- ctx.RunID():
		default:
		}
		return len(events) + last, topic.WakeAt(ctx, ctx.Now().Add(time.Hour))
	}
	serveConsumer(k, c, fn)
	id := await.Receive(t, runs)
	k.WaitStatus(id, kagzi.StatusCompleted)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	topic.Consume(w, c, fn)
	must(t, w.Replay(k.Ctx, id))
}

// A run that goes on with code that peeks at another topic under the same name does not take the one's events for the
// other's.
func TestPeekAtAnotherTopic(t *testing.T) {
	k := kit.New(t)
	others := topic.Define[int]("others")
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers, others}})
	must(t, topic.New(k.Client).Publish(k.Ctx, others.With(1)))
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(2)))
	ids := make(chan kagzi.RunID, 10)
	about := numbers // only the consumer uses it
	serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		events, err := topic.Peek(ctx, "new", about, 10)
		if err != nil {
			return 0, err
		}
		about = others
		ids <- ctx.RunID()
		if err := kagzi.Sleep(ctx, "pause", time.Second); err != nil {
			return 0, err
		}
		return 0, topic.Reserve(ctx, "all", events...)
	})
	info := k.WaitStatus(await.Receive(t, ids), kagzi.StatusFailed)
	kit.MustContain(t, errors.New(info.Error), "numbers", "others")
}
