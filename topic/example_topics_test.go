package topic_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/topic"
)

// Those who publish and those who read share the topic.
var Received = topic.Define[Mail]("mail.received")

type Mail struct{ From, Subject string }

func ExampleClient_Publish() {
	ctx, _, client, _ := setup()
	defer teardown()

	for _, m := range []struct {
		id string
		Mail
	}{{"<1@ada>", Mail{"Ada", "Invoice"}}, {"<2@bob>", Mail{"Bob", "Hello"}}, {"<1@ada>", Mail{"Ada", "Invoice"}}} {
		e := Received.With(m.Mail).WithID(kagzi.ID(m.id)).Title("Mail from " + m.From)
		if err := topic.New(client).Publish(ctx, e); err != nil {
			fmt.Println(err)
		}
	}
	for e, err := range topic.Events(ctx, client, Received, 0) {
		fmt.Println(e.Title, e.Payload.Subject, err)
	}
	// Output:
	// Mail from Ada Invoice <nil>
	// Mail from Bob Hello <nil>
}

// With InTx an event is published if the transaction commits.
func ExampleClient_Publish_inTx() {
	ctx, pool, client, _ := setup()
	defer teardown()

	for _, late := range []bool{true, false} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := topic.New(client).Publish(ctx, Received.With(Mail{Subject: fmt.Sprint("late: ", late)}),
				kagzi.InTx(tx)); err != nil || !late {
				return err
			}
			return errors.New("the disk is full")
		})
		fmt.Println(err)
	}
	for e := range topic.Events(ctx, client, Received, 0) {
		fmt.Println(e.Payload.Subject)
	}
	// Output:
	// the disk is full
	// <nil>
	// late: false
}

// A reader goes on from the position of the last event that it has seen.
func ExampleEvents() {
	ctx, _, client, _ := setup()
	defer teardown()

	var last int64
	for _, subject := range []string{"one", "two"} {
		if err := topic.New(client).Publish(ctx, Received.With(Mail{Subject: subject})); err != nil {
			fmt.Println(err)
		}
		for e, err := range topic.Events(ctx, client, Received, last) {
			if err != nil {
				fmt.Println(err)
				break
			}
			fmt.Println("new:", e.Payload.Subject)
			last = e.Position
		}
	}
	// Output:
	// new: one
	// new: two
}

// A workflow publishes events in the transaction of a record: a replay publishes nothing again.
func ExamplePublish() {
	ctx, _, client, worker := setup()
	defer teardown()

	answer := kagzi.Define[Mail, string]("answer")
	kagzi.Handle(worker, answer, func(ctx kagzi.Context, m Mail) (string, error) {
		text, err := kagzi.Step(ctx, "write", func(context.Context) (string, error) { return "Dear " + m.From, nil })
		if err != nil {
			return "", err
		}
		return text, topic.Publish(ctx, "tell", Received.With(Mail{From: "us", Subject: "Re: " + m.Subject}))
	})
	serve(ctx, worker)

	run, err := kagzi.Start(ctx, client, answer, Mail{"Ada", "Invoice"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Result(ctx))
	for e, err := range topic.Events(ctx, client, Received, 0) {
		fmt.Println(e.Payload.Subject, err)
	}
	// Output:
	// Dear Ada <nil>
	// Re: Invoice <nil>
}

// The starts and ends of runs are events of a topic.
func ExampleRunEvent() {
	ctx, pool, _, _ := setup()
	defer teardown()

	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{RunEvents: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := kagzi.Start(ctx, client, kagzi.Define[Mail, string]("answer"), Mail{}, kagzi.ID("mail-1"))
	if err == nil {
		err = client.Cancel(ctx, run.ID())
	}
	fmt.Println(err)
	for e, err := range topic.Events(ctx, client, topic.Runs, 0) {
		fmt.Println(e.Payload.Workflow, e.Payload.ID, e.Payload.Status, err)
	}
	// Output:
	// <nil>
	// answer mail-1 PENDING <nil>
	// answer mail-1 CANCELLED <nil>
}
