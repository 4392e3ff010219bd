package topic

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// WaitEvent returns the event of the topic that has the ID ([NewEvent.WithID]), recorded under name; the rules of
// [kagzi.Step]'s names apply. If it is not published yet, WaitEvent waits for it. Meanwhile the run holds no goroutine,
// slot or connection. Any number of runs may wait for an event, and each gets it.
//
// With a [kagzi.Timeout], WaitEvent returns [kagzi.ErrNoMessage], a *[kagzi.StepError] of [kind.Timeout], if the event
// was not published in time. That is recorded, too.
//
// An event that does not decode into T comes with an error, its Position and its ID. WaitEvent returns another error if
// the call is wrong or the branch was cancelled. An event that is too old is removed, and not found: see
// docs/topics.md.
func WaitEvent[T any](ctx kagzi.Context, name string, t Topic[T], id kagzi.ID,
	timeout ...kagzi.Timeout,
) (Event[T], error) {
	b, client, err := branchOf(ctx)
	if err != nil {
		return Event[T]{}, err
	}
	limit, invalid := core.WaitTimeout(timeout)
	run, err := uuid.Parse(string(ctx.RunID()))
	w := waiter{client: client, wait: store.EventWait{
		WaitedEvent: store.WaitedEvent{Topic: t.name, ID: string(id)}, RunID: run,
	}}
	row, err := b.Receive(replay.SignalSpec{
		Kind: store.KindEvent, Step: name, BadName: valid.StepName("wait", name),
		Invalid: cmp.Or(err, invalid, validEvent(t, id)),
		Timeout: limit, Ask: w.ask, Awaits: t.name + "/" + string(id),
		Decode: func([]byte, bool) error { return nil }, // the caller gets an event that does not decode
	})
	if err != nil {
		return Event[T]{}, err
	}
	return readEvent(client, t, store.EventOf(row.Input, row.Output))
}

// validEvent returns why no event of the topic can have the ID.
func validEvent[T any](t Topic[T], id kagzi.ID) error {
	switch {
	case t.own:
		return errors.New("kagzi: Kagzi gives the events of this topic their IDs: wait for a run with " +
			"kagzi.StartChild, or read the topic with a consumer")
	case id == "":
		return errors.New("kagzi: the event's ID is empty: give the one that its publisher sets with WithID")
	}
	return cmp.Or(valid.Topic(t.name), valid.Name("event ID", string(id)))
}

// A waiter waits for an event from a workflow.
type waiter struct {
	client *core.Client
	wait   store.EventWait
	open   int64 // above zero: a transaction that was under way up to this position may publish the event
}

// ask registers the wait, unless it has done so, and sends the run the event if that is published.
func (w *waiter) ask(ctx context.Context, step string, _ int) (soon bool, err error) {
	w.wait.Step = step
	var e *store.Event
	if w.open > 0 {
		e, w.open, err = w.client.Store.Topics.Find(ctx, w.wait.WaitedEvent, w.open)
	} else {
		e, w.open, err = w.client.Topics.Await(ctx, &w.wait)
	}
	if err != nil || e == nil {
		return w.open > 0, err
	}
	return false, w.client.Hints.SendReply(ctx, w.wait.Message(e))
}

// Await returns the event of the topic that has the ID ([NewEvent.WithID]). If it is not published yet, Await waits for
// it until ctx ends, and looks for it at least once a second. It is for programs: see [WaitEvent] for workflows.
//
// An event whose payload does not decode into T comes with an error, its Position and its ID.
func Await[T any](ctx context.Context, client *kagzi.Client, t Topic[T], id kagzi.ID) (Event[T], error) {
	c := client.Core()
	row, err := await(ctx, c, t, id)
	if err != nil {
		return Event[T]{}, c.FailedIf(ctx, err, "wait for event %s of %s", text.Quote(string(id)),
			cmp.Or(t.name, "a topic"))
	}
	return readEvent(c, t, *row)
}

func await[T any](ctx context.Context, c *core.Client, t Topic[T], id kagzi.ID) (*store.Event, error) {
	if err := cmp.Or(validEvent(t, id), c.Usable(ctx)); err != nil {
		return nil, err
	}
	if err := c.CheckSchema(ctx, nil); err != nil {
		return nil, err
	}
	var p pauses
	for {
		next := published(c, t.name)
		row, _, err := c.Store.Topics.Find(ctx, store.WaitedEvent{Topic: t.name, ID: string(id)}, 0)
		if row != nil || err != nil && pg.Classify(err) != pg.ClassLate { // the server may end the call just before ctx
			return row, err
		}
		if err := p.wait(ctx, c, next); err != nil {
			return nil, err
		}
	}
}
