package request

import (
	"errors"
	"sync/atomic"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// Received is a request that a run has read, and answers once: see [Wait]. The answer may be given on another branch,
// and any time later.
type Received[In, Out any] struct {
	In      In
	Headers kagzi.Headers // nil if it has none

	name     core.SignalName
	sequence int64
	answered atomic.Bool
}

// A scope is a kagzi.Context.
type scope interface {
	Engine() *replay.Branch
	Client() *kagzi.Client
}

// branchOf returns the branch behind ctx, and the client of its worker.
func branchOf(ctx kagzi.Context) (*replay.Branch, *kagzi.Client, error) {
	s, ok := ctx.(scope)
	if !ok {
		return nil, nil, core.ErrNilContext
	}
	return s.Engine(), s.Client(), nil
}

// Wait returns the oldest request with the name and key of r that the run has not read, and waits for one as
// [kagzi.WaitSignal] waits for a message, with its [kagzi.Timeout]. A request that does not decode into In, or that a
// check of r refuses, is set aside, and its asker gets an error that says so.
//
// The asker waits until the run answers by [Received.Reply] or [Received.Refuse], or ends.
func Wait[In, Out any](ctx kagzi.Context, r Request[In, Out], timeout ...kagzi.Timeout) (*Received[In, Out], error) {
	b, client, err := branchOf(ctx)
	if err != nil {
		return nil, err
	}
	limit, invalid := core.WaitTimeout(timeout)
	out := &Received[In, Out]{name: r.signal.Core()}
	row, err := b.Receive(replay.SignalSpec{
		Kind: store.KindRequest, Name: store.RequestName(r.Name()), Step: out.name.Step(),
		BadName: out.name.Validate(), Invalid: invalid, Timeout: limit,
		Decode: func(payload []byte, fresh bool) error {
			if err := core.ReadMessage(client.Core(), "request", payload, &out.In); err != nil || !fresh {
				return err
			}
			if err := r.check(out.In); err != nil {
				return failure.Wrap(err, "the check of request %q refuses it", r.Name())
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	out.Headers, out.sequence = core.Tags(row.Input), row.Sequence
	return out, nil
}

// Reply answers the request. The asker gets the answer once it is recorded, within milliseconds. It is written with the
// next record of the run, and Reply does not wait for that. A replay does not answer again.
//
// Reply returns an error if the request was answered before, if out is too large or does not encode, and if the branch
// was cancelled.
func (r *Received[In, Out]) Reply(ctx kagzi.Context, out Out) error {
	return r.answer(ctx, func(c *core.Client, row *store.StepRow) (err error) {
		what := payloads.Subject{Kind: "answer to request", Name: r.name.String()}
		row.Output, err = c.Payloads.Encode(what, out)
		return err
	})
}

// Refuse answers the request with an error: [Ask] returns a *[Refusal] with its kind, text and [kind.Details]. If err
// is a *Refusal, or wraps one, the text is its Message. Otherwise Refuse is like [Received.Reply].
func (r *Received[In, Out]) Refuse(ctx kagzi.Context, err error) error {
	return r.answer(ctx, func(c *core.Client, row *store.StepRow) (invalid error) {
		if err == nil {
			return errors.New("kagzi: the error is nil: call Reply, or say why the request is refused")
		}
		row.Permanent, row.ErrorKind = true, string(kagzi.KindOf(err))
		stored, lost := c.Payloads.Details(err)
		if given := refusalIn(err); given != nil {
			err = errors.New(given.Message)
		}
		row.Output, row.Error = stored, failure.Class{Undetailed: lost}.Text(err)
		return nil
	})
}

// refusalIn returns the Refusal in err's chain, nil if there is none.
func refusalIn(err error) (found *Refusal) {
	defer func() { _ = recover() }() // a method of a user's error
	found, _ = errors.AsType[*Refusal](err)
	return found
}

// answer records the answer that encode writes into its row.
func (r *Received[In, Out]) answer(ctx kagzi.Context, encode func(*core.Client, *store.StepRow) error) error {
	b, client, err := branchOf(ctx)
	if err != nil {
		return err
	}
	if r == nil || r.name.Name == "" {
		return b.Misuse(errors.New("kagzi: the request is nil: Wait returns one, unless it returns an error"))
	}
	if !r.answered.CompareAndSwap(false, true) {
		return b.Misuse(failure.Wrap(errors.New("kagzi: it was answered before: answer each request once"),
			"answer request %q", r.name))
	}
	err = replay.Reply(b, replay.ReplySpec{
		Step: r.name.Step(), Name: store.RequestName(r.name.String()), Request: r.sequence,
		Encode: func(row *store.StepRow) (later bool, err error) {
			err = encode(client.Core(), row)
			return payloads.IsSealing(err), err
		},
	})
	if err != nil {
		r.answered.Store(false)
	}
	return err
}
