package store

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Signal is a message to a run.
type Signal struct {
	RunID      uuid.UUID
	Name       string
	Sequence   int64 // the number of the wake-up that announced it; messages are read in this order
	ID         string
	Payload    []byte
	Headers    json.RawMessage // nil: none
	ReceivedAt time.Time
	ExpiresAt  time.Time // no step takes it from then on; zero: it does not expire
	ReplyTo    string    // the run and the step that get the answer as a message; empty: none
}

// A ChildEnd is the end of a child that its parent has not recorded yet.
type ChildEnd struct {
	Parent     uuid.UUID
	Child      uuid.UUID
	Ending     bool // it has not ended yet, but will not complete: its compensations run first
	Type       string
	Status     string
	Output     []byte
	ErrorKind  string
	Error      string
	FinishedAt time.Time
}

// ChildFailure returns the output of a step that records how a child failed: its status in quotes, then a newline and
// the details of its failure, if it has some.
func ChildFailure(status string, details []byte) []byte {
	output := strconv.AppendQuote(nil, status)
	if details == nil {
		return output
	}
	return append(append(output, '\n'), details...)
}

// ReadChildFailure returns the parts of a [ChildFailure]. details is nil if there are none. The first 11 bytes have the
// whole status.
func ReadChildFailure(output []byte) (status string, details []byte) {
	quoted, details, has := bytes.Cut(output, []byte("\n"))
	if !has {
		details = nil
	}
	return strings.Trim(string(quoted), `"`), details
}

// An Inbox holds unread messages of a run, and the ends of children that the run has not recorded yet.
type Inbox struct {
	Wakeups int64 // the run's count, read before the rest
	Signals []*Signal
	Rest    string // messages of this name, and of names behind it, may be missing in Signals; empty: none are
	Ends    []*ChildEnd
}

// messagePage bounds the bytes of a run's messages that are read at once. messagePages bounds those of many runs
// together.
const (
	messagePage  = 1 << 20
	messagePages = 32 << 20
)

// The first unread messages of each run, by name, and those of a name in order of their sequence. The ORDER BY is that
// of the key, which keeps the planner from using the other index. $3 limits the bytes of a run: the message that
// exceeds it comes without its payload. The LIMIT is never reached before: it bounds what the server reads of a full
// inbox.
const unreadSignals = `
SELECT g.run_id, g.name, g.sequence, g.signal_id, CASE WHEN g.bytes <= $3 THEN g.payload END, g.headers,
	g.received_at, g.expires_at, coalesce(g.reply_to, ''), g.bytes > $3
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT l.*, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
	FROM (
		SELECT s.run_id, s.name, s.sequence, s.signal_id, s.payload, s.headers, s.received_at, s.expires_at, s.reply_to,
			200 + coalesce(octet_length(s.payload), 0) + coalesce(octet_length(s.headers::text), 0) AS size
		FROM kagzi.signals s
		WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.consumed_by IS NULL AND s.set_aside_at IS NULL
		ORDER BY s.name, s.sequence
		LIMIT $3::bigint / 200 + 2
	) l
) g
WHERE g.bytes - g.size <= $3`

// As unreadSignals, but of one name, and behind a message. A message counts as a page at most, so the first one comes
// whole.
const unreadOfName = `
SELECT g.run_id, g.name, g.sequence, g.signal_id, CASE WHEN g.bytes <= $5 THEN g.payload END, g.headers,
	g.received_at, g.expires_at, coalesce(g.reply_to, ''), g.bytes > $5
FROM (
	SELECT l.*, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
	FROM (
		SELECT s.run_id, s.name, s.sequence, s.signal_id, s.payload, s.headers, s.received_at, s.expires_at, s.reply_to,
			LEAST(200 + coalesce(octet_length(s.payload), 0) + coalesce(octet_length(s.headers::text), 0),
			$5::bigint) AS size
		FROM kagzi.signals s
		WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.name = $3 AND s.sequence > $4 AND s.consumed_by IS NULL
			AND s.set_aside_at IS NULL
		ORDER BY s.name, s.sequence
		LIMIT $5::bigint / 200 + 2
	) l
) g
WHERE g.bytes - g.size <= $5`

// The start of a child is recorded as RUNNING until its parent has recorded the child's end. $3 limits the bytes, as in
// history.
const endedChildren = `
SELECT e.parent_run_id, e.run_id, e.workflow_type, e.status, CASE WHEN e.bytes <= $3 THEN e.output END, e.error_kind,
	e.error,
	e.ended_at, e.ending, u.run_id, e.bytes > $3
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT l.*, sum(l.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
	FROM (
		SELECT c.parent_run_id, c.run_id, c.workflow_type, c.status, c.output, c.error_kind, c.error, c.ended_at,
			c.ending,
			300 + coalesce(octet_length(c.output), 0) + coalesce(octet_length(c.error), 0) AS size
		FROM (
			SELECT s.child_run_id
			FROM kagzi.step_runs s
			WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_kind = 'CHILD_WORKFLOW'
				AND s.status = 'RUNNING' AND ` + clause.OwnEpoch + `
			OFFSET 0
		) s
		CROSS JOIN LATERAL (
			SELECT q.parent_run_id, q.run_id, q.workflow_type, q.status, q.output, q.error_kind, q.error,
				coalesce(q.finished_at, q.cancel_requested_at, q.started_at) AS ended_at,
				q.finished_at IS NULL AS ending
			FROM kagzi.workflow_runs q
			WHERE q.run_id = s.child_run_id AND q.namespace_id = $1 AND (q.finished_at IS NOT NULL
				OR q.cancel_requested_at IS NOT NULL OR q.outcome IS NOT NULL)
			OFFSET 0
		) c
	) l
) e
WHERE e.bytes - e.size <= $3`

const runWakeups = `
SELECT r.run_id, r.wakeups
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id, q.wakeups FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r`

// Inbox returns the inboxes of the runs, of the messages of each run a page. It reads the wake-ups in a statement
// before the rest: Wakeups does not count a message that arrives in between, so the message is read again.
func (s Messages) Inbox(ctx context.Context, runs []uuid.UUID) (map[uuid.UUID]*Inbox, error) {
	var out map[uuid.UUID]*Inbox
	err := pg.Within(ctx, bulkTimeout, func(ctx context.Context) error {
		out = make(map[uuid.UUID]*Inbox, len(runs))
		b := &pgx.Batch{}
		b.Queue(runWakeups, s.namespace, array(runs))
		queueInbox(b, s.namespace, runs, NoLimit)
		return pg.Exchange(ctx, s.pool, pg.Untimed, b, func(rows pgx.Rows) error {
			var id uuid.UUID
			var wakeups int64
			_, err := pgx.ForEachRow(rows, []any{&id, &wakeups}, func() error {
				out[id] = &Inbox{Wakeups: wakeups}
				return nil
			})
			return err
		}, readSignals(out), readEnds(out, nil))
	})
	if err != nil {
		return nil, pg.Wrap("read messages", err) // without a partial result, which a caller would take for all
	}
	return out, nil
}

// queueInbox queues the statements for readSignals and readEnds, with a limit of bytes for each run.
func queueInbox(b *pgx.Batch, namespace string, runs []uuid.UUID, most int64) {
	b.Queue(unreadSignals, namespace, array(runs), min(most, messagePage, messagePages/int64(max(1, len(runs)))))
	b.Queue(endedChildren, namespace, array(runs), most)
}

// readSignals reads unreadSignals into out, for the runs that are in out.
func readSignals(out map[uuid.UUID]*Inbox) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return eachSignal(rows, func(g *Signal, over bool) {
			switch n := out[g.RunID]; {
			case n == nil:
			case over:
				n.Rest = g.Name
			default:
				n.Signals = append(n.Signals, g)
			}
		})
	}
}

// eachSignal calls f for each row. over says that the message exceeds the limit, and lacks its payload.
func eachSignal(rows pgx.Rows, f func(g *Signal, over bool)) error {
	var g Signal
	var over bool
	_, err := pgx.ForEachRow(rows, []any{
		&g.RunID, &g.Name, &g.Sequence, &g.ID, &g.Payload, &g.Headers, pg.UTC(&g.ReceivedAt),
		pg.UTC(&g.ExpiresAt), &g.ReplyTo, &over,
	}, func() error {
		signal := g
		g.Payload, g.Headers = nil, nil // the next scan must not overwrite it
		f(&signal, over)
		return nil
	})
	return err
}

// UnreadOfName returns a page of the run's unread messages of a name, in the order of their sequence, behind the one
// numbered after. more says that there are others behind them.
func (s Messages) UnreadOfName(ctx context.Context, run uuid.UUID, name string,
	after int64,
) (page []*Signal, more bool, err error) {
	err = pg.Within(ctx, bulkTimeout, func(ctx context.Context) error {
		page, more = nil, false
		return pg.Ask(ctx, s.pool, unreadOfName, []any{s.namespace, run, name, after, messagePage},
			func(rows pgx.Rows) error {
				return eachSignal(rows, func(g *Signal, over bool) {
					if over {
						more = true
					} else {
						page = append(page, g)
					}
				})
			})
	})
	return page, more, pg.Wrap("read messages", err)
}

// readEnds reads endedChildren into out, for the runs that are in out. It sets more for the runs that exceed the limit.
func readEnds(out map[uuid.UUID]*Inbox, more map[uuid.UUID]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var c ChildEnd
		var kind, text *string
		// the run of the argument: a fork has steps copied from another run, whose children are not its own
		var of uuid.UUID
		var over bool
		_, err := pgx.ForEachRow(rows, []any{
			&c.Parent, &c.Child, &c.Type, &c.Status, &c.Output, &kind, &text,
			pg.UTC(&c.FinishedAt), &c.Ending, &of, &over,
		}, func() error {
			end := c
			c.Output = nil
			end.ErrorKind, end.Error = pg.Deref(kind), pg.Deref(text)
			if over {
				more[of] = true
			} else if n := out[c.Parent]; n != nil {
				n.Ends = append(n.Ends, &end)
			}
			return nil
		})
		return err
	}
}

// The step's row says which message it consumed: the row may be older than the record in the flush. The statement finds
// and locks the messages before it writes them. The planner would start a join at the signals while that table is
// small.
const consumeSignals = `
WITH locked AS MATERIALIZED (
	SELECT r.run_id, r.name, r.sequence, u.step_id, clock_timestamp() AS now
	FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::int[]) AS u (run_id, name, sequence, step_id,
		attempt_number)
	CROSS JOIN LATERAL (
		SELECT g.run_id, g.name, g.sequence
		FROM kagzi.signals g
		WHERE g.run_id = u.run_id AND g.name = u.name AND g.sequence = u.sequence AND g.namespace_id = $1
			AND g.consumed_by IS NULL
		FOR UPDATE
	) r
	WHERE (SELECT s.sequence FROM kagzi.step_runs s
		WHERE s.run_id = u.run_id AND s.step_id = u.step_id AND s.attempt_number = u.attempt_number
			AND s.namespace_id = $1) = u.sequence
)
UPDATE kagzi.signals g
SET consumed_by = locked.step_id, consumed_at = locked.now
FROM locked
WHERE g.run_id = locked.run_id AND g.name = locked.name AND g.sequence = locked.sequence AND g.namespace_id = $1`

var consumeColumns = columnsOf(consumeSignals,
	uuids("run_id", func(r *Record) uuid.UUID { return r.RunID }),
	texts("name", func(r *Record) string { return r.Signal }),
	bigints("sequence", func(r *Record) int64 { return r.Sequence }),
	texts("step_id", func(r *Record) string { return r.StepID }),
	ints("attempt_number", func(r *Record) int { return r.Attempt }),
)

// consuming returns the records of steps that consume messages.
func consuming(records []*Record) []*Record {
	var out []*Record
	for _, r := range records {
		if r.Signal != "" {
			out = append(out, r)
		}
	}
	return out
}
