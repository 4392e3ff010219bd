package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Pauses pauses runs, queues, workflows and keys.
type Pauses struct{ *conn }

// What is paused now, for the queue $2.
const pausesNow = clause.PausesOfRuns + `, paused AS MATERIALIZED (
	SELECT count(*) > 0 AS some,
		coalesce(bool_or(p.whole AND p.of_type = '' AND p.in_queue IN ('', $2::text)), false) AS everything,
		ARRAY (SELECT t.of_type FROM pauses t WHERE t.whole AND t.in_queue IN ('', $2::text)) AS types,
		(SELECT count(*) FROM (SELECT FROM kagzi.pauses k WHERE k.run_key > '' AND k.namespace_id = $1 LIMIT 1) k) > 0
			AS keys
	FROM pauses p
)`

// unpausedPair leaves out the types of w that are paused as a whole, and all if the queue is: their runs are not even
// read.
const unpausedPair = `(SELECT NOT p.everything FROM paused p)
	AND w.workflow_type <> ALL ((SELECT p.types FROM paused p)::text[])`

// unpaused is the condition for a run to which no pause of a queue or workflow applies. Its columns are those of the
// only table of the select around it.
const unpaused = `((SELECT NOT p.some FROM paused p) OR ` + clause.Unstopped + `)`

// unpausedHolder is unpaused for the runs that claims find without their keys. Those among them that have a key hold a
// slot of it. They stop if the key is paused, too.
const unpausedHolder = unpaused + ` AND ((SELECT NOT p.keys FROM paused p) OR ` + clause.KeyUnpaused + `)`

// A Pause says what is paused: a key of a queue or a group, or the runs of a queue, of a workflow, or of both. Empty
// names stand for any, so a Pause without names is of all runs of the namespace.
type Pause struct {
	Queue   string
	Type    string
	Key     Key  // of Queue, or a group; without Type
	Percent int  // of the runs go on nevertheless
	Parks   bool // executions under way stop at their next step
	Reason  string
	Actor   string
	At      time.Time // set by the database
}

// ErrNotPaused reports that there is no such pause.
var ErrNotPaused = errors.New("not paused")

// args returns the arguments that identify the pause. The queue of a key is its scope.
func (p *Pause) args(namespace string) []any {
	if p.Key.Name != "" {
		return []any{namespace, p.Key.Name, p.Key.scope(p.Queue), "", ""}
	}
	return []any{namespace, "", "", p.Queue, p.Type}
}

// A pause that lets some runs pass stops them again: it begins now. A reason or an actor that is not given does not
// remove the one that is there.
const insertPause = `
INSERT INTO kagzi.pauses AS p (namespace_id, run_key, key_scope, task_queue, workflow_type, parks, reason, actor,
	paused_at)
VALUES ($1, $2, $3, $4, $5, $6, NULLIF($7::text, ''), NULLIF($8::text, ''), statement_timestamp())
ON CONFLICT (run_key, key_scope, task_queue, workflow_type, namespace_id) DO UPDATE
SET parks = excluded.parks, reason = coalesce(excluded.reason, p.reason), actor = coalesce(excluded.actor, p.actor),
	percent = 0, releases = false,
	paused_at = CASE WHEN p.percent > 0 OR p.releases THEN excluded.paused_at ELSE p.paused_at END`

const pauseBefore = `
SELECT p.percent, p.percent > 0 OR p.releases, p.parks, coalesce(p.reason, ''), coalesce(p.actor, '')
FROM kagzi.pauses p
WHERE p.namespace_id = $1 AND p.run_key = $2 AND p.key_scope = $3 AND p.task_queue = $4 AND p.workflow_type = $5
FOR UPDATE`

// Pause stores p: from its commit on, claims take no run that it is about. It returns the workers whose executions are
// to stop.
func (s Pauses) Pause(ctx context.Context, tx pgx.Tx, p Pause) (workers []uuid.UUID, err error) {
	id := newID()
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		workers = nil
		if err := s.keepConsumers(ctx, tx, p.Key); err != nil {
			return err
		}
		entry, err := s.pauseEntry(ctx, tx, p)
		if err != nil {
			return err
		}
		if err := pg.Ask(ctx, tx, insertPause, append(p.args(s.namespace), p.Parks, p.Reason, p.Actor),
			nil); err != nil {
			return err
		}
		if entry != nil {
			entry.ID = id
			if err := s.audit(ctx, tx, *entry); err != nil {
				return err
			}
		}
		if !p.Parks {
			return nil
		}
		return pg.Ask(ctx, tx, workersOf, []any{s.namespace, p.Queue}, pg.Collect(&workers, pgx.RowTo[uuid.UUID]))
	})
	return workers, pg.Wrap("pause", err)
}

// pauseEntry returns what a pause changes; nil if nothing.
func (s Pauses) pauseEntry(ctx context.Context, tx pgx.Tx, p Pause) (*AuditEntry, error) {
	entry := p.entry(EventPaused)
	var before Pause
	var passes bool
	err := pg.AskRow(ctx, tx, pauseBefore, p.args(s.namespace), &before.Percent, &passes, &before.Parks, &before.Reason,
		&before.Actor)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	entry.Change("park", before.Parks, p.Parks)
	entry.Change("percent", before.Percent, 0)
	if err == nil && !passes && len(entry.Changes) == 0 && (p.Reason == "" || p.Reason == before.Reason) &&
		(p.Actor == "" || p.Actor == before.Actor) {
		return nil, nil
	}
	return &entry, nil
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

const (
	deletePause = `
DELETE FROM kagzi.pauses p
WHERE p.namespace_id = $1 AND p.run_key = $2 AND p.key_scope = $3 AND p.task_queue = $4 AND p.workflow_type = $5`

	loosenPause = `
UPDATE kagzi.pauses p
SET percent = $6
WHERE p.namespace_id = $1 AND p.run_key = $2 AND p.key_scope = $3 AND p.task_queue = $4 AND p.workflow_type = $5`
)

// An Unpaused says whom to tell that a pause has ended.
type Unpaused struct {
	Queues  []string    // that have workers
	Workers []uuid.UUID // that may be about to stop executions
}

// Unpause ends the pause, or with a percentage lets so many of the runs pass. It returns ErrNotPaused if there is no
// such pause. The reason and the actor of p are those of this change.
//
// It locks the pause before it looks for the keys whose claims the pause has stopped: see claimKeys.
func (s Pauses) Unpause(ctx context.Context, tx pgx.Tx, p Pause, percent int) (out Unpaused, err error) {
	tried := false // an earlier try of our own transaction, whose answer may have been lost
	id := newID()
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		out = Unpaused{}
		if err := s.keepConsumers(ctx, tx, p.Key); err != nil {
			return err
		}
		did, err := s.endPause(ctx, tx, id, p, percent)
		if err == nil && !did && !tried {
			return ErrNotPaused
		}
		tried = true
		if err == nil && p.Key.Name != "" {
			err = pg.Ask(ctx, tx, leaveChange, []any{s.namespace, p.Key.scope(p.Queue), p.Key.Name}, nil)
		} else if err == nil {
			err = pg.Ask(ctx, tx, leaveAllChanges, []any{s.namespace, p.Queue}, nil)
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

// endPause deletes or loosens a pause, and writes the entry with this ID. did is false if there is none.
func (s Pauses) endPause(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Pause, percent int) (did bool, err error) {
	entry := p.entry(EventUnpaused)
	entry.ID = id
	var before Pause
	var passes bool
	err = pg.AskRow(ctx, tx, pauseBefore, p.args(s.namespace), &before.Percent, &passes, &before.Parks, &before.Reason,
		&before.Actor)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if percent > 0 {
		err = pg.Ask(ctx, tx, loosenPause, append(p.args(s.namespace), percent), nil)
		entry.Change("percent", before.Percent, percent)
	} else {
		err = pg.Ask(ctx, tx, deletePause, p.args(s.namespace), nil)
	}
	if err == nil && (percent == 0 || percent != before.Percent) {
		err = s.audit(ctx, tx, entry)
	}
	return true, err
}

const queuesOfWorkers = `
SELECT DISTINCT q.task_queue
FROM kagzi.workers w
CROSS JOIN LATERAL unnest(w.task_queues) AS q (task_queue)
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE' AND ($2::text = '' OR q.task_queue = $2::text)`

const leaveChange = `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) VALUES ($2, $1, $3)`

// The statement leaves a change for each key that has waiting runs, of a queue and of groups, or of all queues. Each
// key costs one search, however many runs it has. If it was for all queues, the pause has stopped looks at the keys of
// consumers, too.
const leaveAllChanges = `
WITH RECURSIVE scopes (key_scope) AS (
	(
		SELECT r.key_scope
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Waits + ` AND r.namespace_id = $1 AND r.key_scope >= '' AND $2::text = ''
		ORDER BY r.key_scope
		LIMIT 1
	)
	UNION ALL
	SELECT n.key_scope
	FROM scopes
	CROSS JOIN LATERAL (
		SELECT r.key_scope
		FROM kagzi.workflow_runs r
		WHERE ` + clause.Waits + ` AND r.namespace_id = $1 AND r.key_scope > scopes.key_scope
		ORDER BY r.key_scope
		LIMIT 1
	) n
), keys AS MATERIALIZED (
	SELECT u.key_scope, t.run_key
	FROM (SELECT scopes.key_scope FROM scopes UNION SELECT o.key_scope
		FROM unnest(ARRAY['', $2::text]) AS o (key_scope)) u
	CROSS JOIN LATERAL (
		WITH RECURSIVE of_scope (run_key) AS (
			(
				SELECT r.run_key
				FROM kagzi.workflow_runs r
				WHERE ` + clause.Waits + ` AND r.key_scope = u.key_scope AND r.namespace_id = $1 AND r.run_key > ''
				ORDER BY r.run_key
				LIMIT 1
			)
			UNION ALL
			SELECT n.run_key
			FROM of_scope
			CROSS JOIN LATERAL (
				SELECT r.run_key
				FROM kagzi.workflow_runs r
				WHERE ` +
	clause.Waits + ` AND r.key_scope = u.key_scope AND r.namespace_id = $1 AND r.run_key > of_scope.run_key
				ORDER BY r.run_key
				LIMIT 1
			) n
		)
		SELECT of_scope.run_key FROM of_scope
	) t
	UNION
	SELECT '', x.run_key FROM kagzi.consumers x WHERE x.run_key > '' AND x.namespace_id = $1 AND $2::text = ''
), ` + insertChanges + ` keys k
)
SELECT count(*) FROM keys`
