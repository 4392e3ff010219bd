package request

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Ask sends the question to a run and waits for its answer. For a [kagzi.ID], that is the active run that has it.
//
// If the run refuses, the error is a *[Refusal]. If the run ends without an answer, it is [kagzi.ErrRunFinished], with
// a *[kagzi.RunError] unless the run completed. [kagzi.ErrIDConflict] reports another message with the question's ID.
// Ask returns the other errors of [kagzi.Client.Signal] and [kagzi.Start], too.
//
// If ctx ends first, the run may answer yet: ask again, with the same ID. In a step, further attempts do not ask again,
// and the step holds its slot of the worker while it waits.
func Ask[Out any](ctx context.Context, c *kagzi.Client, to Target, q Question[Out]) (out Out, err error) {
	at := core.RefOf(to)
	key, fresh, err := send(ctx, c, to, &q.message, nil)
	if err == nil {
		err = await(ctx, c.Core(), key, fresh, q.name(), &out)
	}
	if err != nil {
		return out, failure.Wrap(err, "ask %v for %q", at, q.name())
	}
	return out, nil
}

// Send sends the question and does not wait: [Ask] with the same question and ID fetches the answer later. It returns
// once the request is stored, with [kagzi.InTx] when the transaction commits. The options are those of
// [kagzi.Client.Signal]; with a [kagzi.Call], InTx is the only one. Send returns the errors of Ask apart from those of
// the answer.
func Send[Out any](ctx context.Context, c *kagzi.Client, to Target, q Question[Out], opts ...kagzi.ChangeOption) error {
	if _, _, err := send(ctx, c, to, &q.message, opts); err != nil {
		return failure.Wrap(err, "send %v request %q", core.RefOf(to), q.name())
	}
	return nil
}

// send sends the request, unless the run has it, and returns its key. fresh says that the run had it not.
func send(ctx context.Context, client *kagzi.Client, to Target, m *kagzi.Message,
	opts []kagzi.ChangeOption,
) (key store.RequestKey, fresh bool, err error) {
	c := client.Core()
	call, isCall := to.(kagzi.Call)
	takes := core.EveryVerb
	if isCall {
		takes = []string{"InTx"}
	}
	cfg, err := core.Changes(opts, takes)
	if err != nil {
		return key, false, err
	}
	if !isCall {
		sent, err := c.Signal(ctx, core.RefOf(to), m.Core(), &cfg)
		return store.RequestKey{RunID: sent.RunID, ID: sent.ID}, !sent.Existed, err
	}
	if err := c.Usable(ctx); err != nil {
		return key, false, err
	}
	at := call.Core()
	msg, err := c.Encode(ctx, m.Core(), "start "+at.Text)
	if err != nil {
		return key, false, err
	}
	if at.Text != "" && msg.Repeats {
		// The run that was asked may be over: no other is started for the same question.
		if err := c.CheckSchema(ctx, cfg.Tx); err != nil {
			return key, false, err
		}
		run, err := c.Store.Messages.Asked(ctx, cfg.Tx, at.Text, msg.ID)
		if err != nil {
			return key, false, c.Public(ctx, err)
		}
		if run != uuid.Nil {
			again := m.WithID(kagzi.ID(msg.ID)) // the same hash, or a conflict
			sent, err := c.Signal(ctx, core.OfRun(run.String()), again.Core(), &cfg)
			return store.RequestKey{RunID: run, ID: sent.ID}, false, err
		}
	}
	options := []kagzi.StartOption{m.WithID(kagzi.ID(msg.ID))}
	if cfg.Tx != nil {
		options = append(options, kagzi.InTx(cfg.Tx))
	}
	key, fresh, err = start(ctx, client, call, msg.ID, options)
	if errors.Is(err, store.ErrAskedBefore) { // since it was looked for
		again := m.WithID(kagzi.ID(msg.ID))
		return send(ctx, client, to, &again, opts)
	}
	return key, fresh, err
}

// start starts a run with the request, or sends that to the active run of the call's ID.
func start(ctx context.Context, client *kagzi.Client, call kagzi.Call, id string,
	opts []kagzi.StartOption,
) (key store.RequestKey, fresh bool, err error) {
	started, err := client.StartMany(ctx, []kagzi.Call{call}, opts...)
	if err != nil {
		return key, false, err
	}
	run, err := uuid.Parse(string(started[0].ID))
	return store.RequestKey{RunID: run, ID: id}, !started[0].Existed, err
}

// await waits until the request is open no longer, and decodes the answer into out.
func await(ctx context.Context, c *core.Client, key store.RequestKey, fresh bool, name string, out any) error {
	defer core.AwaitsRun(ctx, key.RunID)()
	a, err := c.Hints.Answer(ctx, key, fresh)
	if errors.Is(err, store.ErrRunNotFound) {
		err = core.ErrRunNotFound
	}
	if err == nil {
		err = decode(c, &a, name, out, nil)
	}
	return c.Absent(ctx, err)
}
