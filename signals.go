package kagzi

import (
	"context"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// A Signal is a contract, like a [Workflow]: a name and the type of the payload. Declare it once, as a package variable
// that senders and workflows import.
type Signal[T any] struct{ name core.SignalName }

// DefineSignal names a signal. The rules of [Step]'s names apply. Functions that use the signal return an error for a
// bad name.
func DefineSignal[T any](name string) Signal[T] { return Signal[T]{core.SignalName{Name: name}} }

// Core is for package request.
func (s Signal[T]) Core() core.SignalName { return s.name }

// Name returns the signal's name with its key: "approved/call-7". [Client.Steps] and admin.Runs.Fork name the wait
// for it "approved:call-7".
func (s Signal[T]) Name() string { return s.name.String() }

// For returns the signal for one thing of several: a run that waits for Approved.For("a") does not receive an approval
// of "b", not even a late one. The key is any text; name and key have at most 254 bytes together.
func (s Signal[T]) For(key string) Signal[T] { return Signal[T]{s.name.For(key)} }

// With returns a message with the payload, and does not send it. It is for [Client.Signal], or an option of [Start]:
// that starts a run with the message, or signals the active run of the same [ID], whatever that run's input; the
// start's input is then not used. A start that may be repeated outside of a step should give the message an ID with
// [Message.WithID]: else each repetition sends it again.
func (s Signal[T]) With(payload T) Message {
	return Message{core.Message{Signal: s.name, Payload: payload, Decodable: payloads.DecodableAs(payload)}}
}

// A Message is a signal with its payload, before it is sent: see [Signal.With].
type Message struct{ core core.Message }

// Core is for package request.
func (m *Message) Core() *core.Message { return &m.core }

// WithID returns m with an ID of at most 255 bytes: a run stores one message with that ID, however often it is sent.
func (m Message) WithID(id ID) Message {
	m.core.ID, m.core.Identified = string(id), true
	return m
}

// WithHeaders returns m with headers, in addition to those that it has: see [Headers]. [WaitMessage] returns them, and
// [WaitSignal] ignores them.
func (m Message) WithHeaders(h Headers) Message {
	m.core.Headers = h.over(m.core.Headers)
	return m
}

// ---- sending ----

// Signal stores m for an active run and wakes the run; for an [ID], the active run that has it. It returns once the
// message is stored, not when it is read. [WaitSignal] reads the messages of one name in the order in which they were
// stored, each once.
//
// A message whose ID ([Message.WithID]) the run has already is not stored again, and Signal returns nil, even if the
// run is over. A step's message gets an ID that keeps further attempts from sending it again: see docs/signals.md.
//
// With [InTx] the message is sent when the transaction commits. Until then the run records nothing: commit soon.
// [Reason] and [Actor] go into its log.
//
// Signal returns [ErrNotFound], [ErrRunFinished], [ErrInboxFull], and [ErrPayloadTooLarge].
func (c *Client) Signal(ctx context.Context, ref Ref, m Message, opts ...ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		_, err = c.Core().Signal(ctx, at, &m.core, &cfg)
	}
	if err != nil {
		return failure.Wrap(err, "signal %v with %q", at, m.core.Signal)
	}
	return nil
}

// ---- waiting ----

// WaitSignal returns the payload of the oldest message with the signal's name and key that the run has not read. If
// there is none, it waits for one. Meanwhile the run holds no goroutine, slot or connection.
//
// The read is recorded like a step's result: a replay returns the same message, a further WaitSignal the next one.
//
// With a [Timeout], WaitSignal returns a *[StepError] of [kind.Timeout] if no message was stored in time. That is
// recorded, too: a later message is left to the next WaitSignal.
//
// A message that does not decode into T is set aside, and WaitSignal goes on waiting: see docs/signals.md. It returns
// another error only if the call is wrong or the branch was cancelled.
func WaitSignal[T any](ctx Context, s Signal[T], timeout ...Timeout) (T, error) {
	m, err := WaitMessage(ctx, s, timeout...)
	return m.Payload, err
}

// Received is a message that a run has read: see [WaitMessage].
type Received[T any] struct {
	Payload T
	Headers Headers // nil if it has none
}

// WaitMessage is [WaitSignal] that returns the message's headers with its payload.
func WaitMessage[T any](ctx Context, s Signal[T], timeout ...Timeout) (Received[T], error) {
	var out Received[T]
	b, c, err := branchOf(ctx)
	if err != nil {
		return out, err
	}
	limit, invalid := core.WaitTimeout(timeout)
	row, err := b.Receive(replay.SignalSpec{
		Kind: store.KindSignal, Name: s.name.String(), Step: s.name.Step(), BadName: s.name.Validate(),
		Invalid: invalid, Timeout: limit,
		Decode: func(payload []byte, _ bool) error { return core.ReadMessage(c.core, "signal", payload, &out.Payload) },
	})
	if err != nil {
		return Received[T]{}, err
	}
	out.Headers = storedHeaders(row.Input)
	return out, nil
}

func (m Message) start(c *startConfig) {
	c.messages = append(c.messages, m)
	c.Check(m.core.Validate())
}
