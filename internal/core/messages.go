package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A SignalName is the name of a signal or of a request, with its key.
type SignalName struct {
	Name, Key string
	Keyed     bool
}

func (n SignalName) String() string {
	if !n.Keyed {
		return n.Name
	}
	return n.Name + "/" + n.Key
}

// For returns the name with a key, which follows the one that it has.
func (n SignalName) For(key string) SignalName {
	if n.Keyed {
		key = n.Key + "/" + key
	}
	return SignalName{n.Name, key, true}
}

// Validate returns why the name is invalid; nil if it is valid.
func (n SignalName) Validate() error {
	err := valid.StepName("signal name", n.Name)
	if err != nil || !n.Keyed {
		return err
	}
	if n.Key == "" {
		return fmt.Errorf("kagzi: the key of signal %s is empty: give what the signal is about, or leave For out",
			text.Quote(n.Name))
	}
	return cmp.Or(valid.Name("signal key", n.Key), valid.Name("signal", n.String()))
}

// Step returns the name under which a wait for the signal is recorded: "approved:call-7". It encodes '/', which ends a
// branch's name, and '#', which precedes a count.
func (n SignalName) Step() string {
	if !n.Keyed {
		return n.Name
	}
	return n.Name + ":" + strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23").Replace(n.Key)
}

// A Message is what a kagzi.Message has: a signal, or a request, with its payload, before it is sent.
type Message struct {
	Signal     SignalName
	Payload    any
	Decodable  payloads.Decodable // of Payload; nil: the message is empty
	ID         string
	Identified bool // by the application
	Headers    map[string]string

	Request bool          // it is answered
	Refused error         // why the payload of a request is invalid; nil: it is valid
	Within  time.Duration // how long a request may be delivered; zero: at any time
	Asker   string        // the run and the step that get the answer as a message; empty: it is no run that asks
}

// Validate returns why the message is invalid; nil if it is valid.
func (m *Message) Validate() error {
	if m.Decodable == nil {
		return errors.New("kagzi: the Message is empty: make one with Signal.With")
	}
	err := m.Signal.Validate()
	if err == nil && m.Identified {
		err = valid.MessageID(m.ID)
	}
	if err == nil {
		err = valid.Tags("Headers", "header", m.Headers)
	}
	return cmp.Or(err, m.Refused)
}

// An Outgoing is a message as the store keeps it, before and after it is sent.
type Outgoing struct {
	store.Message      // with its run, once it is sent
	byStep        bool // its ID is made for a step: the same in each attempt
	Repeats       bool // a later call that is to send the same has the same ID
	Existed       bool // the run had it before
}

// Encode returns the row that the store keeps for m, without the run. ref is the receiver.
func (c *Client) Encode(ctx context.Context, m *Message, ref string) (Outgoing, error) {
	if err := m.Validate(); err != nil {
		return Outgoing{}, err
	}
	name := m.Signal.String()
	what := payloads.Subject{Kind: "payload of signal", Name: name}
	if m.Request {
		what.Kind = "payload of request"
	}
	payload, hash, err := c.Payloads.EncodeHashed(what, m.Payload)
	if err == nil {
		err = m.Decodable.Check(&c.Payloads, what, payload)
	}
	if err != nil {
		return Outgoing{}, err
	}
	out := Outgoing{Message: store.Message{
		Name: name, ID: m.ID, Payload: payload, Headers: StoredTags(m.Headers), SentBy: stepKey(ctx),
	}}
	if m.Request {
		out.Name, out.Hash = store.RequestName(name), store.RequestHash(name, hash)
		out.Within, out.ReplyTo, out.SentBy = m.Within, m.Asker, cmp.Or(m.Asker, out.SentBy)
	}
	if !m.Identified {
		if out.ID, out.byStep = SendID(ctx, "message", ref, out.Name, string(hash)); !out.byStep {
			out.ID = uuid.NewString()
		}
	}
	out.Repeats = m.Identified || out.byStep
	return out, nil
}

// A SignalCall is a message that is about to be sent: a kagzi.SignalCall.
type SignalCall struct {
	Run     Ref
	Signal  string
	ID      string
	Headers json.RawMessage
}

// Signal sends a message to a run inside of the interceptors of signals.
func (c *Client) Signal(ctx context.Context, at Ref, m *Message, cfg *ChangeConfig) (sent Outgoing, err error) {
	if err := c.Usable(ctx); err != nil {
		return sent, err
	}
	out, err := c.Encode(ctx, m, at.Text)
	if err != nil {
		return sent, err
	}
	out.Why = cfg.Why
	call := SignalCall{Run: at, Signal: m.Signal.String(), ID: out.ID, Headers: out.Headers}
	err = c.InterceptSignal(ctx, call, func(ctx context.Context, headers json.RawMessage) error {
		out.Headers = headers
		sent, err = c.send(ctx, cfg.Tx, at, out)
		return c.Public(ctx, err)
	})
	return sent, err
}

// send stores the message for the run behind at. It returns the message with the run that has it; with no run if that
// is not known.
func (c *Client) send(ctx context.Context, tx pgx.Tx, at Ref, out Outgoing) (Outgoing, error) {
	if err := c.CheckSchema(ctx, tx); err != nil {
		return out, err
	}
	if at.ByID && out.Hash == nil && out.byStep {
		// An earlier attempt of the step may have sent it to a run that had the ID before the one that has it now.
		if sent, err := c.Store.Messages.Sent(ctx, tx, out.ID); err != nil || sent {
			return out, err
		}
	}
	for {
		run, err := c.receiver(ctx, tx, at, &out)
		if err != nil {
			return out, err
		}
		before := out.RunID
		out.RunID = run
		found, err := c.Store.Messages.Send(ctx, tx, out.Message)
		// The run of an ID may have ended since it was found, and another may have the ID now.
		if at.ByID && errors.Is(err, store.ErrRunFinished) && run != before {
			continue
		}
		if errors.Is(err, store.ErrRunFinished) {
			return out, failure.Explain("run is over, so it reads no message: Start or Restart another", ErrRunFinished)
		}
		if err != nil {
			return out, err
		}
		out.Existed = found.Existed
		return out, c.Hints.Signalled(ctx, tx, found)
	}
}

// receiver returns the run behind at. For a request that may have been sent before, that is the run that has it, among
// those that had the ID. It is looked for last: while a run of the ID is active, no earlier one gets the request any
// more.
func (c *Client) receiver(ctx context.Context, tx pgx.Tx, at Ref, out *Outgoing) (uuid.UUID, error) {
	run, err := c.Resolve(ctx, tx, at)
	if err != nil || !at.ByID || out.Hash == nil || !out.Repeats {
		return run, err
	}
	asked, err := c.Store.Messages.Asked(ctx, tx, at.Text, out.ID)
	if asked != uuid.Nil {
		run = asked
	}
	return run, err
}

// ReadMessage decodes the payload of a message. of says what it is: a signal, or a request. If that fails, out stays as
// it is.
func ReadMessage[T any](c *Client, of string, payload []byte, out *T) error {
	var read T
	if err := c.Payloads.Decode(payload, &read); err != nil {
		return fmt.Errorf("it does not decode into %v, the type that the program has for the %s: %w",
			reflect.TypeFor[T](), of, err)
	}
	*out = read
	return nil
}

// WaitTimeout returns the timeout that a wait was given, zero if there is none.
func WaitTimeout[T ~int64](given []T) (time.Duration, error) {
	switch len(given) {
	case 0:
		return 0, nil
	case 1:
		return time.Duration(given[0]), valid.Timeout("timeout", time.Duration(given[0]))
	}
	return 0, fmt.Errorf("kagzi: there are %d timeouts: give one", len(given))
}
