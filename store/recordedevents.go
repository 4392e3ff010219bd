package store

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// Publishes the events of a flush's records, before these and under the same leases: FOR SHARE holds a lease until this
// transaction commits, so the records are written, too. A flush that is repeated finds its events, wherever they are,
// so all IDs are searched for.
const publishRecorded = `
WITH ` + lockTopics + `, leases AS MATERIALIZED (
	SELECT r.run_id, r.lease
	FROM kagzi.workflow_runs r
	WHERE r.run_id = ANY ($6::uuid[]) AND r.namespace_id = $1 AND r.status = 'RUNNING'
	FOR SHARE
), events AS MATERIALIZED (
	SELECT u.topic, u.event_id, true AS named, u.title, u.payload, moment.part, moment.now,
		` + drawPosition + ` AS position
	FROM moment
	CROSS JOIN unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::uuid[], $7::uuid[]) WITH ORDINALITY
		AS u (topic, event_id, title, payload, run_id, lease, place)
	JOIN leases ON leases.run_id = u.run_id AND leases.lease = u.lease
	ORDER BY u.place
), ` + storeEvents

// A recordedEvent is an event to publish with a record.
type recordedEvent struct {
	*NewEvent
	run, lease uuid.UUID
}

var recordedEventColumns = columnsOf(publishRecorded,
	texts("topic", func(e recordedEvent) string { return e.Topic }),
	texts("event_id", func(e recordedEvent) string { return e.ID }),
	texts("title", func(e recordedEvent) string { return e.Title }),
	byteas("payload", func(e recordedEvent) []byte { return e.Payload }),
	uuids("run_id", func(e recordedEvent) uuid.UUID { return e.run }),
	uuids("lease", func(e recordedEvent) uuid.UUID { return e.lease }),
)

// recordedEvents returns the events of the records, those of a run in the order in which it published them.
func recordedEvents(records []*Record) (events []recordedEvent) {
	publishing, _ := part(records, func(r *Record) bool { return len(r.Events) > 0 })
	slices.SortStableFunc(publishing, func(a, b *Record) int {
		return cmp.Or(compareIDs(a.RunID, b.RunID), cmp.Compare(a.Position, b.Position))
	})
	for _, r := range publishing {
		for _, e := range r.Events {
			events = append(events, recordedEvent{e, r.RunID, r.Lease})
		}
	}
	return events
}

func newEvents(recorded []recordedEvent) []*NewEvent {
	events := make([]*NewEvent, len(recorded))
	for i, e := range recorded {
		events[i] = e.NewEvent
	}
	return events
}
