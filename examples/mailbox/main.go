// Mailbox reads a mailbox and writes the emails to a sheet, in batches, and sends a digest of them every day.
//
//	go run ./examples/mailbox
//
// Three workflows know nothing of each other. A schedule starts the producer, which publishes emails in a topic. Two
// consumers of the topic each get every email: one writes rows when ten have come or the first has waited for long
// enough, the other one sends the digest. They share a group, so that only one of them runs at a time.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/examples/internal/demo"
	"github.com/kagzi/kagzi/topic"
)

type Email struct{ ID, From, Subject string }

// Received is the topic. Who publishes in it and who reads it share only this line.
var Received = topic.Define[Email]("email.received")

const group = "mail"

var (
	Fetch   = kagzi.Define[struct{}, int]("fetch-mail", kagzi.Group(group))
	ToSheet = topic.DefineConsumer("email-to-sheet", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{Received},
		Group:  group, LeastWake: time.Second,
	})
	Digest = topic.DefineConsumer("daily-digest", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{Received}, Group: group,
		LeastWake: time.Second,
	})
)

// An office is what the workflows work with.
type office struct {
	client  *kagzi.Client
	mailbox func(context.Context) ([]Email, error)
	// writes the rows from row on: a second time the same ones
	write    func(ctx context.Context, row int, emails []Email) error
	send     func(ctx context.Context, digest string) error
	patience time.Duration             // how long an email waits for others of its batch
	next     func(time.Time) time.Time // when the next digest after that time is due
}

func (o *office) handle(w *kagzi.Worker) {
	kagzi.Handle(w, Fetch, o.fetch)
	topic.Consume(w, ToSheet, o.toSheet)
	topic.Consume(w, Digest, o.digest)
}

// fetch publishes the mailbox. It need not remember what it has published: an event with the same ID is
// stored once.
func (o *office) fetch(ctx kagzi.Context, _ struct{}) (int, error) {
	return kagzi.Step(ctx, "publish", func(ctx context.Context) (int, error) {
		emails, err := o.mailbox(ctx)
		if err != nil {
			return 0, err
		}
		var events []topic.NewEvent
		for _, e := range emails {
			events = append(events, Received.With(e).WithID(kagzi.ID(e.ID)).Title(e.From+": "+e.Subject))
		}
		return len(emails), topic.New(o.client).PublishMany(ctx, events)
	})
}

const batch = 10

// A Cursor is the state of toSheet: what its last run has returned.
type Cursor struct{ Rows int }

// toSheet writes ten emails, or those that there are once the first has waited for long enough.
func (o *office) toSheet(ctx kagzi.Context, last Cursor) (Cursor, error) {
	events, err := topic.Peek(ctx, "new", Received, batch)
	if err != nil || len(events) == 0 {
		return last, err
	}
	if late := events[0].PublishedAt.Add(o.patience); len(events) < batch && ctx.Now().Before(late) {
		return last, topic.WakeAt(ctx, late) // the next email makes it run before
	}
	if err := topic.Reserve(ctx, "batch", events...); err != nil {
		return last, err
	}
	if err := kagzi.Do(ctx, "write", func(ctx context.Context) error {
		return o.write(ctx, last.Rows+1, payloads(events))
	}); err != nil {
		return last, err
	}
	return Cursor{last.Rows + len(events)}, nil
}

// A Plan is the state of digest.
type Plan struct{ Next time.Time }

// digest sends the emails since the last one. An email makes it run, too, before its time: then it asks for that
// time again.
func (o *office) digest(ctx kagzi.Context, plan Plan) (Plan, error) {
	if !plan.Next.IsZero() && ctx.Now().Before(plan.Next) {
		return plan, topic.WakeAt(ctx, plan.Next)
	}
	events, err := topic.Peek(ctx, "new", Received, 1000)
	if err != nil {
		return plan, err
	}
	if !plan.Next.IsZero() && len(events) > 0 { // the first run only plans the next one
		text := fmt.Sprintf("%d emails, the first from %s: %s", len(events), events[0].Payload.From,
			events[0].Payload.Subject)
		if err := kagzi.Do(ctx, "send", func(ctx context.Context) error { return o.send(ctx, text) }); err != nil {
			return plan, err
		}
		if err := topic.Reserve(ctx, "sent", events...); err != nil {
			return plan, err
		}
	}
	plan.Next = o.next(ctx.Now())
	return plan, topic.WakeAt(ctx, plan.Next)
}

// atEight returns the next time that it is eight o'clock, in UTC.
func atEight(now time.Time) time.Time {
	eight := time.Date(now.Year(), now.Month(), now.Day(), 8, 0, 0, 0, time.UTC)
	if !eight.After(now) {
		eight = eight.AddDate(0, 0, 1)
	}
	return eight
}

func payloads(events []topic.Event[Email]) (out []Email) {
	for _, e := range events {
		out = append(out, e.Payload)
	}
	return out
}

func main() {
	written, digests := make(chan string, 100), make(chan string, 100)
	o := &office{
		mailbox: func(context.Context) (inbox []Email, err error) { // a real program asks its mail server
			for i := range 14 {
				inbox = append(inbox, Email{
					ID: fmt.Sprintf("<%d@example.org>", i), From: "Ada",
					Subject: fmt.Sprint("invoice ", i+1),
				})
			}
			return inbox, nil
		},
		write: func(_ context.Context, row int, emails []Email) error {
			written <- fmt.Sprintf("rows %d to %d", row, row+len(emails)-1)
			return nil
		},
		send:     func(_ context.Context, digest string) error { digests <- digest; return nil },
		patience: time.Second,
		next:     func(now time.Time) time.Time { return now.Add(2 * time.Second) }, // a real program: atEight
	}
	demo.Main("mailbox", o.handle, func(ctx context.Context, client *kagzi.Client) error {
		o.client = client
		// a producer: it reads the mailbox now and every minute, unless it is still reading
		err := client.Schedule(ctx, kagzi.Schedule{
			Name: "fetch-mail", Every: time.Minute, FireNew: true, Overlap: kagzi.OverlapSkip,
			Run: Fetch.With(struct{}{}),
		})
		if err != nil {
			return err
		}
		for _, from := range []chan string{written, written, digests} {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case line := <-from:
				fmt.Println(line)
			}
		}
		return client.DeleteSchedule(ctx, "fetch-mail")
	})
}
