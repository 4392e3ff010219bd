package topic_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
)

// A consumer that counts mails by sender. Its state is what the last run has returned.
func ExampleConsume() {
	ctx, _, client, worker := setup()
	defer teardown()

	counter := topic.DefineConsumer("counter", topic.ConsumerConfig{Topics: []topic.AnyTopic{Received}})
	counted := make(chan map[string]int)
	topic.Consume(worker, counter, func(ctx kagzi.Context, counts map[string]int) (map[string]int, error) {
		mails, err := topic.Peek(ctx, "new", Received, 100)
		if err != nil || len(mails) == 0 {
			return counts, err
		}
		if counts == nil { // the first run
			counts = map[string]int{}
		}
		for _, m := range mails {
			counts[m.Payload.From]++
		}
		if err := kagzi.Do(ctx, "show", func(context.Context) error { counted <- counts; return nil }); err != nil {
			return counts, err
		}
		return counts, topic.Reserve(ctx, "new", mails...)
	})
	serve(ctx, worker)

	for _, from := range []string{"Ada", "Bob", "Ada"} {
		if err := topic.New(client).Publish(ctx, Received.With(Mail{From: from})); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(<-counted)
	}
	// Output:
	// map[Ada:1]
	// map[Ada:1 Bob:1]
	// map[Ada:2 Bob:1]
}

// A run for each batch of three, or of what has come within a tenth of a second.
func ExampleConsumeBatch() {
	ctx, _, client, worker := setup()
	defer teardown()

	writer := topic.DefineConsumer("writer", topic.ConsumerConfig{Topics: []topic.AnyTopic{Received}})
	written := make(chan int)
	topic.ConsumeBatch(worker, writer, Received, topic.Batch{Most: 3, Within: 100 * time.Millisecond},
		func(ctx kagzi.Context, mails []topic.Event[Mail]) error {
			return kagzi.Do(ctx, "write", func(context.Context) error { written <- len(mails); return nil })
		})

	for range 5 {
		_ = topic.New(client).Publish(ctx, Received.With(Mail{From: "Ada"}))
	}
	serve(ctx, worker)
	fmt.Println(<-written, <-written)
	// Output: 3 2
}

// A batch of three, or what has come within a tenth of a second.
func ExampleWakeAt() {
	ctx, _, client, worker := setup()
	defer teardown()

	const most, patience = 3, 100 * time.Millisecond
	writer := topic.DefineConsumer("writer", topic.ConsumerConfig{
		Topics:    []topic.AnyTopic{Received},
		LeastWake: patience,
	})
	batches := make(chan []string)
	topic.Consume(worker, writer, func(ctx kagzi.Context, written int) (int, error) {
		mails, err := topic.Peek(ctx, "new", Received, most)
		if err != nil || len(mails) == 0 {
			return written, err
		}
		if late := mails[0].PublishedAt.Add(patience); len(mails) < most && ctx.Now().Before(late) {
			return written, topic.WakeAt(ctx, late) // reserves nothing: another mail makes it run before
		}
		var subjects []string
		for _, m := range mails {
			subjects = append(subjects, m.Payload.Subject)
		}
		if err := kagzi.Do(ctx, "write", func(context.Context) error { batches <- subjects; return nil }); err != nil {
			return written, err
		}
		return written + len(mails), topic.Reserve(ctx, "written", mails...)
	})
	serve(ctx, worker)

	var mails []topic.NewEvent
	for _, subject := range []string{"one", "two", "three", "four"} {
		mails = append(mails, Received.With(Mail{Subject: subject}))
	}
	if err := topic.New(client).PublishMany(ctx, mails); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-batches)
	fmt.Println(<-batches)
	// Output:
	// [one two three]
	// [four]
}

// Of the consumers of a group one runs at a time, and the one with the oldest event goes first.
func ExampleDefineConsumer_group() {
	ctx, _, client, worker := setup()
	defer teardown()

	bounced := topic.Define[Mail]("mail.bounced")
	consumer := func(name string, about topic.Topic[Mail]) {
		c := topic.DefineConsumer(name, topic.ConsumerConfig{Topics: []topic.AnyTopic{about}, Group: "mail"})
		topic.Consume(worker, c, func(ctx kagzi.Context, n int) (int, error) {
			mails, err := topic.Peek(ctx, "new", about, 100)
			if err != nil {
				return n, err
			}
			if err := kagzi.Do(ctx, "show", func(context.Context) error {
				fmt.Println(name, "has", len(mails))
				return nil
			}); err != nil {
				return n, err
			}
			return n + len(mails), topic.Reserve(ctx, "new", mails...)
		})
	}
	consumer("archive", Received)
	consumer("complain", bounced)

	for _, e := range []topic.NewEvent{
		bounced.With(Mail{}), Received.With(Mail{}), Received.With(Mail{}),
		bounced.With(Mail{}),
	} {
		if err := topic.New(client).Publish(ctx, e); err != nil {
			fmt.Println(err)
		}
	}
	serve(ctx, worker)
	for done := 0; done < 2 && ctx.Err() == nil; {
		runs, _ := client.List(ctx, kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusCompleted}})
		done = len(runs)
	}
	// Output:
	// complain has 2
	// archive has 2
}

// A run that fails for good pauses the group of its consumer. The events wait, and Pauses.End lets it go on with them.
func ExampleConsume_failure() {
	ctx, _, client, worker := setup()
	defer teardown()

	archive := topic.DefineConsumer("archive", topic.ConsumerConfig{Topics: []topic.AnyTopic{Received}})
	var full atomic.Bool
	full.Store(true)
	archived := make(chan string)
	topic.Consume(worker, archive, func(ctx kagzi.Context, n int) (int, error) {
		mails, err := topic.Peek(ctx, "new", Received, 1)
		if err != nil || len(mails) == 0 {
			return n, err
		}
		err = kagzi.Do(ctx, "store", func(context.Context) error {
			if full.Load() {
				return errors.New("the disk is full")
			}
			archived <- mails[0].Payload.Subject
			return nil
		})
		if err != nil {
			return n, err
		}
		return n + 1, topic.Reserve(ctx, "stored", mails...)
	})
	if err := topic.New(client).Publish(ctx, Received.With(Mail{Subject: "Invoice"})); err != nil {
		fmt.Println(err)
		return
	}
	serve(ctx, worker)

	var pauses []admin.Pause
	for len(pauses) == 0 && ctx.Err() == nil {
		pauses, _ = admin.New(client).Pauses.List(ctx)
	}
	fmt.Println("paused by", pauses[0].Actor, pauses[0].Target == admin.Target{Group: archive.Group()})

	full.Store(false) // there is room again
	fmt.Println(admin.New(client).Pauses.End(ctx, pauses[0].Target))
	fmt.Println(<-archived)
	// Output:
	// paused by kagzi true
	// <nil>
	// Invoice
}

// A run by hand, of a consumer without topics.
func ExampleClient_Trigger() {
	ctx, _, client, worker := setup()
	defer teardown()

	index := topic.DefineConsumer("index", topic.ConsumerConfig{})
	fmt.Println(topic.New(client).Trigger(ctx, index))

	built := make(chan int)
	topic.Consume(worker, index, func(ctx kagzi.Context, n int) (int, error) {
		return n + 1, kagzi.Do(ctx, "build", func(context.Context) error { built <- n + 1; return nil })
	})
	serve(ctx, worker)
	fmt.Println("build", <-built) // a new consumer runs once
	fmt.Println(topic.New(client).Trigger(ctx, index))
	fmt.Println("build", <-built)
	// Output:
	// kagzi: trigger consumer "index": consumer not found: a worker with its function stores it
	// build 1
	// <nil>
	// build 2
}
