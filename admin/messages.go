package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// Messages has the verbs for the messages that a run has got: admin.New(client).Messages.
type Messages struct{ core *core.Client }

// MessageInfo is a message that a run has got. Its JSON follows the rules of [kagzi.RunInfo].
type MessageInfo struct {
	// the name of the [kagzi.Signal], or of the request.Request, with its key: "approved/call-7"
	Signal  string `json:"signal"`
	Request bool   `json:"request,omitempty"`
	// Signal is the name of a step that waits for an answer (request.AskStep) or for an event (topic.WaitEvent), and
	// this is it; or of one that is in doubt, with "/#doubt:" and its attempt, and this resolves it
	Awaited bool            `json:"awaited,omitempty"`
	ID      kagzi.ID        `json:"id"` // that of [kagzi.Message.WithID], or one that Kagzi made
	Payload json.RawMessage `json:"payload,omitempty"`
	Headers kagzi.Headers   `json:"headers,omitempty"`
	// the run and the step that sent it, as in [kagzi.StepInfo].Key; empty if it was not sent in a step
	SentBy     string    `json:"sent_by,omitempty"`
	ReceivedAt time.Time `json:"received_at,omitzero"`
	// the [kagzi.StepAttempt].Step of the [kagzi.WaitSignal] that read it; empty if it is unread
	ReadBy string    `json:"read_by,omitempty"`
	ReadAt time.Time `json:"read_at,omitzero"` // when the read was recorded
	// when the answer to a request was recorded; zero while it is open
	AnsweredAt time.Time `json:"answered_at,omitzero"`
	// the run has not read the request in time, and will not: see request.Question.Within
	Expired bool `json:"expired,omitempty"`

	// SetAside is why the message was set aside: it does not decode into the type that the run's program has for the
	// signal, or the [kagzi.Sealer] does not open it. It is empty if the message was not set aside. The run waits as if
	// the message had not come, until [Messages.Redeliver] or [Messages.Drop].
	SetAside   string    `json:"set_aside,omitempty"`
	SetAsideAt time.Time `json:"set_aside_at,omitzero"`
}

// A MessageFilter selects messages of a run; the zero value selects all. A message must match all fields that are set.
type MessageFilter struct {
	Signal  string   // the name of the [kagzi.Signal] with its key, as [kagzi.Signal.Name] returns it
	Request bool     // Signal is the name of a request.Request
	Unread  bool     // those that the run has not read, with those that were set aside
	After   kagzi.ID // the ID of the last message of the page before
	Limit   int      // zero means 100
}

// List returns the messages of a run that f selects, by signal, and those of one signal in the order in which the
// run reads them. For the next page, set f.After to the ID of the last one.
//
// A message is unread until a [kagzi.WaitSignal] has read it and the run has recorded that, within a second; in a
// branch of a [kagzi.Race], when the race is decided. So f.Unread finds the messages that a run ignores: see
// docs/signals.md.
//
// List returns [kagzi.ErrNotFound] if the namespace has no such run, and an error if f.After is no message of it.
// It reads no more messages than it returns; with f.Unread it may read all of the run's.
func (m Messages) List(ctx context.Context, ref kagzi.Ref, f MessageFilter) ([]MessageInfo, error) {
	at := core.RefOf(ref)
	messages, err := m.list(ctx, at, f)
	return messages, m.core.FailedIf(ctx, err, "messages of %v", at)
}

func (m Messages) list(ctx context.Context, at core.Ref, f MessageFilter) ([]MessageInfo, error) {
	limit, err := valid.Listed(f.Limit)
	if err := cmp.Or(err, f.validate()); err != nil {
		return nil, failure.Of(kind.BadRequest, err)
	}
	id, err := m.core.Resolve(ctx, nil, at)
	if err != nil {
		return nil, err
	}
	rows, err := m.core.Inspect.Messages(ctx, id, inspect.MessageFilter{
		Name: f.stored(), Unread: f.Unread, After: string(f.After),
		Limit: limit,
	})
	if errors.Is(err, store.ErrMessageNotFound) {
		return nil, failure.Of(kind.BadRequest, fmt.Errorf("kagzi: After %.60q is no message that the filter "+
			"selects: give the MessageInfo.ID of the last message of the page before", string(f.After)))
	}
	if err != nil {
		return nil, err
	}
	out := make([]MessageInfo, len(rows))
	for i, r := range rows {
		name, of := store.MessageName(r.Name)
		out[i] = MessageInfo{
			Signal: name, Request: of == "request", Awaited: of == "answer", AnsweredAt: r.AnsweredAt,
			Expired: r.Expired, ID: kagzi.ID(r.ID),
			Payload:    m.core.Payloads.Shown(r.Payload),
			Headers:    core.Tags(r.Headers),
			SentBy:     r.SentBy,
			ReceivedAt: r.ReceivedAt, ReadBy: r.ReadBy, ReadAt: r.ReadAt,
			SetAside: r.SetAside, SetAsideAt: r.SetAsideAt,
		}
		if out[i].Awaited {
			out[i].Headers = nil // they are Kagzi's own
		}
	}
	return out, nil
}

// Drop removes a message that the run has not read: one that was set aside (see [MessageInfo].SetAside), or,
// while no worker executes the run, any. The run's log says who dropped it and why. A message with the same ID
// ([kagzi.Message.WithID]) may be sent again: so the sender can correct what it sent.
//
// It returns [kagzi.ErrNotFound] if the run has no such message, perhaps because it was dropped before, and
// [ErrNotWaiting] if a worker may be about to read it: pause the run first.
func (m Messages) Drop(ctx context.Context, ref kagzi.Ref, id kagzi.ID, opts ...kagzi.ChangeOption) error {
	return m.change(ctx, "drop", core.RefOf(ref), id, opts, func(tx pgx.Tx, run uuid.UUID, why store.Why) error {
		return m.core.Store.Messages.Drop(ctx, tx, run, string(id), why)
	})
}

// Redeliver gives a message that was set aside (see [MessageInfo].SetAside) back to its run, as if its sender
// had sent it again: behind the others, and received now. Deploy code that decodes it before, else it is set aside
// again. The run's log says who did that and why.
//
// It returns [kagzi.ErrNotFound] if the run has no such message, [kagzi.ErrRunFinished] if the run is over,
// [kagzi.ErrInboxFull], and an error if the message was not set aside.
func (m Messages) Redeliver(ctx context.Context, ref kagzi.Ref, id kagzi.ID, opts ...kagzi.ChangeOption) error {
	return m.change(ctx, "redeliver", core.RefOf(ref), id, opts,
		func(tx pgx.Tx, run uuid.UUID, why store.Why) error {
			found, err := m.core.Store.Messages.Redeliver(ctx, tx, run, string(id), why)
			if kept, ok := errors.AsType[*store.MessageKept](err); ok && kept.Running {
				return failure.Of(kind.BadRequest, errors.New("it was not set aside: the run reads it when it "+
					"waits for "+
					"its signal"))
			}
			if err != nil {
				return err
			}
			return m.core.Hints.Signalled(ctx, tx, found)
		})
}

// change calls do for the message of a run. verb is for errors.
func (m Messages) change(ctx context.Context, verb string, at core.Ref, id kagzi.ID, opts []kagzi.ChangeOption,
	do func(pgx.Tx, uuid.UUID, store.Why) error,
) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = valid.KnownMessageID(string(id))
	}
	if err != nil {
		return failure.Wrap(failure.Of(kind.BadRequest, err), "%s a message of %v", verb, at)
	}
	tx, run, err := m.core.ResolveToChange(ctx, cfg.Tx, at)
	if err == nil {
		err = do(tx, run, cfg.Why)
	}
	kept, isKept := errors.AsType[*store.MessageKept](err)
	switch {
	case errors.Is(err, store.ErrMessageNotFound):
		err = core.ErrMessageNotFound
	case errors.Is(err, store.ErrRunFinished):
		err = failure.Explain("run is over, so it reads no message", kagzi.ErrRunFinished)
	case isKept && kept.ReadBy != "":
		err = failure.Of(kind.BadRequest, fmt.Errorf("the run has read it in %q", kept.ReadBy))
	case isKept:
		err = failure.Explain("a worker executes the run and may be about to read it: pause the run, and drop the "+
			"message once the run is paused", ErrNotWaiting)
	}
	return m.core.FailedIf(ctx, err, "%s message %.60q of %v", verb, string(id), at)
}

// stored returns the name under which the messages are stored that f selects, empty for all names.
func (f MessageFilter) stored() string {
	if f.Request && f.Signal != "" {
		return store.RequestName(f.Signal)
	}
	return f.Signal
}

func (f MessageFilter) validate() error {
	if f.Request && f.Signal == "" {
		return errors.New("kagzi: the filter's Request says that Signal is the name of a request: give it")
	}
	if f.Signal != "" {
		if err := valid.Name("signal", f.Signal); err != nil {
			return err
		}
	}
	if f.After != "" {
		return valid.KnownMessageID(string(f.After))
	}
	return nil
}

type messageFields MessageInfo

type messageJSON struct {
	messageFields
	Payload      json.RawMessage `json:"payload,omitempty"`
	PayloadBytes []byte          `json:"payload_base64,omitempty"`
}

// MarshalJSON writes the message by the rules of RunInfo.
func (m MessageInfo) MarshalJSON() ([]byte, error) {
	out := messageJSON{messageFields: messageFields(m)}
	out.Payload, out.PayloadBytes = payloads.InJSON(m.Payload)
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *MessageInfo) UnmarshalJSON(data []byte) error {
	var in messageJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "message as JSON")
	}
	*m = MessageInfo(in.messageFields)
	m.Payload = payloads.FromJSON(in.Payload, in.PayloadBytes)
	return nil
}
