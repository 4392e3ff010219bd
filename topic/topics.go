package topic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Topic is a durable stream of events: a name and the type of their payload. Declare it once, as a package variable
// that publishers and readers import. It needs no creation.
type Topic[T any] struct {
	name string
	own  bool // Kagzi publishes in it, in JSON
}

// Define names a topic. The name has at most 255 bytes and no control characters, and does not begin with
// "kagzi.". Functions that use the topic return an error for a bad one.
func Define[T any](name string) Topic[T] { return Topic[T]{name: name} }

// Runs has an event for the start and for the end of each run whose client has [kagzi.ClientConfig].RunEvents. It is
// published in the transaction that starts or ends the run, in any program: so there is one for each, and a run's start
// comes before its end. The runs of consumers are left out. The payload is JSON and not sealed. It has no data of the
// application but the ID and the names.
var Runs = Topic[RunEvent]{name: store.RunsTopic, own: true}

// A RunEvent says that a run was started, or how it ended: see [Runs]. A run that is resumed after its end ends
// again, and then has another event.
type RunEvent struct {
	Run         kagzi.RunID  `json:"run"`
	ID          kagzi.ID     `json:"id,omitempty"`
	Workflow    string       `json:"workflow"`
	Queue       string       `json:"queue"`
	Status      kagzi.Status `json:"status"`         // StatusPending: it was started
	Kind        kind.Kind    `json:"kind,omitempty"` // of the failure
	Quarantined bool         `json:"quarantined,omitempty"`
	At          time.Time    `json:"at"`
}

// Name returns the topic's name.
func (t Topic[T]) Name() string { return t.name }

// With returns an event with the payload, and does not publish it: see [Client.Publish].
func (t Topic[T]) With(payload T) NewEvent {
	return NewEvent{topic: t.name, payload: payload, decodable: payloads.DecodableAs(payload)}
}

// A NewEvent is an event before it is published: see [Topic.With].
type NewEvent struct {
	topic     string
	id        kagzi.ID
	named     bool // by WithID
	title     string
	payload   any
	decodable payloads.Decodable // of payload
}

// WithID returns e with an ID of at most 255 bytes. A topic has one event with that ID, however often it is published:
// the first one. Once that is removed because of its age, the ID is free again.
func (e NewEvent) WithID(id kagzi.ID) NewEvent {
	e.id, e.named = id, true
	return e
}

// Title returns e with a title of at most 255 bytes. It is for people: Kagzi stores it, and returns it with the event.
func (e NewEvent) Title(title string) NewEvent {
	e.title = title
	return e
}

// An Event is an event of a topic.
type Event[T any] struct {
	ID          kagzi.ID // given by WithID, or made by Publish
	Title       string
	Payload     T
	PublishedAt time.Time // by the database's clock

	// Position orders the events of a topic. It is above zero. Events of other topics have others.
	Position int64
}

// ofEvents returns err with the number of the event that it is about, if there are several.
func ofEvents(events []NewEvent, i int, err error) error {
	if len(events) > 1 {
		err = failure.Wrap(err, "event %d", i)
	}
	return err
}

// newEvent returns the row of e. Without an ID of the application, it gets one that is derived from the step of ctx, or
// a unique one.
func newEvent(ctx context.Context, c *core.Client, e NewEvent) (*store.NewEvent, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	what := payloads.Subject{Kind: "payload of an event of", Name: e.topic}
	payload, hash, err := c.Payloads.EncodeHashed(what, e.payload)
	if err == nil {
		err = e.decodable.Check(&c.Payloads, what, payload)
	}
	if err != nil {
		return nil, err
	}
	row := &store.NewEvent{Topic: e.topic, ID: string(e.id), Named: e.named, Title: e.title, Payload: payload}
	if !e.named {
		if row.ID, row.Named = core.SendID(ctx, "event", e.topic, string(hash)); !row.Named {
			row.ID = uuid.Must(uuid.NewV7()).String()
		}
	}
	return row, nil
}

func (t Topic[T]) validate() error {
	if t.own {
		return nil
	}
	return valid.Topic(t.name)
}

func (e *NewEvent) validate() error {
	if e.decodable == nil {
		return errors.New("kagzi: the NewEvent is empty: make one with Topic.With")
	}
	err := valid.Topic(e.topic)
	if err == nil && e.named && e.id == "" {
		err = errors.New("kagzi: the event's ID is empty: give what identifies the event, or leave WithID out")
	}
	if err == nil && e.named {
		err = valid.Name("event ID", string(e.id))
	}
	if err == nil && e.title != "" {
		err = valid.Name("title of an event", e.title)
	}
	return err
}

// Bounds of one Publish in a workflow.
const (
	mostEvents     = 1000
	mostEventBytes = 8 << 20
)

// Publish publishes events from a workflow, of one topic or of several, recorded under name; the rules of
// [kagzi.Step]'s names apply. The events are stored in the transaction of the record, once. The positions of a branch's
// events are in the order of its calls.
//
// Publish returns at once, as [kagzi.StartChild] does, and later operations are recorded after it; it waits for the
// write of more than 256 KiB.
//
// An event whose ID ([NewEvent.WithID]) the topic has already is not stored again.
//
// One call takes up to 1,000 events, whose payloads have 8 MiB together unless there is only one. Publish returns an
// error for more, for a bad event, and if the branch was cancelled. See docs/topics.md.
func Publish(ctx kagzi.Context, name string, events ...NewEvent) error {
	b, client, err := branchOf(ctx)
	if err != nil {
		return err
	}
	return b.Publish(replay.PublishSpec{
		Name: name, BadName: valid.StepName("publish", name),
		Events: func() ([]*store.NewEvent, bool, error) {
			if len(events) > mostEvents {
				return nil, true, fmt.Errorf("kagzi: there are %d events, and one Publish takes up to %d: make "+
					"several calls", len(events), mostEvents)
			}
			rows, size := make([]*store.NewEvent, len(events)), 0
			for i, e := range events {
				var err error
				if rows[i], err = newEvent(context.Background(), client, e); err != nil {
					return nil, payloads.IsRefused(err), ofEvents(events, i, err)
				}
				if size += len(rows[i].Payload); i > 0 && size > mostEventBytes {
					return nil, true, fmt.Errorf("%w: the payloads of the first %d events are %d bytes together, and "+
						"one Publish takes up to %d: make several calls", kagzi.ErrPayloadTooLarge, i+1, size,
						mostEventBytes)
				}
			}
			return rows, false, nil
		},
	})
}

// eventsPerRead bounds the events of one query.
const eventsPerRead = 500

// Events returns the events of a topic that were published after a position, the oldest first; zero is the oldest that
// is kept. The iteration ends behind the last one. It reads some hundred at a time, and holds no connection in between.
// To go on later, pass the Position of the last event.
//
// An event is there once its transaction has committed, and all that published in the topic before it have ended. So a
// reader that goes on from a position sees each event once.
//
// If a query fails, or on a standby, the iteration ends with an error. An event that does not decode into T comes with
// an error, its Position and its ID. See docs/topics.md.
func Events[T any](ctx context.Context, client *kagzi.Client, t Topic[T], after int64) iter.Seq2[Event[T], error] {
	c := client.Core()
	return func(yield func(Event[T], error) bool) {
		fail := func(err error) {
			yield(Event[T]{}, c.FailedIf(ctx, err, "read %s", cmp.Or(t.name, "a topic")))
		}
		if err := cmp.Or(t.validate(), c.Usable(ctx)); err != nil {
			fail(err)
			return
		}
		if err := c.CheckSchema(ctx, nil); err != nil {
			fail(err)
			return
		}
		for {
			rows, err := c.Store.Topics.ReadEvents(ctx, t.name, after, eventsPerRead)
			if err != nil {
				fail(err)
				return
			}
			for _, row := range rows {
				if !yield(readEvent(c, t, row)) {
					return
				}
				after = row.Position
			}
			if len(rows) == 0 {
				return
			}
		}
	}
}

func readEvent[T any](c *core.Client, t Topic[T], row store.Event) (Event[T], error) {
	e := Event[T]{ID: kagzi.ID(row.ID), Title: row.Title, PublishedAt: row.PublishedAt, Position: row.Position}
	decode := c.Payloads.Decode
	if t.own {
		decode = json.Unmarshal
	}
	if err := decode(row.Payload, &e.Payload); err != nil {
		return e, failure.Explain(fmt.Sprintf("event %s of topic %s does not decode into %v, the type that this "+
			"program has for the topic: %v", text.Quote(row.ID), text.Quote(t.name), reflect.TypeFor[T](), err), err)
	}
	return e, nil
}
