package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// topicPages are about events and their consumers.
type topicPages struct {
	client   *kagzi.Client
	admin    *admin.Client
	payloads payloads
	tails    tails
}

// pages are those pages.
func (p *topicPages) pages() []web.Page {
	return []web.Page{
		{
			Path: "/topics", Action: asks(View, OnTopic), Template: "topics",
			Live: []string{"consumer-rows", "topic-rows"}, Look: p.topics,
		},
		{
			Path: "/topics/{name}", Action: asks(View, OnTopic), Template: "topic",
			Live: []string{"topic-state", "topic-events"}, Look: p.topic,
		},
		{
			Path: "/consumers/{name}", Action: asks(View, OnConsumer), Template: "consumer",
			Live: []string{
				"consumer-buttons", "consumer-state", "consumer-topics", "consumer-runs", "consumer-value",
				"changed",
			}, Look: p.consumer,
		},
	}
}

// A topicList is the view model of the page of topics and consumers.
type topicList struct {
	Filtered      bool
	Consumers     []consumerRow
	MoreConsumers int
	Topics        []admin.TopicInfo
	MoreTopics    int
}

// A consumerRow is a consumer with what the page says about it.
type consumerRow struct {
	admin.ConsumerInfo
	Tone, State string // of its badge
	Pending     int    // of all of its topics
	PendingMore bool
	Oldest      time.Time // of the pending events
	Paused      bool
	rank        int // those that need attention come first
}

func (p *topicPages) topics(ctx context.Context, q web.Query) (any, error) {
	topics, err := p.admin.Topics.List(ctx)
	if err != nil {
		return nil, err
	}
	consumers, err := p.admin.Consumers.List(ctx)
	if err != nil {
		return nil, err
	}
	v := topicList{Filtered: q.Has("name")}
	topics = slices.DeleteFunc(topics, func(t admin.TopicInfo) bool { return !contains(t.Name, q.Get("name")) })
	v.Topics, v.MoreTopics = bounded(topics, mostRows)
	var rows []consumerRow
	for _, c := range consumers {
		matches := contains(c.Name, q.Get("name")) ||
			slices.ContainsFunc(c.Topics, func(t admin.ConsumerTopic) bool { return contains(t.Topic, q.Get("name")) })
		if matches {
			rows = append(rows, consumerOf(c))
		}
	}
	slices.SortStableFunc(rows, func(a, b consumerRow) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Name, b.Name))
	})
	v.Consumers, v.MoreConsumers = bounded(rows, mostRows)
	return v, nil
}

// consumerOf returns what the pages say about a consumer.
func consumerOf(c admin.ConsumerInfo) consumerRow {
	c.State = nil // a payload, which only payloads shows
	r := consumerRow{ConsumerInfo: c, Paused: c.Pause != admin.Pause{}}
	for _, t := range c.Topics {
		r.Pending += t.Pending
		r.PendingMore = r.PendingMore || t.More
		if !t.Oldest.IsZero() && (r.Oldest.IsZero() || t.Oldest.Before(r.Oldest)) {
			r.Oldest = t.Oldest
		}
	}
	switch {
	case r.Paused && c.RunStatus == kagzi.StatusFailed:
		r.Tone, r.State, r.rank = "failed", "Failed, paused", 0
	case r.Paused:
		r.Tone, r.State, r.rank = "warning", "Paused", 1
	case c.RunStatus == kagzi.StatusFailed:
		r.Tone, r.State, r.rank = "failed", "Last run failed", 0
	case c.RunStatus == kagzi.StatusRunning:
		r.Tone, r.State, r.rank = "running", "Running", 3
	case c.RunStatus == kagzi.StatusSleeping:
		r.Tone, r.State, r.rank = "sleeping", "Run waits", 3
	case r.Pending > 0:
		r.Tone, r.State, r.rank = "pending", "Events pending", 2
	default:
		r.Tone, r.State, r.rank = "completed", "Nothing pending", 4
	}
	return r
}

// A topicView is the view model of the page of a topic.
type topicView struct {
	admin.TopicInfo
	Unknown bool // it is beyond the topics that are listed
	Rows    []eventRow
	One     bool          // a single event was asked for
	Wrong   string        // why the events cannot be read
	Span    time.Duration // between the newest and the oldest of Rows; zero if that says nothing
}

// An eventRow is an event with its payload.
type eventRow struct {
	topic.Event[json.RawMessage]
	Payload payload
	Large   bool // the payload is shown only on a page of its own
	Error   string
}

// largeEvent is the size from which an event's payload is not shown among others.
const largeEvent = 8 << 10

func (p *topicPages) topic(ctx context.Context, q web.Query) (any, error) {
	name := q.Path("name")
	all, err := p.admin.Topics.List(ctx)
	if err != nil {
		return nil, err
	}
	v := topicView{TopicInfo: admin.TopicInfo{Name: name}, Unknown: true, One: q.Has("event")}
	for _, t := range all {
		if t.Name == name {
			v.TopicInfo, v.Unknown = t, false
		}
	}
	events, err := p.eventsOf(ctx, q, name)
	switch {
	case web.Away(err):
		return nil, err
	case err != nil && web.StatusOf(err) < 500:
		return nil, err
	case err != nil:
		v.Wrong = web.Sentence(err)
	case v.Unknown && len(events) == 0:
		return nil, web.Status(http.StatusNotFound, "There is no topic of this name with events or consumers. Topics "+
			"with neither are forgotten.")
	}
	for _, e := range events {
		row := eventRow{Event: e.Event, Error: e.wrong, Large: len(e.Event.Payload) > largeEvent && !v.One &&
			!p.payloads.hidden()}
		row.Payload = p.payloads.show(row.Event.Payload, "")
		row.Event.Payload = nil
		if row.Large {
			row.Payload = row.Payload.without()
		}
		v.Rows = append(v.Rows, row)
	}
	if n := len(events); n >= 5 {
		v.Span = events[0].PublishedAt.Sub(events[n-1].PublishedAt)
	}
	return v, nil
}

// A consumerView is the view model of the page of a consumer.
type consumerView struct {
	consumerRow
	Runs    recent
	Changed changes
	Output  payload // of its last completed run: what the next one begins with
}

func (p *topicPages) consumer(ctx context.Context, q web.Query) (any, error) {
	name := q.Path("name")
	all, err := p.admin.Consumers.List(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(c admin.ConsumerInfo) bool { return c.Name == name })
	if i < 0 {
		return nil, web.Status(http.StatusNotFound, "There is no consumer of this name. A worker with its function "+
			"stores it when it starts.")
	}
	v := consumerView{consumerRow: consumerOf(all[i]), Output: p.payloads.show(all[i].State, "")}
	v.Runs, err = recentRuns(ctx, p.client, kagzi.RunFilter{Workflow: name, Queue: all[i].Queue}, "workflow", name,
		"queue", all[i].Queue)
	if err == nil {
		v.Changed, err = changed(ctx, p.admin, admin.AuditConsumer, name)
	}
	return v, err
}
