package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// A FullInbox is a run that takes no more messages.
type FullInbox struct {
	RunID uuid.UUID
	Type  string
	Since time.Time // the first message that it refused
}

// How many messages of r are unread, up to $3.
const unreadUpTo = `(SELECT count(*) FROM (
	SELECT FROM kagzi.signals s WHERE s.run_id = r.run_id AND s.namespace_id = $1 AND s.consumed_by IS NULL
		LIMIT $3::bigint
) x)`

// A run may have read messages since it refused one, so they are counted.
const fullInboxes = `
SELECT r.run_id, r.workflow_type, r.inbox_full_at
FROM (
	SELECT q.run_id, q.workflow_type, q.inbox_full_at
	FROM kagzi.workflow_runs q
	WHERE q.inbox_full_at IS NOT NULL AND q.finished_at IS NULL AND q.namespace_id = $1
	ORDER BY q.inbox_full_at DESC
	LIMIT $2
) r
WHERE ` + unreadUpTo + ` >= $3::bigint`

// FullInboxes returns runs that take no more messages, of the limit runs that began to refuse messages last.
func (s *Health) FullInboxes(ctx context.Context, db pg.DB, limit int) (out []FullInbox, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		return pg.Ask(ctx, db, fullInboxes, []any{s.namespace, limit, store.MostUnread},
			pg.Collect(&out, func(row pgx.CollectableRow) (f FullInbox, err error) {
				return f, row.Scan(&f.RunID, &f.Type, pg.UTC(&f.Since))
			}))
	})
	return out, pg.Wrap("find runs that take no messages", err)
}

const inboxFull = `SELECT ` + unreadUpTo + ` >= $3::bigint FROM (VALUES ($2::uuid)) AS r (run_id)`

// InboxOf returns how many messages of the run do not decode, if waits says that it waits for one, and since when the
// run takes no more messages; zero if it takes some.
func (s *Lists) InboxOf(ctx context.Context, r *store.Run, waits bool) (aside int, fullSince time.Time, err error) {
	err = pg.Do(ctx, func(ctx context.Context) (err error) {
		if waits {
			if aside, err = pg.AskOne[int](ctx, s.pool, countSetAside, s.namespace, r.RunID); err != nil {
				return err
			}
		}
		if r.InboxFullAt.IsZero() {
			return nil
		}
		full, err := pg.AskOne[bool](ctx, s.pool, inboxFull, s.namespace, r.RunID, store.MostUnread)
		if full {
			fullSince = r.InboxFullAt
		}
		return err
	})
	return aside, fullSince, pg.Wrap("count messages", err)
}

// A StoredMessage is a message of a run, whether it has been read or not.
type StoredMessage struct {
	Name       string
	ID         string
	Payload    []byte
	Headers    json.RawMessage // nil: none
	SentBy     string          // the run and the step that sent it; empty: no step
	ReceivedAt time.Time
	ReadBy     string // the step that read it; empty: none
	ReadAt     time.Time
	AnsweredAt time.Time // of a request: when its answer was recorded
	Expired    bool      // no step read it in time: ReadAt says when that was found
	SetAside   string    // why it was set aside; empty: it was not
	SetAsideAt time.Time
}

// A MessageFilter chooses messages of a run.
type MessageFilter struct {
	Name   string // empty: of all names
	Unread bool   // only those that no step has read
	After  string // the ID of the last message of the previous page; empty: the first page
	Limit  int
}

const storedMessage = `g.name, g.signal_id, g.payload, g.headers, coalesce(g.sent_by, ''), g.received_at,
	coalesce(g.consumed_by, ''), g.consumed_at, coalesce(g.consumed_by = '', false), coalesce(g.set_aside, ''),
	g.set_aside_at,
	CASE WHEN g.payload_hash IS NOT NULL THEN (
		SELECT min(a.finished_at) FROM kagzi.step_runs a
		WHERE a.run_id = g.run_id AND a.namespace_id = $1 AND a.sequence = g.sequence AND a.step_kind = 'REPLY'
	) END`

// Both statements read in the order of the key, begin behind the message ($3, $4), and stop at the limit.
const messagesOfRun = `
SELECT ` + storedMessage + `
FROM kagzi.signals g
WHERE g.run_id = $2 AND g.namespace_id = $1 AND (g.name, g.sequence) > ($3::text, $4::bigint)
	AND NOT ($5::bool AND g.consumed_by IS NOT NULL)
ORDER BY g.name, g.sequence
LIMIT $6`

const messagesOfName = `
SELECT ` + storedMessage + `
FROM kagzi.signals g
WHERE g.run_id = $2 AND g.namespace_id = $1 AND g.name = $3 AND g.sequence > $4
	AND NOT ($5::bool AND g.consumed_by IS NOT NULL)
ORDER BY g.name, g.sequence
LIMIT $6`

const messagePlace = `
SELECT g.name, g.sequence
FROM kagzi.signals g
WHERE g.signal_id = $3 AND g.run_id = $2 AND g.namespace_id = $1`

// Messages returns messages of a run by name, and those of a name in the order in which they were stored. It returns
// ErrRunNotFound, and ErrMessageNotFound if the run has no message After, or that is of another name than the filter's.
func (s *Lists) Messages(ctx context.Context, run uuid.UUID, f MessageFilter) (out []StoredMessage, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = nil
		name, sequence := f.Name, int64(-1)
		if f.After != "" {
			last := ""
			err := pg.AskRow(ctx, s.pool, messagePlace, []any{s.namespace, run, f.After}, &last, &sequence)
			if errors.Is(err, pgx.ErrNoRows) {
				return store.ErrMessageNotFound
			}
			if err != nil {
				return err
			}
			if f.Name != "" && last != f.Name {
				return store.ErrMessageNotFound
			}
			name = last
		}
		statement := messagesOfRun
		if f.Name != "" {
			statement = messagesOfName
		}
		return pg.Ask(ctx, s.pool, statement, []any{s.namespace, run, name, sequence, f.Unread, f.Limit},
			func(rows pgx.Rows) error {
				var m StoredMessage
				_, err := pgx.ForEachRow(rows, []any{
					&m.Name, &m.ID, &m.Payload, &m.Headers, &m.SentBy, pg.UTC(&m.ReceivedAt),
					&m.ReadBy, pg.UTC(&m.ReadAt), &m.Expired, &m.SetAside, pg.UTC(&m.SetAsideAt), pg.UTC(&m.AnsweredAt),
				}, func() error {
					out = append(out, m)
					m.Payload, m.Headers = nil, nil // the next scan must not overwrite them
					return nil
				})
				return err
			})
	})
	if err == nil && len(out) == 0 || errors.Is(err, store.ErrMessageNotFound) {
		_, missing := store.New(s.pool, s.namespace).Runs.Get(ctx, run)
		err = cmp.Or(missing, err)
	}
	return out, pg.Wrap("list messages", err)
}
