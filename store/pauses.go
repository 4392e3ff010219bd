package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Pauses pauses runs, queues, workflows and keys.
type Pauses struct{ *conn }

// unpausedPair is the condition for a pair w of the queue $2 that is not paused. It needs clause.PausesOfRuns. If
// nothing is paused, it spares a search for each pair, of which a worker may have hundreds.
const unpausedPair = `((SELECT count(*) FROM pauses) = 0 OR (
		SELECT count(*) FROM pauses p WHERE p.in_queue IN ('', $2) AND p.of_type IN ('', w.workflow_type)
	) = 0)`

// A Pause names its target: a key of a queue or a group, or the runs of a queue, of a workflow, or of both. Empty
// names stand for any, so a Pause without names is of all runs of the namespace.
type Pause struct {
	Queue  string
	Type   string
	Key    Key  // of Queue, or a group; without Type
	Parks  bool // executions under way stop at their next step
	Reason string
	Actor  string
	At     time.Time // set by the database
}

// ErrNotPaused reports that there is no such pause.
var ErrNotPaused = errors.New("not paused")

// The statements of the pauses of a kind. Their first arguments are the namespace and the target. A reason or an
// actor that is not given does not remove the one that is there.
type pauseStatements struct{ before, set, end string }

// Of a queue, a workflow, or both: rows of kagzi.pauses.
const (
	pauseOfWork = `
SELECT p.parks, coalesce(p.reason, ''), coalesce(p.actor, '')
FROM kagzi.pauses p
WHERE p.namespace_id = $1 AND p.task_queue = $2 AND p.workflow_type = $3
FOR UPDATE`

	pauseWork = `
INSERT INTO kagzi.pauses AS p (namespace_id, task_queue, workflow_type, parks, reason, actor, paused_at)
VALUES ($1, $2, $3, $4, NULLIF($5::text, ''), NULLIF($6::text, ''), statement_timestamp())
ON CONFLICT (task_queue, workflow_type, namespace_id) DO UPDATE
SET parks = excluded.parks, reason = coalesce(excluded.reason, p.reason), actor = coalesce(excluded.actor, p.actor)`

	unpauseWork = `
DELETE FROM kagzi.pauses p
WHERE p.namespace_id = $1 AND p.task_queue = $2 AND p.workflow_type = $3`
)

// Of a key: columns of its row.
const (
	pauseOfKey = `
SELECT x.pause_parks, coalesce(x.pause_reason, ''), coalesce(x.pause_actor, '')
FROM kagzi.run_keys x
WHERE x.namespace_id = $1 AND x.key_scope = $2 AND x.run_key = $3 AND x.paused_at IS NOT NULL
FOR UPDATE`

	pauseKey = `
WITH clock AS MATERIALIZED (
	SELECT statement_timestamp() AS now
)
UPDATE kagzi.run_keys x
SET pause_parks = $4, pause_reason = coalesce(NULLIF($5::text, ''), x.pause_reason),
	pause_actor = coalesce(NULLIF($6::text, ''), x.pause_actor), paused_at = coalesce(x.paused_at, clock.now)
FROM clock
WHERE x.namespace_id = $1 AND x.key_scope = $2 AND x.run_key = $3`

	unpauseKey = `
UPDATE kagzi.run_keys x
SET pause_parks = false, pause_reason = NULL, pause_actor = NULL, paused_at = NULL
WHERE x.namespace_id = $1 AND x.key_scope = $2 AND x.run_key = $3`
)

// statements returns those of p, and the arguments that say what it is about.
func (p *Pause) statements(namespace string) (pauseStatements, []any) {
	if p.Key.Name != "" {
		return pauseStatements{pauseOfKey, pauseKey, unpauseKey}, []any{namespace, p.Key.scope(p.Queue), p.Key.Name}
	}
	return pauseStatements{pauseOfWork, pauseWork, unpauseWork}, []any{namespace, p.Queue, p.Type}
}

// Pause stores p: from its commit on, claims take no run that it is about. It returns the workers whose executions are
// to stop. Until tx ends, claims leave a key alone that it pauses.
func (s Pauses) Pause(ctx context.Context, tx pgx.Tx, p Pause) (workers []uuid.UUID, err error) {
	id := newID()
	err = s.withKeyRow(ctx, func() error {
		return s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
			workers = nil
			if p.Key.Name != "" {
				if err := s.lockKeyRow(ctx, tx, p.Key.scope(p.Queue), p.Key.Name); err != nil {
					return err
				}
			}
			if err := s.pause(ctx, tx, id, p); err != nil || !p.Parks {
				return err
			}
			return pg.Ask(ctx, tx, workersOf, []any{s.namespace, p.Queue}, pg.Collect(&workers,
				pgx.RowTo[uuid.UUID]))
		})
	})
	return workers, pg.Wrap("pause", err)
}

// pause writes p, and an entry with the ID of the audit log if it changes something.
func (s Pauses) pause(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Pause) error {
	statements, args := p.statements(s.namespace)
	entry, err := s.pauseEntry(ctx, tx, p)
	if err != nil {
		return err
	}
	err = pg.Ask(ctx, tx, statements.set, append(args, p.Parks, p.Reason, p.Actor), nil)
	if err != nil || entry == nil {
		return err
	}
	entry.ID = id
	return s.audit(ctx, tx, *entry)
}

// pauseEntry returns what a pause changes; nil if nothing.
func (s Pauses) pauseEntry(ctx context.Context, tx pgx.Tx, p Pause) (*AuditEntry, error) {
	entry := p.entry(EventPaused)
	before, paused, err := s.before(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	entry.Change("park", before.Parks, p.Parks)
	if paused && len(entry.Changes) == 0 && (p.Reason == "" || p.Reason == before.Reason) &&
		(p.Actor == "" || p.Actor == before.Actor) {
		return nil, nil
	}
	return &entry, nil
}

// before locks the pause of what p is about, if there is one.
func (s Pauses) before(ctx context.Context, tx pgx.Tx, p Pause) (before Pause, paused bool, err error) {
	statements, args := p.statements(s.namespace)
	err = pg.AskRow(ctx, tx, statements.before, args, &before.Parks, &before.Reason, &before.Actor)
	if errors.Is(err, pgx.ErrNoRows) {
		return Pause{}, false, nil
	}
	return before, true, err
}

// entry returns an entry of the audit log about what p pauses.
func (p *Pause) entry(action string) AuditEntry {
	e := NewEntry(action, OnAll, "", Why{p.Reason, p.Actor})
	switch {
	case p.Key.Group:
		e.Kind, e.Name = OnGroup, p.Key.Name
	case p.Key.Name != "":
		e.Kind, e.Name, e.Queue = OnKey, p.Key.Name, p.Queue
	case p.Type != "":
		e.Kind, e.Name, e.Queue = OnWorkflow, p.Type, p.Queue
	case p.Queue != "":
		e.Kind, e.Name = OnQueue, p.Queue
	}
	return e
}

const workersOf = `
SELECT w.worker_id
FROM kagzi.workers w
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE'
	AND ($2::text = '' OR $2::text = ANY (w.task_queues || w.left_queues))`

// An Unpaused says whom to tell that a pause has ended.
type Unpaused struct {
	Queues  []string    // that have workers
	Workers []uuid.UUID // that may be about to stop executions
}

// Unpause ends the pause. It returns ErrNotPaused if there is no such pause. The reason and the actor of p are those of
// this change.
//
// It locks the pause before it looks for the keys whose claims the pause has stopped: see claimKeys.
func (s Pauses) Unpause(ctx context.Context, tx pgx.Tx, p Pause) (out Unpaused, err error) {
	tried := false // an earlier try of our own transaction, whose answer may have been lost
	id := newID()
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		out = Unpaused{}
		did, err := s.endPause(ctx, tx, id, p)
		if err == nil && !did && !tried {
			return ErrNotPaused
		}
		tried = true
		if err == nil && p.Key.Name != "" {
			err = pg.Ask(ctx, tx, leaveChange, []any{s.namespace, p.Key.scope(p.Queue), p.Key.Name}, nil)
		} else if err == nil {
			err = s.leaveAllChanges(ctx, tx, p.Queue)
		}
		if err == nil {
			err = pg.Ask(ctx, tx, workersOf, []any{s.namespace, p.Queue}, pg.Collect(&out.Workers,
				pgx.RowTo[uuid.UUID]))
		}
		if err == nil {
			err = pg.Ask(ctx, tx, queuesOfWorkers, []any{s.namespace, p.Queue}, pg.Collect(&out.Queues,
				pgx.RowTo[string]))
		}
		return err
	})
	return out, pg.Wrap("unpause", err)
}

// endPause ends a pause, and writes the entry with this ID. did is false if there is none.
func (s Pauses) endPause(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Pause) (did bool, err error) {
	if _, did, err = s.before(ctx, tx, p); err != nil || !did {
		return false, err
	}
	statements, args := p.statements(s.namespace)
	if err := pg.Ask(ctx, tx, statements.end, args, nil); err != nil {
		return false, err
	}
	entry := p.entry(EventUnpaused)
	entry.ID = id
	return true, s.audit(ctx, tx, entry)
}

const queuesOfWorkers = `
SELECT DISTINCT q.task_queue
FROM kagzi.workers w
CROSS JOIN LATERAL unnest(w.task_queues) AS q (task_queue)
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE' AND ($2::text = '' OR q.task_queue = $2::text)`

const leaveChange = `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) VALUES ($2, $1, $3)`

const waitingScopes = `WITH RECURSIVE ` + clause.WaitingScopes + ` SELECT scopes.key_scope FROM scopes`

// leaveAllChanges leaves a change for each key that has waiting runs or consumers, of a queue and of groups, or of all
// queues. Each key costs one search, however many runs it has.
func (s Pauses) leaveAllChanges(ctx context.Context, tx pgx.Tx, queue string) error {
	scopes := []string{groupScope}
	if queue != "" {
		scopes = append(scopes, queue)
	} else if err := pg.Ask(ctx, tx, waitingScopes, []any{s.namespace}, func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		scopes = slices.Compact(append(scopes, found...)) // that of groups is the first
		return err
	}); err != nil {
		return err
	}
	for _, scope := range scopes {
		if err := Limits(s).recheckKeys(ctx, tx, scope); err != nil {
			return err
		}
	}
	return nil
}
