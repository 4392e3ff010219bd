package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Operations that people apply to a run.
const (
	EventCancelled  = "CANCELLED"
	EventTerminated = "TERMINATED"
	EventResumed    = "RESUMED"
	EventRestarted  = "RESTARTED"
	EventForked     = "FORKED"
	EventPaused     = "PAUSED"
	EventUnpaused   = "UNPAUSED"
	EventUpdated    = "UPDATED"
	EventSignalled  = "SIGNALLED"
	EventDeleted    = "DELETED"

	EventMessageDropped     = "MESSAGE_DROPPED"
	EventMessageRedelivered = "MESSAGE_REDELIVERED"
	EventResolved           = "RESOLVED" // a step that was in doubt
)

// A RunEvent is an entry of a run's history beside its steps.
type RunEvent struct {
	RunID uuid.UUID
	ID    uuid.UUID
	Event string
	// the run that it was restarted or forked from, or the new one; of DELETED, the run with which it was deleted
	Other uuid.UUID
	Step  string // where the fork begins; that was resolved
	Why
	ExternalID string // of DELETED, the run's, by which the event is found
	Changes    []Changed
	At         time.Time // set by the database

	copied bool // the event of another run says the same: the audit log has that one
}

// newEvent returns an event of the run. An operation makes its events before its first try, so that a repetition after
// a lost answer writes the same ones.
func newEvent(run uuid.UUID, event string, why Why) RunEvent {
	return RunEvent{RunID: run, ID: newID(), Event: event, Why: why}
}

// statement_timestamp, because the transaction may have waited for the run since it began.
const insertEvents = `
INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event, other_run_id, step_id, reason, actor, external_id,
	changes, occurred_at)
SELECT u.run_id, u.event_id, $1, u.event, NULLIF(u.other, '00000000-0000-0000-0000-000000000000'),
	NULLIF(u.step_id, ''), NULLIF(u.reason, ''),
	NULLIF(u.actor, ''), NULLIF(u.external_id, ''), NULLIF(u.changes, '')::jsonb, statement_timestamp()
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
	AS u (run_id, event_id, event, other, step_id, reason, actor, external_id, changes)
ON CONFLICT DO NOTHING`

// writeEvents writes the events of a caller's change in tx, its transaction, and to the audit log. Events that exist
// stay.
func (s *conn) writeEvents(ctx context.Context, tx pgx.Tx, events ...RunEvent) error {
	b := &pgx.Batch{}
	b.Queue(insertEvents, eventColumns.args(s.namespace, events)...)
	b.Queue(insertAudit, auditColumns.args(s.namespace, audited(events))...)
	return pg.Exchange(ctx, tx, pg.Untimed, b)
}

// audited returns the entries of events of runs.
func audited(events []RunEvent) (entries []AuditEntry) {
	for _, e := range events {
		if !e.copied {
			entries = append(entries, AuditEntry{
				ID: e.ID, Action: e.Event, Kind: OnRun, Name: e.RunID.String(), Other: e.Other, Step: e.Step,
				Why: e.Why, Changes: e.Changes,
			})
		}
	}
	return entries
}

// writeOwnEvents is writeEvents for a change that no caller asked for: it is not in the audit log.
func (s *conn) writeOwnEvents(ctx context.Context, tx pgx.Tx, events ...RunEvent) error {
	return pg.Ask(ctx, tx, insertEvents, eventColumns.args(s.namespace, events), nil)
}

var eventColumns = columnsOf(insertEvents,
	uuids("run_id", func(e RunEvent) uuid.UUID { return e.RunID }),
	uuids("event_id", func(e RunEvent) uuid.UUID { return e.ID }),
	texts("event", func(e RunEvent) string { return e.Event }),
	uuids("other", func(e RunEvent) uuid.UUID { return e.Other }),
	texts("step_id", func(e RunEvent) string { return e.Step }),
	texts("reason", func(e RunEvent) string { return e.Reason }),
	texts("actor", func(e RunEvent) string { return e.Actor }),
	texts("external_id", func(e RunEvent) string { return e.ExternalID }),
	texts("changes", func(e RunEvent) string { return changesText(e.Changes) }),
)

const eventExists = `
SELECT EXISTS (SELECT FROM kagzi.run_events e WHERE e.run_id = $2 AND e.event_id = $3 AND e.namespace_id = $1)`

// hasEvent reports whether the event exists: if so, an earlier try of its verb, whose answer was lost, took effect.
func (s *conn) hasEvent(ctx context.Context, tx pgx.Tx, e RunEvent) (bool, error) {
	return pg.AskOne[bool](ctx, tx, eventExists, s.namespace, e.RunID, e.ID)
}

const runEvents = `
SELECT e.run_id, e.event_id, e.event, coalesce(e.other_run_id, '00000000-0000-0000-0000-000000000000'),
	coalesce(e.step_id, ''),
	coalesce(e.reason, ''), coalesce(e.actor, ''), e.changes, e.occurred_at
FROM kagzi.run_events e
WHERE e.run_id = $2 AND e.namespace_id = $1
ORDER BY e.occurred_at, e.event_id`

// Events returns the events of a run, oldest first.
func (s Runs) Events(ctx context.Context, run uuid.UUID) (events []RunEvent, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, runEvents, []any{s.namespace, run},
			pg.Collect(&events, func(row pgx.CollectableRow) (e RunEvent, err error) {
				return e, row.Scan(&e.RunID, &e.ID, &e.Event, &e.Other, &e.Step, &e.Reason, &e.Actor, &e.Changes,
					pg.UTC(&e.At))
			}))
	})
	return events, pg.Wrap("read events", err)
}
