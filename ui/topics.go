package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
)

// topicsPages are the pages about events, and about what consumes them.
func (d *dashboard) topicsPages() []page {
	return []page{
		{
			path: "/topics", action: Action{Verb: View, Object: OnTopic}, template: "topics",
			live: []string{"consumer-rows", "topic-rows"}, look: d.topics,
		},
		{
			path: "/topics/{name}", action: Action{Verb: View, Object: OnTopic}, template: "topic",
			live: []string{"topic-state", "topic-events"}, look: d.topic,
		},
		{
			path: "/consumers/{name}", action: Action{Verb: View, Object: OnConsumer}, template: "consumer",
			live: []string{
				"consumer-buttons", "consumer-state", "consumer-topics", "consumer-runs", "consumer-value",
				"changed",
			}, look: d.consumer,
		},
	}
}

// mostRows is how many rows a table has that is not a list of its own.
const mostRows = 100

// A topicList is the view model of the page of topics and consumers.
type topicList struct {
	Filtered      bool
	Consumers     []consumerRow
	MoreConsumers int
	Topics        []kagzi.TopicInfo
	MoreTopics    int
}

// A consumerRow is a consumer with what the page says about it.
type consumerRow struct {
	kagzi.ConsumerInfo
	Tone, State string // of its badge
	Pending     int    // of all of its topics
	PendingMore bool
	Oldest      time.Time // of the pending events
	Paused      bool
	rank        int // those that need attention come first
}

func (d *dashboard) topics(ctx context.Context, q query) (any, error) {
	topics, err := d.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	consumers, err := d.client.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	v := topicList{Filtered: q.has("name")}
	topics = slices.DeleteFunc(topics, func(t kagzi.TopicInfo) bool { return !contains(t.Name, q.get("name")) })
	v.Topics, v.MoreTopics = bounded(topics, mostRows)
	var rows []consumerRow
	for _, c := range consumers {
		matches := contains(c.Name, q.get("name")) ||
			slices.ContainsFunc(c.Topics, func(t kagzi.ConsumerTopic) bool { return contains(t.Topic, q.get("name")) })
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
func consumerOf(c kagzi.ConsumerInfo) consumerRow {
	c.State = nil // a payload, which only d.payload shows
	r := consumerRow{ConsumerInfo: c, Paused: c.Pause != kagzi.Pause{}}
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
	kagzi.TopicInfo
	Unknown bool // it is beyond the topics that are listed
	Rows    []eventRow
	One     bool          // a single event was asked for
	Wrong   string        // why the events cannot be read
	Span    time.Duration // between the newest and the oldest of Rows; zero if that says nothing
}

// An eventRow is an event with its payload.
type eventRow struct {
	kagzi.Event[json.RawMessage]
	Payload payload
	Large   bool // the payload is shown only on a page of its own
	Error   string
}

// largeEvent is the size from which an event's payload is not shown among others.
const largeEvent = 8 << 10

func (d *dashboard) topic(ctx context.Context, q query) (any, error) {
	name := q.path("name")
	all, err := d.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	v := topicView{TopicInfo: kagzi.TopicInfo{Name: name}, Unknown: true, One: q.has("event")}
	for _, t := range all {
		if t.Name == name {
			v.TopicInfo, v.Unknown = t, false
		}
	}
	events, err := d.eventsOf(ctx, q, name)
	switch {
	case away(err):
		return nil, err
	case err != nil && statusOf(err) < 500:
		return nil, err
	case err != nil:
		v.Wrong = sentence(err)
	case v.Unknown && len(events) == 0:
		return nil, status(http.StatusNotFound, "There is no topic of this name with events or consumers. Topics "+
			"with neither are forgotten.")
	}
	for _, e := range events {
		row := eventRow{Event: e.Event, Error: e.wrong, Large: len(e.Event.Payload) > largeEvent && !v.One &&
			!d.cfg.HidePayloads}
		row.Payload = d.payload(row.Event.Payload, "")
		row.Event.Payload = nil
		if row.Large {
			row.Payload.Root = nil
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

func (d *dashboard) consumer(ctx context.Context, q query) (any, error) {
	name := q.path("name")
	all, err := d.client.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(c kagzi.ConsumerInfo) bool { return c.Name == name })
	if i < 0 {
		return nil, status(http.StatusNotFound, "There is no consumer of this name. A worker with its function "+
			"stores it when it starts.")
	}
	v := consumerView{consumerRow: consumerOf(all[i]), Output: d.payload(all[i].State, "")}
	v.Runs, err = d.recentRuns(ctx, kagzi.RunFilter{Workflow: name, Queue: all[i].Queue}, "workflow", name, "queue",
		all[i].Queue)
	if err == nil {
		v.Changed, err = d.changed(ctx, kagzi.AuditConsumer, name)
	}
	return v, err
}
