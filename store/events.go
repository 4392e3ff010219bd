package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
)

// A RunEvent is an entry of a run's history beside its steps.
type RunEvent struct {
	RunID  uuid.UUID
	ID     uuid.UUID
	Event  string
	Other  uuid.UUID // the run that it was restarted or forked from, or the new one
	Step   string    // where the fork begins
	Reason string
	Actor  string    // who did it, if the caller said so
	At     time.Time // set by the database
}

// newEvent returns an event of the run. An operation makes its events before its first try, so that a repetition after a
// lost answer writes the same ones.
func newEvent(run uuid.UUID, event, reason string) RunEvent {
	return RunEvent{RunID: run, ID: newID(), Event: event, Reason: reason}
}

// newID returns a UUIDv7: such IDs are ordered by their time of creation.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// statement_timestamp, because the transaction may have waited for the run since it began.
const insertEvents = `
INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event, other_run_id, step_id, reason, actor, occurred_at)
SELECT u.run_id, u.event_id, $1, u.event, NULLIF(u.other, '00000000-0000-0000-0000-000000000000'), NULLIF(u.step_id, ''), NULLIF(u.reason, ''),
	NULLIF(u.actor, ''), statement_timestamp()
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[])
	AS u (run_id, event_id, event, other, step_id, reason, actor)
ON CONFLICT DO NOTHING`

// writeEvents writes the events in tx, the transaction of the change that they are about. Events that exist stay.
func (s *Store) writeEvents(ctx context.Context, tx pgx.Tx, events ...RunEvent) error {
	n := len(events)
	runs, ids, others := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	kinds, steps, reasons, actors := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, e := range events {
		runs[i], ids[i], others[i] = e.RunID, e.ID, e.Other
		kinds[i], steps[i], reasons[i], actors[i] = e.Event, e.Step, e.Reason, e.Actor
	}
	err := ask(ctx, tx, insertEvents, []any{s.namespace, array(runs), array(ids), kinds, array(others), steps, reasons, actors}, nil)
	return err
}

const eventExists = `
SELECT EXISTS (SELECT FROM kagzi.run_events e WHERE e.run_id = $2 AND e.event_id = $3 AND e.namespace_id = $1)`

// hasEvent reports whether the event exists: if so, an earlier try of its verb, whose answer was lost, took effect.
func (s *Store) hasEvent(ctx context.Context, tx pgx.Tx, e RunEvent) (bool, error) {
	return askOne[bool](ctx, tx, eventExists, s.namespace, e.RunID, e.ID)
}

const runEvents = `
SELECT e.run_id, e.event_id, e.event, coalesce(e.other_run_id, '00000000-0000-0000-0000-000000000000'), coalesce(e.step_id, ''),
	coalesce(e.reason, ''), coalesce(e.actor, ''), e.occurred_at
FROM kagzi.run_events e
WHERE e.run_id = $2 AND e.namespace_id = $1
ORDER BY e.occurred_at, e.event_id`

// RunEvents returns the events of a run, oldest first.
func (s *Store) RunEvents(ctx context.Context, run uuid.UUID) (events []RunEvent, err error) {
	err = do(ctx, func(ctx context.Context) error {
		return ask(ctx, s.pool, runEvents, []any{s.namespace, run}, collect(&events, func(row pgx.CollectableRow) (e RunEvent, err error) {
			return e, row.Scan(&e.RunID, &e.ID, &e.Event, &e.Other, &e.Step, &e.Reason, &e.Actor, utc(&e.At))
		}))
	})
	return events, wrap("read events", err)
}
