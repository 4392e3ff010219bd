package operations_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// In a rolling deployment, a worker of the old program may execute a run that an event of a new topic has made due. It
// does not know the topic. A worker of the new program gets the event nevertheless.
func TestOldProgramDoesNotKnowATopic(t *testing.T) {
	k := kit.New(t)
	words := topic.Define[string]("words")
	ran := make(chan string, 100)
	program := func(name string, topics []topic.AnyTopic) (stop func() error) {
		c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: topics, LeastWake: 500 * time.Millisecond})
		stop = serveConsumer(k, c, func(ctx kagzi.Context, n int) (int, error) {
			saw := name
			if len(topics) > 1 {
				events, err := topic.Peek(ctx, "new", words, 10)
				if err != nil {
					return n, err
				}
				for _, e := range events {
					saw += " " + e.Payload
				}
				if err := topic.Reserve(ctx, "new", events...); err != nil {
					return n, err
				}
			}
			ran <- saw
			return n + 1, nil
		})
		await.True(t, "the program's topics are subscribed", func() bool {
			var n int
			err := k.Pool.QueryRow(k.Ctx, `SELECT count(*) FROM kagzi.subscriptions WHERE subscribed`).Scan(&n)
			return err == nil && n == len(topics)
		})
		return stop
	}
	until := func(want string) {
		for got := ""; got != want; {
			got = await.Receive(t, ran)
		}
	}
	stopOld := program("old", []topic.AnyTopic{numbers})
	until("old")
	must(t, program("new", []topic.AnyTopic{numbers, words})())
	must(t, topic.New(k.Client).Publish(k.Ctx, words.With("x")))
	until("old")
	must(t, stopOld())
	program("new", []topic.AnyTopic{numbers, words})
	until("new x")
}
