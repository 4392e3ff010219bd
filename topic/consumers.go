package topic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Consumer is a workflow that runs when there is something for it: a new event in one of its topics, or a time that
// it asked for. Declare it once, as a package variable. [Consume] gives a worker its function.
type Consumer struct {
	name string
	cfg  ConsumerConfig
}

// ConsumerConfig configures [DefineConsumer]; the zero value works.
type ConsumerConfig struct {
	// Topics are those whose events make the consumer run, at most 100: []topic.AnyTopic{Received, Bounced}. Without a
	// topic it runs once when its first worker starts, and then only at the times that it asks for with [WakeAt]. A
	// topic that a later version of the program leaves out is unsubscribed; if it comes back, the consumer goes on
	// where it was.
	Topics []AnyTopic

	// Latest makes a new consumer, and one that gets another topic, begin with the events that are published from then
	// on. Without it, it begins with all that are kept.
	Latest bool

	// Group is the group of its runs: see [kagzi.Group]. Of the consumers and other workflows of a group at most one
	// run is active. When it ends, the next one is of the workflow with the highest priority, and among those, of the
	// consumer with the oldest event that it has not seen. Zero means a group of its own.
	Group string

	// Queue is the queue of its runs, from which workers with its function have to claim. Zero means the queue of the
	// worker, which must then have only one.
	Queue string

	// Priority is that of its runs, from 1, which goes first, to 4. Zero means 2, which puts consumers before the
	// schedules of their group.
	Priority int

	// RetryPolicy, Timeout and Metadata are those of its runs, as in [kagzi.Start]. With a zero RetryPolicy a run has
	// one attempt: its steps have retries of their own, but an error of the function ends the run.
	RetryPolicy kagzi.RetryPolicy
	Timeout     time.Duration
	Metadata    kagzi.Metadata

	// LeastWake and MostWake bound the time of [WakeAt], counted from the end of the run. Zero means 30 seconds for
	// LeastWake; for MostWake, 24 hours, or LeastWake if that is longer. So a batch that is to wait for less than 30
	// seconds needs a shorter LeastWake. A run that was cancelled is followed by another one after LeastWake.
	LeastWake time.Duration
	MostWake  time.Duration

	// IgnoreFailure makes another run follow, after LeastWake, when a run has failed for good. Without it the group is
	// paused: events accumulate, Health names it, and admin.Pauses.End ends the pause.
	IgnoreFailure bool
}

// AnyTopic is a [Topic], whatever the type of its events.
type AnyTopic interface {
	Name() string
	topic()
}

func (t Topic[T]) topic() {}

// DefineConsumer names a consumer. The rules for names are those of [kagzi.Define]: consumers and workflows share them.
// Functions that use the consumer return an error for a bad name or configuration.
func DefineConsumer(name string, cfg ConsumerConfig) Consumer { return Consumer{name, cfg} }

// Name returns the consumer's name, which is the workflow of its runs.
func (c Consumer) Name() string { return c.name }

// Group returns the group of its runs, for admin.Target: that of its configuration, or its own.
func (c Consumer) Group() string { return cmp.Or(c.cfg.Group, store.OwnGroup(c.name)) }

// stored returns the consumer's row. queue is the worker's only queue, or empty.
func (c Consumer) stored(queues []string) (*store.Consumer, error) {
	cfg := c.cfg
	cfg.LeastWake = cmp.Or(cfg.LeastWake, 30*time.Second)
	cfg.MostWake = cmp.Or(cfg.MostWake, max(24*time.Hour, cfg.LeastWake))
	errs := []error{valid.Consumer(c.name), valid.Priority(cmp.Or(cfg.Priority, 2)), valid.Metadata(cfg.Metadata)}
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("kagzi: "+format, args...))
		}
	}
	out := &store.Consumer{
		Name: c.name, Key: c.Group(), Latest: cfg.Latest, Queue: cfg.Queue, Priority: cmp.Or(cfg.Priority, 2),
		Timeout:   cfg.Timeout,
		LeastWake: cfg.LeastWake, MostWake: cfg.MostWake, PauseOnFailure: !cfg.IgnoreFailure,
	}
	if cfg.Group != "" {
		errs = append(errs, valid.Key("Group", cfg.Group))
	}
	switch {
	case cfg.Queue == "" && len(queues) == 1:
		out.Queue = queues[0]
	case cfg.Queue == "":
		check(true, "the worker has several queues: set ConsumerConfig.Queue to one of them")
	default:
		check(!slices.Contains(queues, cfg.Queue), "ConsumerConfig.Queue is %s, from which the worker does not "+
			"claim: give it one of the worker's queues, or leave it out", text.Quote(cfg.Queue))
	}
	if cfg.Timeout != 0 {
		errs = append(errs, valid.Timeout("Timeout", cfg.Timeout))
	}
	check(cfg.LeastWake < time.Millisecond, "LeastWake is %v: give at least a millisecond", cfg.LeastWake)
	check(cfg.MostWake < cfg.LeastWake, "MostWake %v is less than LeastWake %v", cfg.MostWake, cfg.LeastWake)
	errs = append(errs, duration.Check("MostWake", cfg.MostWake))
	if !reflect.ValueOf(cfg.RetryPolicy).IsZero() {
		stored, err := cfg.RetryPolicy.Core()
		errs, out.RetryPolicy = append(errs, err), stored
	}
	if cfg.Metadata != nil {
		out.Metadata, _ = json.Marshal(cfg.Metadata) // a map of strings always encodes
	}
	check(len(cfg.Topics) > 100, "the consumer has %d topics: at most 100", len(cfg.Topics))
	for _, t := range cfg.Topics {
		if t == nil {
			check(true, "a topic is nil: leave it out")
			continue
		}
		errs = append(errs, valid.Name("topic", t.Name()))
		check(slices.Contains(out.Topics, t.Name()), "the consumer has topic %q twice", t.Name())
		out.Topics = append(out.Topics, t.Name())
	}
	return out, errors.Join(errs...)
}

// Consume gives the worker the function of a consumer. Call it before [kagzi.Worker.Run], which stores the consumer's
// configuration and so begins its subscriptions. It returns no error: Run does.
//
// fn gets the state that the consumer's last run has returned, at first the zero value, and returns the next one. It is
// a workflow function: see [kagzi.Context]. [Peek] reads events, [Reserve] takes those that the run deals with,
// [WakeAt] asks for the next run. All of that takes effect in the transaction that completes the run. If the run fails
// or is cancelled, the consumer keeps its state and the events.
//
// The options are [kagzi.Version] and [kagzi.DefaultVersion]. S must decode the states of earlier versions. See
// docs/consumers.md.
func Consume[S any](w *kagzi.Worker, c Consumer, fn func(kagzi.Context, S) (S, error), opts ...kagzi.HandleOption) {
	with := append(opts[:len(opts):len(opts)], consumes{c})
	kagzi.Handle(w, kagzi.Define[S, S](c.name), fn, with...)
}

// consumes makes a handler that of a consumer.
type consumes struct{ Consumer }

func (o consumes) Handle(c *core.HandleConfig) { c.Consumer = o.stored }

// consumptionOf returns the branch behind ctx, and what its run has consumed.
func consumptionOf(ctx kagzi.Context, what string) (*replay.Branch, *core.Client, *replay.Consumption, error) {
	b, c, err := branchOf(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if b.Consumption() == nil {
		return nil, nil, nil,
			b.Misuse(fmt.Errorf("kagzi: %s is for the function of a consumer: see topic.Consume", what))
	}
	return b, c, b.Consumption(), nil
}

// mostPeeked bounds the events of one Peek.
const mostPeeked = 10_000

// Peek returns the first events of the topic that the consumer has not consumed, the oldest first, at most n of them,
// and about 8 MiB. It leaves out those that this run has reserved. The answer is recorded under name: it is the same in
// every replay. To leave events, return without reserving them.
//
// With an event whose payload does not decode into T, Peek returns an error, the events before it, and as the last one
// that event without its payload. The function may put it aside, and Reserve it.
//
// Peek returns another error if the call is wrong or the branch was cancelled. Only functions of consumers may call it,
// with one of their topics.
func Peek[T any](ctx kagzi.Context, name string, t Topic[T], n int) ([]Event[T], error) {
	events, _, err := peek(ctx, name, t, n)
	return events, err
}

// peek is Peek, and reports whether there are, or may be, more events.
func peek[T any](ctx kagzi.Context, name string, t Topic[T], n int) (events []Event[T], more bool, err error) {
	b, c, run, err := consumptionOf(ctx, "Peek")
	if err != nil {
		return nil, false, err
	}
	var invalid error
	switch {
	case !slices.Contains(run.Topics(), t.name):
		invalid = fmt.Errorf("kagzi: the consumer has no topic %s: add it to ConsumerConfig.Topics", text.Quote(t.name))
	case n < 1 || n > mostPeeked:
		invalid = fmt.Errorf("kagzi: Peek of %d events: give between 1 and 10,000", n)
	}
	reserved := run.Reserved(t.name)
	data, err := b.Note(replay.NoteSpec{
		Name: name, BadName: valid.StepName("Peek", name), Invalid: invalid,
		Kind: store.KindPeek, Read: func(ctx context.Context) ([]byte, error) {
			p, err := c.Store.Consumers.Peek(ctx, run.Consumer(), t.name, n, mostPeekedBytes, reserved)
			if err != nil {
				return nil, err
			}
			return json.Marshal(peeked{t.name, p})
		},
	})
	if err != nil {
		return nil, false, err
	}
	var p peeked
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, false, failure.Wrap(err, "the record of Peek %q", name)
	}
	if p.Topic != t.name {
		return nil, false, b.Misuse(fmt.Errorf("kagzi: Peek %q was recorded for topic %s, and is of topic %s now: "+
			"give the new one another name", name, text.Quote(p.Topic), text.Quote(t.name)))
	}
	run.See(t.name, &p.Peek)
	events = make([]Event[T], len(p.Events))
	for i, row := range p.Events {
		if events[i], err = readEvent(c, t, row.Event); err != nil {
			return events[:i+1], p.More, err
		}
	}
	return events, p.More, nil
}

// A peeked is the record of a Peek.
type peeked struct {
	Topic string
	store.Peek
}

// mostPeekedBytes bounds the payloads of one Peek, and so its record.
const mostPeekedBytes = 8 << 20

// Reserve takes events that [Peek] has returned in this run. They are consumed when the run completes, and given back
// if it fails or is cancelled, or if the branch fails or loses a [kagzi.Race]; a run that is resumed goes on with them.
// The reservation is recorded under name.
//
// Reserve returns an error if the call is wrong, for example because an event is of another run, or if the branch was
// cancelled.
func Reserve[T any](ctx kagzi.Context, name string, events ...Event[T]) error {
	b, _, run, err := consumptionOf(ctx, "Reserve")
	if err != nil {
		return err
	}
	var invalid error
	ranges := map[string][][2]int64{}
	for _, e := range events {
		topic, r, ok := run.Seen(e.Position)
		if !ok {
			invalid = fmt.Errorf("kagzi: event %s at position %d does not come from a Peek of this run",
				text.Quote(string(e.ID)), e.Position)
		}
		ranges[topic] = append(ranges[topic], r)
	}
	data, err := b.Note(replay.NoteSpec{
		Name: name, BadName: valid.StepName("Reserve", name), Invalid: invalid,
		Kind: store.KindReserve, Read: func(context.Context) ([]byte, error) {
			return json.Marshal(ranges)
		},
	})
	if err != nil {
		return err
	}
	clear(ranges)
	if err := json.Unmarshal(data, &ranges); err != nil {
		return failure.Wrap(err, "the record of Reserve %q", name)
	}
	for topic, r := range ranges {
		run.Reserve(b, topic, r)
	}
	return nil
}

// WakeAt asks for a run at t, by the database's clock, if no event comes before. The last call of a run counts, and
// takes effect when the run completes; the zero time takes it back. [ConsumerConfig] bounds it: a t that is sooner than
// LeastWake (30 seconds) after the end of the run, or later than MostWake (24 hours) after it, is moved to that.
// Compute t from the Context's Now, so that a replay asks for the same.
//
// WakeAt returns an error if the call is wrong. Only functions of consumers may call it.
func WakeAt(ctx kagzi.Context, t time.Time) error {
	b, _, run, err := consumptionOf(ctx, "WakeAt")
	if err != nil {
		return err
	}
	if err := valid.Time("WakeAt", t); err != nil && !t.IsZero() {
		return b.Misuse(err)
	}
	run.Wake(t)
	return nil
}
