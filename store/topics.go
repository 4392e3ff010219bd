package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Topics publishes events, and keeps them.
type Topics struct{ *conn }

// A NewEvent is an event to publish.
type NewEvent struct {
	Topic   string
	ID      string // a topic has at most one event with it
	Named   bool   // the application chose the ID: an earlier call may have published it
	Title   string
	Payload []byte
}

// An Event is an event of a topic.
type Event struct {
	ID          string
	Title       string
	Payload     []byte
	PublishedAt time.Time
	Position    int64 // events of a topic are read in this order; the first is above zero
}

// Takes the locks (locked) before it draws positions (events): see kagzi.events. It inserts the events in the order of
// their IDs, so that calls with the same IDs wait for each other in one order. The positions are in the order of the
// call. For each consumer of a topic that has new events, a change of its key is left.
//
// An event whose ID the topic has already is left out: see storeEvents.
const publish = `
WITH ` + lockTopics + `, events AS MATERIALIZED (
	SELECT u.topic, u.event_id, u.named, u.title, u.payload, moment.part, moment.now, ` + drawPosition + ` AS position
	FROM moment
	CROSS JOIN unnest($2::text[], $3::text[], $4::bool[], $5::text[], $6::bytea[]) WITH ORDINALITY
		AS u (topic, event_id, named, title, payload, place)
	ORDER BY u.place
), ` + storeEvents

var publishColumns = columnsOf(publish,
	texts("topic", func(e *NewEvent) string { return e.Topic }),
	texts("event_id", func(e *NewEvent) string { return e.ID }),
	bools("named", func(e *NewEvent) bool { return e.Named }),
	texts("title", func(e *NewEvent) string { return e.Title }),
	byteas("payload", func(e *NewEvent) []byte { return e.Payload }),
)

const heldEvents = "one of the event IDs"

// Bounds of one statement that publishes.
const (
	mostPublished      = 5000
	mostPublishedBytes = 16 << 20
)

// Publish stores the events, all or none, and returns consumers of new ones, one of each queue. An event with the ID of
// another one of its topic is not stored, and is no error. With a nil tx, Publish is a transaction of its own, and
// repeats it if an answer is lost.
//
// While another open transaction has published one of the IDs, Publish waits for its end until ctx ends, and then
// returns a HeldError.
func (s Topics) Publish(ctx context.Context, tx pgx.Tx, events []*NewEvent) (due []DueRun, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	if tx != nil {
		return s.publishIn(ctx, tx, events)
	}
	err = whileHeld(ctx, HeldError{What: heldEvents, Events: true}, func(ctx context.Context, lost bool) (err error) {
		if lost {
			for _, e := range events {
				e.Named = true
			}
		}
		due, err = s.publishOwn(ctx, events)
		return err
	})
	if err != nil {
		return nil, pg.Wrap("publish", err)
	}
	return due, nil
}

// PublishTogether publishes events of several callers with one statement. It waits only briefly, and is not repeated:
// Publish does that for a single event. take is called when there is a connection. It returns the events; if there are
// none, nothing is sent.
func (s Topics) PublishTogether(ctx context.Context, take func() []*NewEvent) (due []DueRun, err error) {
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout)
	defer cancel()
	conn, err := pg.AcquireWithin(ctx, s.pool, pg.BriefLockWait)
	if err != nil {
		return nil, pg.Wrap("publish", err)
	}
	defer conn.Release()
	events := take()
	if len(events) == 0 {
		return nil, nil
	}
	due, err = s.publishChunk(ctx, conn.Conn(), pg.Brief, events)
	pg.DropReadOnly(conn.Conn(), err)
	return due, pg.Wrap("publish", err)
}

func (s Topics) publishOwn(ctx context.Context, events []*NewEvent) (due []DueRun, err error) {
	chunks := eventChunks(events)
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout*time.Duration(len(chunks)))
	defer cancel()
	mode := pg.Mode{Locks: lockSlice(ctx, len(events))}
	if len(chunks) == 1 {
		return s.publishChunk(ctx, s.pool, mode, events)
	}
	err = pg.Transact(ctx, s.pool, mode, func(tx pgx.Tx) error {
		due, err = s.publishAll(ctx, tx, chunks)
		return err
	})
	return due, err
}

func (s Topics) publishIn(ctx context.Context, tx pgx.Tx, events []*NewEvent) (due []DueRun, err error) {
	if tx, err = pg.CheckIsolation(ctx, tx); err == nil {
		// At a lock that takes too long, the savepoint rolls back the inserts before it.
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			due, err = s.publishAll(ctx, tx, eventChunks(events))
			return err
		})
	}
	if pg.Locked(err) { // by the caller's lock_timeout
		err = &HeldError{What: heldEvents, Events: true, Err: err}
	}
	return due, pg.Wrap("publish", err)
}

func (s Topics) publishAll(ctx context.Context, tx pgx.Tx, chunks [][]*NewEvent) (due []DueRun, err error) {
	for _, chunk := range chunks {
		some, err := s.publishChunk(ctx, tx, pg.Untimed, chunk)
		if err != nil {
			return nil, err
		}
		due = append(due, some...)
	}
	return due, nil
}

func (s Topics) publishChunk(ctx context.Context, db pg.DB, m pg.Mode, events []*NewEvent) (due []DueRun, err error) {
	b := &pgx.Batch{}
	b.Queue(publish, publishColumns.args(s.namespace, events)...)
	reads := []func(pgx.Rows) error{readSubscribers(&due)}
	if queueAwaited(b, s.namespace, events) {
		reads = append(reads, readSubscribers(&due))
	}
	err = pg.Exchange(ctx, db, m, b, reads...)
	return due, err
}

// eventChunks splits the events into the parts of one statement each.
func eventChunks(events []*NewEvent) (chunks [][]*NewEvent) {
	size := 0
	for _, e := range events {
		size += len(e.Payload)
		if n := len(chunks); n == 0 || len(chunks[n-1]) == mostPublished || size > mostPublishedBytes {
			chunks, size = append(chunks, nil), len(e.Payload)
		}
		last := &chunks[len(chunks)-1]
		*last = append(*last, e)
	}
	return chunks
}

// ---- reading ----

// $5 limits the bytes, but not the first event.
const readEvents = `
SELECT g.event_id, coalesce(g.title, ''), g.payload, g.published_at, g.position
FROM (
	SELECT l.*, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
	FROM (
		SELECT e.event_id, e.title, e.payload, e.published_at, e.position, 200 + coalesce(octet_length(e.payload),
			0) AS size
		FROM kagzi.events e
		WHERE e.topic = $2 AND e.namespace_id = $1 AND e.position > $3
		ORDER BY e.position
		LIMIT $4
	) l
) g
WHERE g.bytes - g.size < $5`

// mostReadBytes bounds the events of one read.
const mostReadBytes = 8 << 20

var errStandby = errors.New("the database is a standby, which does not know whose transactions are under way: read " +
	"topics from the primary (target_session_attrs=read-write)")

// ReadEvents returns the next events of the topic after a position, at most n. An event is not returned before all
// transactions have ended that have published in the topic earlier.
func (s Topics) ReadEvents(ctx context.Context, topic string, after int64, n int) (events []Event, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var settled *int64
		b := &pgx.Batch{}
		b.Queue(settledEvents, s.namespace, topic)
		b.Queue(readEvents, s.namespace, topic, after, n, mostReadBytes)
		err := pg.Exchange(ctx, s.pool, pg.Untimed, b, func(rows pgx.Rows) (err error) {
			settled, err = pgx.CollectOneRow(rows, pgx.RowTo[*int64])
			return err
		}, pg.Collect(&events, scanEvent))
		switch {
		case err != nil:
			return err
		case settled == nil:
			return errStandby
		}
		if i := slices.IndexFunc(events, func(e Event) bool { return e.Position > *settled }); i >= 0 {
			events = events[:i]
		}
		return nil
	})
	if err != nil {
		return nil, pg.Wrap("read events", err)
	}
	return events, nil
}
