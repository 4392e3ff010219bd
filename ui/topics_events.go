package ui

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// tails remember where the newest events of topics begin. The library reads a topic from a position on, so the first
// look has to search for it.
type tails struct {
	mu sync.Mutex
	at map[string]int64 // by topic: few events come after this position
}

const (
	// fewEvents to mostEvents are those that a page shows.
	fewEvents  = 50
	mostEvents = 200
	// mostTails bounds the memory for positions.
	mostTails = 1000
)

// A readEvent is an event as it was read.
type readEvent struct {
	topic.Event[json.RawMessage]
	wrong string // why its payload cannot be decoded
}

// eventsOf returns the event that the query names, or the newest ones of the topic, newest first.
func (p *topicPages) eventsOf(ctx context.Context, q web.Query, about string) ([]readEvent, error) {
	if q.Has("event") {
		at, err := strconv.ParseInt(q.Get("event"), 10, 64)
		if err != nil || at <= 0 {
			return nil, web.BadRequest("%q is no position of an event: that is a number above zero.", q.Get("event"))
		}
		one, _, err := p.readEvents(ctx, about, at-1, 1)
		if err == nil && (len(one) == 0 || one[0].Position != at) {
			err = web.BadRequest("The topic has no event at position %d, or not any more.", at)
		}
		return one, err
	}
	events, err := p.newestEvents(ctx, about)
	slices.Reverse(events)
	shown, _ := bounded(events, fewEvents)
	return shown, err
}

// newestEvents returns some of the newest events of a topic, oldest first.
func (p *topicPages) newestEvents(ctx context.Context, about string) ([]readEvent, error) {
	after := p.tails.get(about)
	events, all, err := p.readEvents(ctx, about, after, mostEvents)
	if err == nil && !all {
		events, err = p.searchTail(ctx, about, after)
	}
	if err == nil && len(events) > fewEvents {
		p.tails.set(about, events[len(events)-fewEvents-1].Position)
	}
	return events, err
}

// searchTail returns the events after a position after which there are some, but not many. After the one that is given
// there are too many. The farther a position is, the fewer events come after it.
func (p *topicPages) searchTail(ctx context.Context, about string, after int64) ([]readEvent, error) {
	many, few := after, int64(math.MaxInt64) // after many, there are too many; after few, too few
	for step := int64(1 << 12); few-many > 1; step = min(step<<4, 1<<60) {
		at := many + (few-many)/2
		if few == math.MaxInt64 {
			at = min(at, many+step)
		}
		events, all, err := p.readEvents(ctx, about, at, mostEvents)
		switch {
		case err != nil || all && len(events) >= fewEvents:
			return events, err
		case all:
			few = at
		default:
			many = at
		}
	}
	events, _, err := p.readEvents(ctx, about, many, mostEvents) // retention removes them meanwhile
	return events, err
}

// readEvents returns up to n events after a position, and whether these are all.
func (p *topicPages) readEvents(ctx context.Context, about string, after int64,
	n int,
) (out []readEvent, all bool, err error) {
	if about == topic.Runs.Name() { // whose events the library makes
		return collectEvents(ctx, p.client, topic.Runs, after, n)
	}
	return collectEvents(ctx, p.client, topic.Define[json.RawMessage](about), after, n)
}

func collectEvents[T any](ctx context.Context, c *kagzi.Client, about topic.Topic[T], after int64,
	n int,
) (out []readEvent, all bool, err error) {
	for e, err := range topic.Events(ctx, c, about, after) {
		if err != nil && e.Position == 0 { // the query failed
			return nil, false, err
		}
		if len(out) == n {
			return out, false, nil
		}
		read := readEvent{Event: topic.Event[json.RawMessage]{
			ID: e.ID, Title: e.Title, PublishedAt: e.PublishedAt,
			Position: e.Position,
		}}
		switch payload := any(e.Payload).(type) {
		case json.RawMessage:
			read.Payload = payload
		default:
			read.Payload, _ = json.Marshal(payload) // of the library
		}
		if err != nil {
			read.Payload, read.wrong = nil, web.Sentence(err)
		}
		out = append(out, read)
	}
	return out, true, nil
}

func (t *tails) get(about string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at[about]
}

func (t *tails) set(about string, after int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at == nil || len(t.at) >= mostTails {
		t.at = map[string]int64{}
	}
	t.at[about] = after
}
