package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
)

var Filed = topic.DefineConsumer("file-mails", topic.ConsumerConfig{Topics: []topic.AnyTopic{Received}, Group: "mail"})

// fileMails files one mail in a run. It fails at mails without a subject.
func fileMails(ctx kagzi.Context, filed int) (int, error) {
	mails, err := topic.Peek(ctx, "next", Received, 1)
	if err != nil || len(mails) == 0 {
		return filed, err
	}
	if mails[0].Payload.Subject == "" {
		return filed, errors.New("a mail has no subject")
	}
	return filed + 1, topic.Reserve(ctx, "it", mails...)
}

// eventually waits until done reports true.
func eventually(done func() bool) {
	for !done() {
		time.Sleep(10 * time.Millisecond)
	}
}

// Before the worker starts, no consumer subscribes.
func ExampleTopics_List() {
	ctx, _, client, worker := setup()
	defer teardown()
	if err := topic.New(client).Publish(ctx, Received.With(Mail{"Ada", "Invoice"})); err != nil {
		fmt.Println(err)
	}
	show := func() {
		topics, err := admin.New(client).Topics.List(ctx)
		for _, t := range topics {
			fmt.Println(t.Name, t.Events, t.Subscribers, err)
		}
	}
	show()
	topic.Consume(worker, Filed, fileMails)
	serve(ctx, worker)
	eventually(func() bool {
		consumers, _ := admin.New(client).Consumers.List(ctx)
		return len(consumers) == 1
	})
	show()
	// Output:
	// mail.received 1 [] <nil>
	// mail.received 1 [file-mails] <nil>
}

// A consumer that is to run once an hour, besides for each event.
func ExampleConsumers_List() {
	ctx, _, client, worker := setup()
	defer teardown()
	if err := topic.New(client).Publish(ctx, Received.With(Mail{"Ada", "Invoice"})); err != nil {
		fmt.Println(err)
	}
	digest := topic.DefineConsumer("digest", topic.ConsumerConfig{Topics: []topic.AnyTopic{Received}})
	topic.Consume(worker, digest, func(ctx kagzi.Context, _ int) (int, error) {
		mails, err := topic.Peek(ctx, "new", Received, 100) // reserves none, so all stay pending
		if err != nil {
			return 0, err
		}
		return len(mails), topic.WakeAt(ctx, ctx.Now().Add(time.Hour))
	})
	serve(ctx, worker)

	var c admin.ConsumerInfo
	eventually(func() bool {
		if consumers, _ := admin.New(client).Consumers.List(ctx); len(consumers) == 1 {
			c = consumers[0]
		}
		return c.RunStatus == kagzi.StatusCompleted
	})
	fmt.Println(c.Name, c.Group, c.RunStatus, string(c.State), c.NextWake.Sub(c.RunEnded).Round(time.Hour))
	for _, t := range c.Topics {
		fmt.Println(t.Topic, t.Pending, t.More, t.Reserved)
	}
	// Output:
	// digest consumer digest COMPLETED 1 1h0m0s
	// mail.received 1 false 0
}

// A run that fails pauses the consumer. An operator reads why, skips the event, and ends the pause.
func ExampleConsumers_Skip() {
	ctx, _, client, worker := setup()
	defer teardown()
	for i, subject := range []string{"Invoice", "", "Hello"} {
		if err := topic.New(client).Publish(ctx, Received.With(Mail{"Ada", subject}).
			WithID(kagzi.ID(fmt.Sprintf("<%d@ada>", i+1)))); err != nil {
			fmt.Println(err)
		}
	}
	topic.Consume(worker, Filed, fileMails)
	serve(ctx, worker)

	var filed admin.ConsumerInfo
	look := func() admin.ConsumerInfo {
		if consumers, _ := admin.New(client).Consumers.List(ctx); len(consumers) == 1 {
			filed = consumers[0]
		}
		return filed
	}
	eventually(func() bool { return look().Pause != (admin.Pause{}) })
	fmt.Println(filed.Name, filed.RunStatus, string(filed.State), filed.Topics[0].Pending)
	fmt.Println(strings.Replace(filed.Pause.Reason, string(filed.Run), "…", 1))

	fmt.Println(admin.New(client).Consumers.Skip(ctx, Filed, Received, "<2@ada>"))
	fmt.Println(admin.New(client).Pauses.End(ctx, admin.Target{Group: "mail"}))
	eventually(func() bool { return look().Topics[0].Pending == 0 && filed.RunStatus == kagzi.StatusCompleted })
	fmt.Println(filed.Name, filed.RunStatus, string(filed.State))
	// Output:
	// file-mails FAILED 1 2
	// run … of consumer file-mails failed
	// <nil>
	// <nil>
	// file-mails COMPLETED 2
}
