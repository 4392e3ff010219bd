package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// AwaitedQueue is the name in place of a queue's that announces to coordinators that runs wait for an event which was
// published. No queue has it.
const AwaitedQueue = "\x01awaited"

// Follows publish, in its transaction: its snapshot is taken after the publisher has its locks. See doc_eventwaits.go.
const noteAwaited = `
INSERT INTO kagzi.awaited_events (publication, topic, event_id, namespace_id)
SELECT $4, u.topic, u.event_id, $1
FROM (SELECT DISTINCT x.topic, x.event_id FROM unnest($2::text[], $3::text[]) AS x (topic, event_id)) u
WHERE (
	SELECT count(*) FROM (
		SELECT FROM kagzi.event_waits w
		WHERE w.topic = u.topic AND w.event_id = u.event_id AND w.namespace_id = $1
		LIMIT 1
	) x
) > 0
RETURNING '` + AwaitedQueue + `'::text, ''::text`

// queueAwaited queues noteAwaited for those of the events that a run may wait for. It reports whether there are any.
func queueAwaited(b *pgx.Batch, namespace string, events []*NewEvent) bool {
	var topics, ids []string
	for _, e := range events {
		if e.Named { // the others have IDs that were made up
			topics, ids = append(topics, e.Topic), append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return false
	}
	b.Queue(noteAwaited, namespace, topics, ids, newID())
	return true
}

const (
	// A worker that has lost the run may send it late, so the run may be deleted by now. The order is that of the key,
	// so that two such statements wait for each other in one order.
	insertWaits = `
INSERT INTO kagzi.event_waits (topic, event_id, run_id, step, step_hash, namespace_id)
SELECT u.topic, u.event_id, u.run_id, u.step, u.step_hash, $1
FROM unnest($2::text[], $3::text[], $4::uuid[], $5::text[], $6::uuid[]) AS u (topic, event_id, run_id, step, step_hash)
CROSS JOIN LATERAL (
	SELECT FROM kagzi.workflow_runs r
	WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.status = 'RUNNING'
	OFFSET 0
) r
ORDER BY u.topic COLLATE "C", u.event_id COLLATE "C", u.run_id, u.step_hash
ON CONFLICT DO NOTHING`

	// How many transactions are under way that have published in the topic, and may have done so before the position
	// $3; zero stands for the last one that was drawn, which the statement returns. See settledEvents.
	openPublishers = `
WITH drawn AS MATERIALIZED (
	SELECT ` + lastPosition + ` AS position
), bound AS MATERIALIZED (
	SELECT CASE WHEN $3::bigint > 0 THEN $3::bigint ELSE drawn.position END AS position FROM drawn
)
SELECT bound.position, l.open
FROM bound
CROSS JOIN LATERAL (
	SELECT count(*) AS open
	FROM pg_locks l
	WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND l.classid::bigint = ` + topicLock + `$2)::bigint & 4294967295
		AND (bound.position - l.objid::bigint) & 4294967295 < 15::bigint << 28
	OFFSET 0
) l`

	// An expression for the topic: see storeEvents.
	findEvent = `
SELECT e.event_id, coalesce(e.title, ''), e.payload, e.published_at, e.position
FROM kagzi.events e
WHERE e.event_id = $3 AND e.topic || '' = $2 AND e.namespace_id = $1
ORDER BY e.position
LIMIT 1`

	// The same for several events, of which large ones come without their payload.
	findEvents = `
SELECT u.place, e.event_id, coalesce(e.title, ''), CASE WHEN e.size <= $4 THEN e.payload END, e.published_at,
	e.position, e.size > $4
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (topic, event_id, place)
CROSS JOIN LATERAL (
	SELECT x.event_id, x.title, x.payload, x.published_at, x.position, coalesce(octet_length(x.payload), 0) AS size
	FROM kagzi.events x
	WHERE x.event_id = u.event_id AND x.topic || '' = u.topic AND x.namespace_id = $1
	ORDER BY x.position
	LIMIT 1
) e`
)

var waitColumns = columnsOf(insertWaits,
	texts("topic", func(w *EventWait) string { return w.Topic }),
	texts("event_id", func(w *EventWait) string { return w.ID }),
	uuids("run_id", func(w *EventWait) uuid.UUID { return w.RunID }),
	texts("step", func(w *EventWait) string { return w.Step }),
	uuids("step_hash", func(w *EventWait) uuid.UUID { return w.hash() }),
)

// A WaitedEvent names an event that may not be published yet.
type WaitedEvent struct{ Topic, ID string }

// An EventWait is a step's wait for an event.
type EventWait struct {
	WaitedEvent
	RunID uuid.UUID
	Step  string // with its epoch: no other step of the run has it
}

func (w *EventWait) hash() uuid.UUID { return stepHash(w.Step) }

// stepHash returns what stands for a step in an index.
func stepHash(step string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(step)) }

// Message returns the message by which the run gets the event. It takes one for each wait: the first.
func (w *EventWait) Message(e *Event) Message {
	headers, _ := json.Marshal(eventHead{e.ID, e.Title, e.PublishedAt, e.Position}) // of valid texts
	name := AnswerName(w.Step)
	return Message{RunID: w.RunID, Name: name, ID: name, Payload: e.Payload, Headers: headers}
}

// An eventHead has what the headers of a message with an event say. The payload is the event's.
type eventHead struct {
	ID          string    `json:"id"`
	Title       string    `json:"title,omitempty"`
	PublishedAt time.Time `json:"published_at"`
	Position    int64     `json:"position"`
}

// EventOf is the inverse of EventWait.Message: it returns the event of a message with these headers.
func EventOf(headers json.RawMessage, payload []byte) Event {
	var head eventHead
	_ = json.Unmarshal(headers, &head) // written by Message
	return Event{
		ID: head.ID, Title: head.Title, Payload: payload, PublishedAt: head.PublishedAt.UTC(),
		Position: head.Position,
	}
}

// A Waited says what there is of an event that a run waits for.
type Waited struct {
	Event *Event // nil: it is not published
	Open  int64  // above zero: a transaction is under way that may have published it up to this position
	Large bool   // the Event has no payload: Find reads it
}

// largeEvent is the size of a payload from which on Await leaves it out.
const largeEvent = 64 << 10

// Await registers the waits, and returns what there is of their events. If one is not published, a coordinator will
// send the run its message, unless it is Open: then Find has to look again, up to that position.
func (s Topics) Await(ctx context.Context, waits []*EventWait) (out []Waited, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, insertWaits, waitColumns.args(s.namespace, waits), nil)
	})
	if err == nil {
		err = pg.Do(ctx, func(ctx context.Context) error {
			out, err = s.look(ctx, waits)
			return err
		})
	}
	return out, pg.Wrap("wait for events", err)
}

// look reads who publishes, and then which of the events are published.
func (s Topics) look(ctx context.Context, waits []*EventWait) ([]Waited, error) {
	out, open := make([]Waited, len(waits)), map[string]*int64{}
	topics, ids := make([]string, len(waits)), make([]string, len(waits))
	b := &pgx.Batch{}
	var reads []func(pgx.Rows) error
	for i, w := range waits {
		topics[i], ids[i] = w.Topic, w.ID
		if open[w.Topic] != nil {
			continue
		}
		open[w.Topic] = new(int64)
		b.Queue(openPublishers, s.namespace, w.Topic, 0)
		reads = append(reads, readOpen(open[w.Topic]))
	}
	b.Queue(findEvents, s.namespace, topics, ids, largeEvent)
	reads = append(reads, func(rows pgx.Rows) error {
		var place int
		var e Event
		var large bool
		_, err := pgx.ForEachRow(rows, []any{
			&place, &e.ID, &e.Title, &e.Payload, pg.UTC(&e.PublishedAt), &e.Position, &large,
		}, func() error {
			found := e
			e.Payload = nil // the next scan must not overwrite it
			out[place-1] = Waited{Event: &found, Large: large}
			return nil
		})
		return err
	})
	err := pg.Exchange(ctx, s.pool, pg.Untimed, b, reads...)
	for i, w := range waits {
		if out[i].Event == nil {
			out[i].Open = *open[w.Topic]
		}
	}
	return out, err
}

// readOpen reads openPublishers: the position up to which transactions under way may have published; zero if none may.
func readOpen(open *int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var position, publishers int64
		_, err := pgx.ForEachRow(rows, []any{&position, &publishers}, func() error {
			if *open = 0; publishers > 0 {
				*open = max(1, position) // before the first event the position is zero
			}
			return nil
		})
		return err
	}
}

// Find returns the event if it is published, and nil if not. open is above zero if a transaction is under way that may
// have published it up to that position; zero for the position stands for the last one.
func (s Topics) Find(ctx context.Context, w WaitedEvent, upTo int64) (e *Event, open int64, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var found []Event
		b := &pgx.Batch{}
		b.Queue(openPublishers, s.namespace, w.Topic, upTo)
		b.Queue(findEvent, s.namespace, w.Topic, w.ID)
		if err := pg.Exchange(ctx, s.pool, pg.Untimed, b, readOpen(&open), pg.Collect(&found, scanEvent)); err != nil {
			return err
		}
		if e = nil; len(found) > 0 {
			e, open = &found[0], 0
		}
		return nil
	})
	return e, open, pg.Wrap("find event", err)
}

func scanEvent(row pgx.CollectableRow) (e Event, err error) {
	return e, row.Scan(&e.ID, &e.Title, &e.Payload, pg.UTC(&e.PublishedAt), &e.Position)
}

// Deletes the waits that end with the records, under whatever lease: all executions of a step end its wait at the time
// that its first record says, or by the message that is in the inbox.
const endWaits = `
DELETE FROM kagzi.event_waits w
USING (SELECT u.run_id, u.step_hash FROM unnest($2::uuid[], $3::uuid[]) AS u (run_id, step_hash) OFFSET 0) u
WHERE w.run_id = u.run_id AND w.step_hash = u.step_hash AND w.namespace_id = $1`

var endWaitColumns = columnsOf(endWaits,
	uuids("run_id", func(r *Record) uuid.UUID { return r.RunID }),
	uuids("step_hash", func(r *Record) uuid.UUID { return stepHash(r.Awaited) }),
)

// waited returns the records that end waits for events.
func waited(records []*Record) []*Record {
	ended, _ := part(records, func(r *Record) bool { return r.Awaited != "" })
	return ended
}

const (
	awaitedEvents = `
SELECT x.publication, x.topic, x.event_id
FROM kagzi.awaited_events x
WHERE x.namespace_id = $1 AND (x.publication, x.topic, x.event_id) > ($2, $3, $4)
ORDER BY x.publication, x.topic, x.event_id
LIMIT $5`

	waitsForEvent = `
SELECT w.run_id, w.step
FROM kagzi.event_waits w
WHERE w.topic = $2 AND w.event_id = $3 AND w.namespace_id = $1 AND (w.run_id, w.step_hash) > ($4, $5)
ORDER BY w.run_id, w.step_hash
LIMIT $6`

	// It leaves out rows that a flush deletes.
	deleteTold = `
DELETE FROM kagzi.event_waits w
USING (
	SELECT x.topic, x.event_id, x.run_id, x.step_hash
	FROM unnest($2::text[], $3::text[], $4::uuid[], $5::uuid[]) AS u (topic, event_id, run_id, step_hash)
	CROSS JOIN LATERAL (
		SELECT x.topic, x.event_id, x.run_id, x.step_hash
		FROM kagzi.event_waits x
		WHERE x.topic = u.topic AND x.event_id = u.event_id AND x.run_id = u.run_id AND x.step_hash = u.step_hash
			AND x.namespace_id = $1
		FOR UPDATE SKIP LOCKED
	) x
	OFFSET 0
) u
WHERE w.topic = u.topic AND w.event_id = u.event_id AND w.run_id = u.run_id AND w.step_hash = u.step_hash
	AND w.namespace_id = $1`

	deleteAwaited = `DELETE FROM kagzi.awaited_events x
WHERE x.namespace_id = $1 AND x.publication = $2 AND x.topic = $3 AND x.event_id = $4`
)

// An Awaited is an event that was published while runs waited for it.
type Awaited struct {
	WaitedEvent
	publication uuid.UUID
}

var deleteToldColumns = columnsOf(deleteTold,
	texts("topic", func(w EventWait) string { return w.Topic }),
	texts("event_id", func(w EventWait) string { return w.ID }),
	uuids("run_id", func(w EventWait) uuid.UUID { return w.RunID }),
	uuids("step_hash", func(w EventWait) uuid.UUID { return w.hash() }),
)

// Awaited returns events for which runs waited when they were published, those first that were published first, at
// most n, behind the last one that an earlier call has returned; the zero one for the first call.
func (s Topics) Awaited(ctx context.Context, behind Awaited, n int) (awaited []Awaited, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, awaitedEvents, []any{s.namespace, behind.publication, behind.Topic, behind.ID, n},
			pg.Collect(&awaited, func(row pgx.CollectableRow) (a Awaited, err error) {
				return a, row.Scan(&a.publication, &a.Topic, &a.ID)
			}))
	})
	return awaited, pg.Wrap("find awaited events", err)
}

// Waits returns the waits for the event, at most n, behind the last one that an earlier call has returned; the zero one
// for the first call.
func (s Topics) Waits(ctx context.Context, e WaitedEvent, behind EventWait, n int) (found []EventWait, err error) {
	after := uuid.Nil
	if behind.RunID != uuid.Nil {
		after = behind.hash()
	}
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, waitsForEvent, []any{s.namespace, e.Topic, e.ID, behind.RunID, after, n},
			pg.Collect(&found, func(row pgx.CollectableRow) (w EventWait, err error) {
				w.WaitedEvent = e
				return w, row.Scan(&w.RunID, &w.Step)
			}))
	})
	return found, pg.Wrap("find waits for an event", err)
}

// Told deletes the waits: their runs have their messages, or are over.
func (s Topics) Told(ctx context.Context, waits []EventWait) error {
	err := pg.Again(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, deleteTold, deleteToldColumns.args(s.namespace, waits), nil)
	})
	return pg.Wrap("end waits for an event", err)
}

// Forget notes that all runs that waited for the event are told of it.
func (s Topics) Forget(ctx context.Context, e Awaited) error {
	err := pg.Again(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, deleteAwaited, []any{s.namespace, e.publication, e.Topic, e.ID}, nil)
	})
	return pg.Wrap("remove awaited event", err)
}
