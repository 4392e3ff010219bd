package topic

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Client publishes events from outside of workflows, and triggers consumers. It is safe for concurrent use, and needs
// no Close.
type Client struct{ core *core.Client }

// New returns the Client of c's namespace. It does no I/O. If c is nil, each method returns an error.
func New(c *kagzi.Client) *Client { return &Client{c.Core()} }

// of returns the core of the client, nil if there is none.
func of(c *Client) *core.Client {
	if c == nil {
		return nil
	}
	return c.core
}

// A scope is a kagzi.Context.
type scope interface {
	Engine() *replay.Branch
	Core() *core.Client
}

// branchOf returns the branch behind ctx, and the client of its worker.
func branchOf(ctx kagzi.Context) (*replay.Branch, *core.Client, error) {
	s, ok := ctx.(scope)
	if !ok {
		return nil, nil, core.ErrNilContext
	}
	return s.Engine(), s.Core(), nil
}

// Publish stores an event. It returns once the event is stored, and needs no reader.
//
// An event whose ID ([NewEvent.WithID]) the topic has already is not stored again, whatever its payload, and Publish
// returns nil. Without an ID the event gets one of its own. In a step, with the step's ctx, that ID keeps further
// attempts from publishing the event again: see docs/topics.md.
//
// With [kagzi.InTx], the only option, the event is published when the transaction commits; with that of a
// [kagzi.StepTx], together with the step's record. Until then readers of the topic stop before later events, and calls
// with the same ID wait: commit soon.
//
// Publish returns [kagzi.ErrPayloadTooLarge], and an error for an empty topic or a bad ID.
func (c *Client) Publish(ctx context.Context, e NewEvent, opts ...kagzi.ChangeOption) error {
	return of(c).FailedIf(ctx, c.publish(ctx, []NewEvent{e}, opts), "publish in %s", cmp.Or(e.topic, "a topic"))
}

// PublishMany stores all events or none, of one topic or of up to 1,000, in the order of the call. All are in memory at
// once. It waits as [Client.Publish] does, and returns the same errors.
func (c *Client) PublishMany(ctx context.Context, events []NewEvent, opts ...kagzi.ChangeOption) error {
	return of(c).FailedIf(ctx, c.publish(ctx, events, opts), "publish %d events", len(events))
}

// mostTopics bounds the topics of one call.
const mostTopics = 1000

func (c *Client) publish(ctx context.Context, events []NewEvent, opts []kagzi.ChangeOption) error {
	cfg, err := core.Changes(opts, []string{"InTx"})
	if err := cmp.Or(err, of(c).Usable(ctx)); err != nil {
		return err
	}
	rows, topics := make([]*store.NewEvent, len(events)), map[string]bool{}
	for i, e := range events {
		if topics[e.topic] = true; len(topics) > mostTopics {
			return fmt.Errorf("kagzi: the events are of more than %d topics, each of which takes a lock of the "+
				"server: make several calls, each in a transaction of its own", mostTopics)
		}
		if rows[i], err = newEvent(ctx, c.core, e); err != nil {
			return ofEvents(events, i, err)
		}
	}
	if err := of(c).CheckSchema(ctx, cfg.Tx); err != nil {
		return err
	}
	return c.core.Topics.Publish(ctx, cfg.Tx, rows)
}

// Trigger makes a run of the consumer due now, whether there are events or not. While one is active, another one
// follows it. With [kagzi.RejectActive] it does nothing and returns [kagzi.ErrRunActive] while a run of the consumer,
// or another run of its group, is active. The other options are [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor]. Trigger
// returns [kagzi.ErrNotFound] if no worker has stored the consumer yet.
func (c *Client) Trigger(ctx context.Context, consumer Consumer, opts ...kagzi.ChangeOption) error {
	cfg, err := core.Changes(opts, core.Takes("IfActive"))
	if err = cmp.Or(err, of(c).Usable(ctx), valid.Consumer(consumer.name)); err == nil {
		err = of(c).CheckSchema(ctx, cfg.Tx)
	}
	if err == nil {
		var due store.DueRun
		if due, err = c.core.Store.Consumers.Trigger(ctx, cfg.Tx, consumer.name, cfg.Reject, cfg.Why); err == nil {
			err = c.core.Hints.Due(ctx, cfg.Tx, due)
		}
	}
	return of(c).FailedIf(ctx, err, "trigger consumer %s", text.Quote(consumer.name))
}
