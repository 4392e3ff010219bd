package checkup

import (
	"context"
	"fmt"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
)

// topics checks that consumers run, and that the events of topics leave in time. It adds no check if all is well.
func (e *examination) topics(ctx context.Context) {
	e.consumers(ctx)
	kept, err := e.process.Store.Topics.EventsKept(ctx, e.db)
	if err != nil {
		e.addFailed("events", err)
		return
	}
	if kept.Late > 0 {
		e.add("events", health.Degraded, "The oldest events should have been removed, or a new partition opened, %s "+
			"ago: perhaps a transaction that publishes, or reads kagzi.events, has been open for long "+
			"(pg_stat_activity), such as a dump; or no coordinator runs: let a worker host one (without "+
			"NoCoordinator). The coordinators' log has errors.",
			duration.About(kept.Late))
	}
	var holders []string
	seen := map[string]bool{}
	for _, h := range kept.Holders {
		holder := fmt.Sprintf("consumer %q has not consumed those of topic %q", h.Consumer, h.Topic)
		if h.Namespace != e.process.Namespace {
			holder = "a consumer of another namespace has not consumed its own"
		}
		if !seen[holder] {
			seen[holder] = true
			holders = append(holders, holder)
		}
	}
	if holders != nil {
		e.add("events", health.Degraded, "Events are kept for longer than KeepEvents, because %s. They leave after "+
			"KeepPendingEvents. Find out why they are not consumed, skip them, or delete a consumer that is not "+
			"needed any more.",
			text.List(holders, namedAtMost))
	}
	unread, err := e.process.Inspect.TopicsWithoutConsumers(ctx, e.db, maxCounted)
	if err != nil {
		e.addFailed("topics", err)
		return
	}
	if len(unread) > 0 {
		e.add("topics", health.Healthy, "There are events in topics to which no consumer subscribes: %s. That is "+
			"right if programs read them by themselves, or if a consumer is to come.", quoted(unread))
	}
}

// consumers checks that consumers that are due have runs. Whether a worker executes the runs is checked with the
// queues.
func (e *examination) consumers(ctx context.Context) {
	late, err := e.process.Inspect.LateConsumers(ctx, e.db, overdueAfter, maxCounted)
	if err != nil {
		e.addFailed("consumers", err)
		return
	}
	var stranded, slow []string
	for _, c := range late {
		waits := fmt.Sprintf("%q in queue %q for %s", c.Consumer, c.Queue, duration.About(c.Waiting))
		if e.live[route{c.Queue, c.Consumer}] == nil {
			stranded = append(stranded, waits)
		} else {
			slow = append(slow, waits)
		}
	}
	if stranded != nil {
		e.add("consumers", health.Degraded, "Consumers are due, and no live worker has their function: %s. Start one "+
			"that takes the queue and has the function, or delete a consumer that is not needed any more.",
			text.List(stranded, namedAtMost))
	}
	if slow != nil {
		e.add("consumers", health.Degraded, "Consumers are due, and no worker has started their runs: %s. Perhaps a "+
			"transaction that has published in a topic of theirs has been open for that long (pg_stat_activity). If "+
			"not, start more workers or raise MaxConcurrent.",
			text.List(slow, namedAtMost))
	}
}
