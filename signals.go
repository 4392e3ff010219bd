package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Signal is a contract, like a [Workflow]: a name and the type of the payload. Declare it once, as a package variable
// that senders and workflows import.
type Signal[T any] struct{ name signalName }

// DefineSignal names a signal. The rules of [Step]'s names apply. Functions that use the signal return an error for a
// bad name.
func DefineSignal[T any](name string) Signal[T] { return Signal[T]{signalName{name: name}} }

// Name returns the signal's name with its key: "approved/call-7". [Client.Steps] and admin.Client.Fork name the wait
// for it "approved:call-7".
func (s Signal[T]) Name() string { return s.name.String() }

// For returns the signal for one thing of several: a run that waits for Approved.For("a") does not receive an approval
// of "b", not even a late one. The key is any text; name and key have at most 254 bytes together.
func (s Signal[T]) For(key string) Signal[T] {
	if s.name.keyed {
		key = s.name.key + "/" + key
	}
	return Signal[T]{signalName{s.name.name, key, true}}
}

// With returns a message with the payload, and does not send it. It is for [Client.Signal], or an option of [Start]:
// that starts a run with the message, or signals the active run of the same [ID], whatever that run's input; the
// start's input is then not used. A start that may be repeated outside of a step should give the message an ID with
// [Message.WithID]: else each repetition sends it again.
func (s Signal[T]) With(payload T) Message {
	return Message{signal: s.name, payload: payload, decodable: payloads.DecodableAs(payload)}
}

// A Message is a signal with its payload, before it is sent: see [Signal.With].
type Message struct {
	signal     signalName
	payload    any
	decodable  payloads.Decodable // of payload
	id         ID
	identified bool // by WithID
	headers    Headers
}

// WithID returns m with an ID of at most 255 bytes: a run stores one message with that ID, however often it is sent.
func (m Message) WithID(id ID) Message {
	m.id, m.identified = id, true
	return m
}

// WithHeaders returns m with headers, in addition to those that it has: see [Headers]. [WaitMessage] returns them, and
// [WaitSignal] ignores them.
func (m Message) WithHeaders(h Headers) Message {
	m.headers = h.over(m.headers)
	return m
}

func (m Message) validate() error {
	if m.decodable == nil {
		return errors.New("kagzi: the Message is empty: make one with Signal.With")
	}
	err := m.signal.validate()
	if err == nil && m.identified {
		err = valid.MessageID(string(m.id))
	}
	if err == nil {
		err = m.headers.validate()
	}
	return err
}

type signalName struct {
	name, key string
	keyed     bool
}

func (n signalName) String() string {
	if !n.keyed {
		return n.name
	}
	return n.name + "/" + n.key
}

func (n signalName) validate() error {
	err := valid.StepName("signal name", n.name)
	if err != nil || !n.keyed {
		return err
	}
	if n.key == "" {
		return fmt.Errorf("kagzi: the key of signal %s is empty: give what the signal is about, or leave For out",
			text.Quote(n.name))
	}
	return cmp.Or(valid.Name("signal key", n.key), valid.Name("signal", n.String()))
}

// stepName returns the name under which a wait for the signal is recorded: "approved:call-7". It encodes '/', which
// ends a branch's name, and '#', which precedes a count.
func (n signalName) stepName() string {
	if !n.keyed {
		return n.name
	}
	return n.name + ":" + strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23").Replace(n.key)
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
	if err := c.signal(ctx, at, m, opts); err != nil {
		return failure.Wrap(err, "signal %v with %q", at, m.signal)
	}
	return nil
}

func (c *Client) signal(ctx context.Context, at core.Ref, m Message, opts []ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err := cmp.Or(err, c.Core().Usable(ctx)); err != nil {
		return err
	}
	msg, err := c.message(ctx, m, at.Text)
	if err != nil {
		return err
	}
	msg.Why = cfg.Why
	if c.intercepts.signal == nil {
		return c.Core().Public(ctx, c.send(ctx, cfg.Tx, at, msg, m.identified))
	}
	call := &SignalCall{Run: refOf(at), Signal: msg.Name, ID: ID(msg.ID), Headers: maps.Clone(m.headers)}
	return intercept(ctx, c.intercepts.signal, call, func(ctx context.Context) error {
		if err := call.Headers.validate(); err != nil {
			return err
		}
		msg.Headers = call.Headers.stored()
		return c.Core().Public(ctx, c.send(ctx, cfg.Tx, at, msg, m.identified))
	})
}

// send stores the message for the run behind at. identified says that its sender gave it its ID.
func (c *Client) send(ctx context.Context, tx pgx.Tx, at core.Ref, msg store.Message, identified bool) error {
	if err := c.Core().CheckSchema(ctx, tx); err != nil {
		return err
	}
	if at.ByID && !identified && CurrentStep(ctx).Key != "" {
		// An earlier attempt of the step may have sent it to a run that had the ID before the one that has it now.
		if sent, err := c.core.Store.Messages.Sent(ctx, tx, msg.ID); err != nil || sent {
			return err
		}
	}
	for {
		run, err := c.Core().Resolve(ctx, tx, at)
		if err != nil {
			return err
		}
		before := msg.RunID
		msg.RunID = run
		found, err := c.core.Store.Messages.Send(ctx, tx, msg)
		// The run of an ID may have ended since it was found, and another may have the ID now.
		if at.ByID && errors.Is(err, store.ErrRunFinished) && run != before {
			continue
		}
		if errors.Is(err, store.ErrRunFinished) {
			return failure.Explain("run is over, so it reads no message: Start or Restart another", ErrRunFinished)
		}
		if err != nil {
			return err
		}
		return c.core.Hints.Signalled(ctx, tx, found)
	}
}

// message returns the row that the store keeps for m, without the run. ref is the receiver.
func (c *Client) message(ctx context.Context, m Message, ref string) (store.Message, error) {
	if err := m.validate(); err != nil {
		return store.Message{}, err
	}
	name := m.signal.String()
	what := payloads.Subject{Kind: "payload of signal", Name: name}
	payload, hash, err := c.core.Payloads.EncodeHashed(what, m.payload)
	if err == nil {
		err = m.decodable.Check(&c.core.Payloads, what, payload)
	}
	if err != nil {
		return store.Message{}, err
	}
	msg := store.Message{
		Name: name, ID: string(m.id), Payload: payload, Headers: m.headers.stored(),
		SentBy: CurrentStep(ctx).Key,
	}
	if !m.identified {
		id, ok := core.SendID(ctx, "message", ref, name, string(hash))
		if !ok {
			id = uuid.NewString()
		}
		msg.ID = id
	}
	return msg, nil
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
	limit, invalid := waitTimeout(timeout)
	decoded := false
	row, err := b.Receive(replay.SignalSpec{
		Name: s.name.String(), Step: s.name.stepName(), BadName: s.name.validate(), Invalid: invalid, Timeout: limit,
		Decode: func(payload []byte) error {
			var read T
			if err := c.core.Payloads.Decode(payload, &read); err != nil {
				return fmt.Errorf("it does not decode into %v, the type that the program has for the signal: %w",
					reflect.TypeFor[T](), err)
			}
			out.Payload, decoded = read, true
			return nil
		},
	})
	if err != nil {
		return Received[T]{}, err
	}
	if !decoded { // the history has it
		if err := c.core.Payloads.Decode(row.Output, &out.Payload); err != nil {
			b.Nondeterministic(row.StepID, "the message that %q has read does not decode into %v, the type that this "+
				"program has for the signal: %v; deploy code whose type decodes it, such as a json.RawMessage, and "+
				"Resume the run", row.StepID, reflect.TypeFor[T](), err)
		}
	}
	out.Headers = storedHeaders(row.Input)
	return out, nil
}

func (m Message) start(c *startConfig) {
	c.messages = append(c.messages, m)
	c.Check(m.validate())
}

// waitTimeout returns the timeout that a wait was given, zero if there is none.
func waitTimeout(given []Timeout) (time.Duration, error) {
	switch len(given) {
	case 0:
		return 0, nil
	case 1:
		return time.Duration(given[0]), valid.Timeout("timeout", time.Duration(given[0]))
	}
	return 0, fmt.Errorf("kagzi: there are %d timeouts: give one", len(given))
}
