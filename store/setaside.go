package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A SetAside keeps a message that does not decode, or that has expired, from being read again. A worker writes it under
// the run's lease. If it dies before, the next worker finds the message unread, and decides again.
type SetAside struct {
	RunID    uuid.UUID
	Lease    uuid.UUID
	Name     string
	Sequence int64
	Reason   string
	Expired  bool // it only counts as read

	Outcome Outcome
}

func (a *SetAside) head() head { return head{run: a.RunID, lease: a.Lease, outcome: &a.Outcome} }

const setAsideMessages = `
WITH given AS MATERIALIZED (
	SELECT u.run_id, u.name, u.sequence, u.reason, u.expired, clock_timestamp() AS now
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::bool[]) AS u (run_id, lease, name,
		sequence, reason, expired)
	CROSS JOIN LATERAL (
		SELECT 1
		FROM kagzi.workflow_runs r
		WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.lease = u.lease AND r.status = 'RUNNING'
		FOR SHARE
	) l
)
UPDATE kagzi.signals g
SET set_aside_at = CASE WHEN NOT given.expired THEN given.now END,
	set_aside = CASE WHEN NOT given.expired THEN given.reason END,
	consumed_at = CASE WHEN given.expired THEN given.now END, consumed_by = CASE WHEN given.expired THEN '' END
FROM given
WHERE g.run_id = given.run_id AND g.name = given.name AND g.sequence = given.sequence AND g.namespace_id = $1
	AND g.consumed_by IS NULL AND g.set_aside_at IS NULL`

var setAsideColumns = columnsOf(setAsideMessages,
	uuids("run_id", func(a *SetAside) uuid.UUID { return a.RunID }),
	uuids("lease", func(a *SetAside) uuid.UUID { return a.Lease }),
	texts("name", func(a *SetAside) string { return a.Name }),
	bigints("sequence", func(a *SetAside) int64 { return a.Sequence }),
	texts("reason", func(a *SetAside) string { return a.Reason }),
	bools("expired", func(a *SetAside) bool { return a.Expired }),
)

// readSetAside marks all of them as done. One whose lease is lost changes nothing, and there is nothing to write again.
func readSetAside(all []*SetAside) func(pgx.Rows) error {
	return func(pgx.Rows) error {
		for _, a := range all {
			a.Outcome = Done
		}
		return nil
	}
}

// A MessageKept says why a message cannot be removed.
type MessageKept struct {
	ReadBy  string // the step that has read it
	Running bool   // it is unread, and a worker that executes the run may be about to read it
}

func (e *MessageKept) Error() string {
	if e.ReadBy != "" {
		return fmt.Sprintf("the run has read the message in %q", e.ReadBy)
	}
	return "the run may be about to read the message"
}

// $4 says that an unread message is removed, too, although it was not set aside.
const removeMessage = `
DELETE FROM kagzi.signals g
WHERE g.signal_id = $3 AND g.run_id = $2 AND g.namespace_id = $1 AND g.consumed_by IS NULL
	AND (g.set_aside_at IS NOT NULL OR $4::bool)
RETURNING g.name, g.payload, g.headers, g.payload_hash, coalesce(g.reply_to, ''), coalesce(g.sent_by, ''),
	coalesce(extract(epoch FROM g.expires_at - g.received_at) * 1000000, 0)::bigint`

const messageReadBy = `
SELECT coalesce(g.consumed_by, '')
FROM kagzi.signals g
WHERE g.signal_id = $3 AND g.run_id = $2 AND g.namespace_id = $1`

// Drop removes a message that the run has not read: one that was set aside, or any, if no worker executes the
// run. It returns ErrRunNotFound, ErrMessageNotFound and *MessageKept.
func (s Messages) Drop(ctx context.Context, tx pgx.Tx, run uuid.UUID, id string, why Why) error {
	event := newEvent(run, EventMessageDropped, why)
	err := s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		done, status, err := s.lockForMessage(ctx, tx, event)
		if done || err != nil {
			return err
		}
		m, err := s.removeMessage(ctx, tx, run, id, status != Running)
		if err != nil {
			return err
		}
		name, of := MessageName(m.Name)
		event.Changes = []Changed{{of, name, ""}, {"message", id, ""}}
		return s.writeEvents(ctx, tx, event)
	})
	return pg.Wrap("drop message", err)
}

// Redeliver stores a message that was set aside as if its sender had sent it again: behind all others. It
// returns the errors of Drop, ErrRunFinished and ErrInboxFull. A tx survives its errors.
func (s Messages) Redeliver(ctx context.Context, tx pgx.Tx, run uuid.UUID, id string,
	why Why,
) (out Signalled, err error) {
	event := newEvent(run, EventMessageRedelivered, why)
	err = s.inSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		done, status, err := s.lockForMessage(ctx, tx, event)
		if err != nil {
			return err
		}
		if done {
			found, err := s.resolveMessages(ctx, tx, []Message{{RunID: run, ID: id}})
			out = found[run].Signalled
			return err
		}
		if status == Completed || status == Failed || status == Cancelled {
			return ErrRunFinished
		}
		m, err := s.removeMessage(ctx, tx, run, id, false)
		if err != nil {
			return err
		}
		stored, err := s.storeMessages(ctx, tx, []Message{m})
		if err != nil {
			return err
		}
		ok := false
		if out, ok = stored[run]; !ok { // a fork has all messages of its source, also those that the source had read
			return ErrInboxFull
		}
		name, of := MessageName(m.Name)
		event.Changes = []Changed{{of, "", name}, {"message", "", id}}
		return s.writeEvents(ctx, tx, event)
	})
	return out, pg.Wrap("redeliver message", err)
}

// lockForMessage locks the run of the event, and returns its status. done says that an earlier try, whose answer was
// lost, has written the event.
func (s Messages) lockForMessage(ctx context.Context, tx pgx.Tx, event RunEvent) (done bool, status string, err error) {
	if err := pg.Ask(ctx, tx, lockRuns, []any{s.namespace, array([]uuid.UUID{event.RunID})}, nil); err != nil {
		return false, "", err
	}
	if status, err = s.status(ctx, tx, event.RunID); err != nil {
		return false, "", err
	}
	done, err = s.hasEvent(ctx, tx, event)
	return done, status, err
}

// removeMessage deletes a message that was set aside, or, with unread, any that no step has read. It returns the
// message.
func (s Messages) removeMessage(ctx context.Context, tx pgx.Tx, run uuid.UUID, id string,
	unread bool,
) (Message, error) {
	m := Message{RunID: run, ID: id}
	var headers *json.RawMessage
	var within int64
	err := pg.AskRow(ctx, tx, removeMessage, []any{s.namespace, run, id, unread}, &m.Name, &m.Payload, &headers,
		&m.Hash, &m.ReplyTo, &m.SentBy, &within)
	if err == nil {
		m.Headers, m.Within = pg.Deref(headers), time.Duration(within)*time.Microsecond
		return m, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return m, err
	}
	readBy, err := pg.AskOne[string](ctx, tx, messageReadBy, s.namespace, run, id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return m, ErrMessageNotFound
	case err != nil:
		return m, err
	}
	return m, &MessageKept{ReadBy: readBy, Running: readBy == ""}
}
