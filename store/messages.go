package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Messages stores signals and reads the inboxes of runs.
type Messages struct{ *conn }

// A Message is a signal to store.
type Message struct {
	RunID   uuid.UUID
	Name    string
	ID      string // made by the sender, so that a repeated call finds the message
	Payload []byte
	Headers json.RawMessage // nil: none
	Hash    []byte          // of a request: see RequestHash; nil: it is a signal
	ReplyTo string          // of a request: the run and the step that get the answer as a message; empty: none
	Within  time.Duration   // of a request: how long it may be delivered; zero: at any time
	SentBy  string          // the run and the step that sent it; empty: no step
	Why                     // of a person's message: with it, the run gets an event
}

// A Signalled is a run that got messages.
type Signalled struct {
	DueRun
	Running bool // its execution has to refresh its inbox
	Due     bool // it can be claimed now or soon
	Existed bool // the run had the messages before
}

// MostUnread is how many messages a run may have that it has not read, with those that were set aside.
const MostUnread = 10_000

// ErrInboxFull reports that the run has MostUnread messages that it has not read.
var ErrInboxFull = errors.New("the run has too many unread messages")

// ErrRequestConflict reports that a run has another message with the ID of a request.
var ErrRequestConflict = errors.New("the run has another message with the request's ID")

// The sequence of a message is the number of the wake-up that announces it. An earlier statement has locked the run's
// row. So this one sees all messages that others sent, and the messages of a run become visible in order.
//
// A run that sleeps, or waits for its next attempt, counts as due if it is due within a second: a claim may have
// skipped its row while it was locked. A caller's transaction may hold the lock for long, so there every such run
// counts as due.
//
// A run with few wake-ups needs no count: its inbox is not full. Answers and events (##) find room in a full one.
const storeMessages = `
WITH fresh AS MATERIALIZED (
	SELECT u.run_id, u.name, u.signal_id, u.payload, coalesce(u.headers, ($6::text[])[1]) AS headers,
		u.payload_hash, u.reply_to, u.within, coalesce(u.sent_by, ($10::text[])[1]) AS sent_by,
		row_number() OVER (PARTITION BY u.run_id ORDER BY u.place) AS place
	FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::bytea[], $8::text[], $9::bigint[],
		$10::text[]) WITH ORDINALITY
		AS u (run_id, name, signal_id, payload, headers, payload_hash, reply_to, within, sent_by, place)
	WHERE (
		SELECT count(*) FROM (
			SELECT FROM kagzi.signals s
			WHERE s.signal_id = u.signal_id AND s.run_id = u.run_id AND s.namespace_id = $1
			LIMIT 1
		) x
	) = 0
), counted AS MATERIALIZED (
	SELECT g.run_id, g.messages, g.now, g.now + interval '1 second' AS soon
	FROM (SELECT fresh.run_id, count(*) AS messages, count(*) FILTER (WHERE NOT starts_with(fresh.name, '##'))
		AS limited, clock_timestamp() AS now FROM fresh GROUP BY 1) g
	WHERE CASE WHEN (SELECT q.wakeups FROM kagzi.workflow_runs q WHERE q.run_id = g.run_id
		AND q.namespace_id = $1) + g.messages <= $12::bigint THEN true
		ELSE (SELECT count(*) FROM (
			SELECT FROM kagzi.signals s WHERE s.run_id = g.run_id AND s.namespace_id = $1 AND s.consumed_by IS NULL
				AND NOT starts_with(s.name, '##') LIMIT $12::bigint
		) x) + g.limited <= $12::bigint END
), woken AS (
	UPDATE kagzi.workflow_runs r
	SET wakeups = r.wakeups + counted.messages, inbox_full_at = NULL,
		available_at = CASE WHEN r.status = 'SLEEPING' AND r.outcome IS NULL
			AND r.wakeups + counted.messages >= r.wakeups_awaited THEN LEAST(r.available_at, counted.now)
				ELSE r.available_at END
	FROM counted
	WHERE r.run_id = counted.run_id AND r.namespace_id = $1 AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
	RETURNING r.run_id, r.wakeups - counted.messages AS before, counted.now, r.task_queue, r.workflow_type, r.version,
		r.status = 'RUNNING' AS running,
		r.status <> 'RUNNING' AND ($11::bool OR r.available_at <= counted.soon) AS due, r.status <> 'RUNNING'
			AND r.slot IS DISTINCT FROM 2 AS waits, r.run_key, r.key_scope
), inserted AS (
	INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id, payload, headers, payload_hash,
		reply_to, expires_at, sent_by, received_at)
	SELECT fresh.run_id, fresh.name, woken.before + fresh.place, $1, fresh.signal_id, fresh.payload,
		NULLIF(fresh.headers, '')::jsonb, fresh.payload_hash, NULLIF(fresh.reply_to, ''),
		CASE WHEN fresh.within > 0 THEN woken.now + fresh.within * interval '1 microsecond' END,
		NULLIF(fresh.sent_by, ''), woken.now
	FROM woken JOIN fresh ON fresh.run_id = woken.run_id
), ` + insertChanges + ` woken k WHERE k.run_key IS NOT NULL AND k.waits AND k.due
)
SELECT woken.run_id, woken.task_queue, woken.workflow_type, coalesce(woken.version, 0), woken.running, woken.due
	FROM woken`

var messageColumns = columnsOf(storeMessages,
	uuids("run_id", func(m Message) uuid.UUID { return m.RunID }),
	texts("name", func(m Message) string { return m.Name }),
	texts("signal_id", func(m Message) string { return m.ID }),
	byteas("payload", func(m Message) []byte { return m.Payload }),
	shared(texts, "headers", func(m Message) string { return string(m.Headers) }),
	byteas("payload_hash", func(m Message) []byte { return m.Hash }),
	texts("reply_to", func(m Message) string { return m.ReplyTo }),
	bigints("within", func(m Message) int64 { return m.Within.Microseconds() }),
	shared(texts, "sent_by", func(m Message) string { return m.SentBy }),
)

// For messages that were not stored: how many of them their run lacks, how many are requests whose ID it has of another
// message, the run's status, and how many unread messages it has. A run whose steps are being deleted does not count as
// existing.
const resolveMessages = `
SELECT r.run_id, r.task_queue, r.workflow_type, coalesce(r.version, 0), r.status, r.status = 'RUNNING',
	r.status <> 'RUNNING' AND coalesce(r.available_at <= statement_timestamp() + interval '1 second', false), m.missing,
	m.others,
	(
		SELECT count(*) FROM (
			SELECT FROM kagzi.signals s WHERE s.run_id = m.run_id AND s.namespace_id = $1 AND s.consumed_by IS NULL
				AND NOT starts_with(s.name, '##') LIMIT $4::bigint
		) x
	)
FROM (
	SELECT u.run_id, sum(1 - (
		SELECT count(*) FROM (
			SELECT FROM kagzi.signals s
			WHERE s.signal_id = u.signal_id AND s.run_id = u.run_id AND s.namespace_id = $1
			LIMIT 1
		) x
	)) AS missing, sum((
		SELECT count(*) FROM (
			SELECT FROM kagzi.signals s
			WHERE s.signal_id = u.signal_id AND s.run_id = u.run_id AND s.namespace_id = $1
				AND u.payload_hash IS NOT NULL AND s.payload_hash IS DISTINCT FROM u.payload_hash
			LIMIT 1
		) x
	)) AS others
	FROM unnest($2::uuid[], $3::text[], $5::bytea[]) AS u (run_id, signal_id, payload_hash)
	GROUP BY 1
) m
CROSS JOIN LATERAL (
	SELECT q.run_id, q.task_queue, q.workflow_type, q.version, q.status, q.available_at
	FROM kagzi.workflow_runs q
	WHERE q.run_id = m.run_id AND q.namespace_id = $1 AND q.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'
	OFFSET 0
) r`

// Send stores a message for an active run and wakes the run. If the run has a message with this ID already, nothing
// changes. Send is a transaction of its own, or a part of tx, which survives its errors. It returns ErrRunNotFound,
// ErrRunFinished and ErrInboxFull.
func (s Messages) Send(ctx context.Context, tx pgx.Tx, m Message) (out Signalled, err error) {
	switch {
	case m.Why != Why{}:
		out, err = s.signalWith(ctx, tx, m)
	case tx != nil:
		out, _, err = s.signal(ctx, tx, m)
	default:
		err = pg.Again(ctx, func(ctx context.Context) error {
			out, _, err = s.signal(ctx, s.pool, m)
			return err
		})
	}
	s.noteRefusal(ctx, tx, err)
	return out, pg.Wrap("signal", err)
}

// signalWith is Send that writes an event, if the run does not have the message yet.
func (s Messages) signalWith(ctx context.Context, tx pgx.Tx, m Message) (out Signalled, err error) {
	event := newEvent(m.RunID, EventSignalled, m.Why)
	name, of := MessageName(m.Name)
	event.Changes = []Changed{{of, "", name}}
	err = s.inSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		stored := false
		out, stored, err = s.signal(ctx, tx, m)
		if err != nil || !stored {
			return err
		}
		return s.writeEvents(ctx, tx, event)
	})
	return out, err
}

// signal reports whether it has stored the message: the run may have it already.
func (s Messages) signal(ctx context.Context, db pg.DB, m Message) (out Signalled, stored bool, err error) {
	for range 10 { // a run that was over may be resumed between two statements
		got, err := s.storeMessages(ctx, db, []Message{m})
		if err != nil {
			return out, false, err
		}
		if out, ok := got[m.RunID]; ok {
			return out, true, nil
		}
		found, err := s.resolveMessages(ctx, db, []Message{m})
		if err != nil {
			return out, false, err
		}
		switch f, ok := found[m.RunID]; {
		case !ok:
			return out, false, ErrRunNotFound
		case f.others > 0:
			return out, false, ErrRequestConflict
		case f.missing == 0:
			f.Existed = true
			return f.Signalled, false, nil
		case f.over:
			return out, false, ErrRunFinished
		case f.full():
			return out, false, &fullInbox{m.RunID}
		}
	}
	return out, false, errors.New("the run kept ending and resuming during the call: try again")
}

// SendAll stores those of the messages that their active runs do not have yet, in one transaction if possible. If the
// database refuses some, err says why. After another error all of them are Held, because some may not be sent.
func (s Messages) SendAll(ctx context.Context, messages []Message) (out Sent, err error) {
	var refused error
	err = Isolate(messages, func(some []Message) error {
		var sent Sent
		err := pg.Do(ctx, func(ctx context.Context) (err error) {
			sent, err = s.sendFree(ctx, some)
			return err
		})
		if err == nil {
			out.Stored, out.Held = append(out.Stored, sent.Stored...), append(out.Held, sent.Held...)
		}
		return err
	}, func(m Message, err error) { out.Held, refused = append(out.Held, m), err })
	if err != nil {
		out.Held = messages
	}
	return out, pg.Wrap("send messages", cmp.Or(err, refused))
}

// Sent is what SendAll has done.
type Sent struct {
	Stored []Signalled // runs that got a message
	Held   []Message   // that may not be sent: another transaction has locked the run, or the database refuses them
}

// sendFree sends the messages whose runs no other transaction has locked, in a transaction.
func (s Messages) sendFree(ctx context.Context, messages []Message) (sent Sent, err error) {
	err = pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
		runs := make([]uuid.UUID, len(messages))
		for i, m := range messages {
			runs[i] = m.RunID
		}
		ids, err := s.lockFree(ctx, tx, runs)
		if err != nil {
			return err
		}
		locked := make(map[uuid.UUID]bool, len(ids))
		for _, id := range ids {
			locked[id] = true
		}
		var free []Message
		sent = Sent{}
		for _, m := range messages {
			if locked[m.RunID] {
				free = append(free, m)
			} else {
				sent.Held = append(sent.Held, m)
			}
		}
		got, err := s.storeMessages(ctx, tx, free)
		sent.Stored = slices.Collect(maps.Values(got))
		return err
	})
	return sent, err
}

// storeMessages stores the messages that their runs do not have yet, in order, and returns the runs that got one.
func (s Messages) storeMessages(ctx context.Context, db pg.DB, messages []Message) (map[uuid.UUID]Signalled, error) {
	_, inTx := db.(pgx.Tx)
	runs := make([]uuid.UUID, len(messages))
	for i, m := range messages {
		runs[i] = m.RunID
	}
	b := &pgx.Batch{}
	b.Queue(lockRuns, s.namespace, array(runs))
	b.Queue(storeMessages, messageColumns.args(s.namespace, messages, inTx, MostUnread)...)
	stored := map[uuid.UUID]Signalled{}
	err := pg.Exchange(ctx, db, pg.Untimed, b, nil, func(rows pgx.Rows) error {
		var g Signalled
		_, err := pgx.ForEachRow(rows, []any{&g.RunID, &g.Queue, &g.Type, &g.Version, &g.Running, &g.Due},
			func() error {
				stored[g.RunID] = g
				return nil
			})
		return err
	})
	return stored, err
}

// A messageState is the state of messages and their run in the tables.
type messageState struct {
	Signalled
	missing int // how many of the messages the run does not have
	others  int // how many of them are requests whose ID the run has of another message
	over    bool
	unread  int // how many messages the run has not read, up to MostUnread
}

// full reports whether the run cannot take the messages that it does not have.
func (f messageState) full() bool { return f.unread+f.missing > MostUnread }

func (s Messages) resolveMessages(ctx context.Context, db pg.DB,
	messages []Message,
) (map[uuid.UUID]messageState, error) {
	runs, ids, hashes := make([]uuid.UUID, len(messages)), make([]string, len(messages)), make([][]byte, len(messages))
	for i, m := range messages {
		runs[i], ids[i], hashes[i] = m.RunID, m.ID, m.Hash
	}
	found := map[uuid.UUID]messageState{}
	err := pg.Ask(ctx, db, resolveMessages, []any{s.namespace, array(runs), ids, MostUnread, hashes},
		func(rows pgx.Rows) error {
			var f messageState
			var status string
			_, err := pgx.ForEachRow(rows, []any{
				&f.RunID, &f.Queue, &f.Type, &f.Version, &status, &f.Running, &f.Due,
				&f.missing, &f.others, &f.unread,
			}, func() error {
				f.over = status == Completed || status == Failed || status == Cancelled
				found[f.RunID] = f
				return nil
			})
			return err
		})
	return found, err
}

const messageRuns = `
SELECT u.signal_id, r.run_id
FROM unnest($2::text[]) AS u (signal_id)
CROSS JOIN LATERAL (
	SELECT s.run_id FROM kagzi.signals s WHERE s.signal_id = u.signal_id AND s.namespace_id = $1 OFFSET 0
) r`

// Sent reports whether any run has a message with this ID. It reads in tx unless tx is nil.
func (s Messages) Sent(ctx context.Context, tx pgx.Tx, id string) (sent bool, err error) {
	read := func(ctx context.Context, db pg.DB) error {
		return pg.Ask(ctx, db, messageRuns, []any{s.namespace, []string{id}}, func(rows pgx.Rows) error {
			sent = rows.Next()
			return nil
		})
	}
	if tx != nil {
		err = read(ctx, tx)
	} else {
		err = pg.Do(ctx, func(ctx context.Context) error { return read(ctx, s.pool) })
	}
	return sent, pg.Wrap("find message", err)
}
