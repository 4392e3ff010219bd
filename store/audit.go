package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Kinds of objects in the audit log.
const (
	OnRun      = "run"
	OnSchedule = "schedule"
	OnQueue    = "queue"
	OnKey      = "key"
	OnGroup    = "group"
	OnWorkflow = "workflow"
	OnAll      = "all"
	OnLimit    = "limit"
	OnWorker   = "worker"
	OnConsumer = "consumer"
)

// Actions in the audit log beside the events of runs.
const (
	ActionCreated    = "CREATED"
	ActionTriggered  = "TRIGGERED"
	ActionBackfilled = "BACKFILLED"
	ActionDrained    = "DRAINED"
	ActionForced     = "FORCED_OFFLINE"
	ActionSkipped    = "SKIPPED"
)

// A Why says why something is changed, and who does it. Both may be empty.
type Why struct{ Reason, Actor string }

// A Changed is a value that was changed, or went with its run. An empty text stands for no value.
type Changed struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// An AuditEntry is a change that somebody made.
type AuditEntry struct {
	ID       uuid.UUID
	Action   string
	Kind     string
	Name     string // of a run and a worker, its ID; of all runs, empty
	Queue    string // of a key, of a workflow that is paused in one queue, and of a worker that drains with its queue
	Type     string // of a run: read, or set by the database
	External string // the same
	Other    uuid.UUID
	Step     string
	Why
	Changes []Changed
	At      time.Time // set by the database
}

// NewEntry returns an entry. An operation makes it before its first try, so that a repetition after a lost answer
// writes the same one.
func NewEntry(action, kind, name string, why Why) AuditEntry {
	return AuditEntry{ID: newID(), Action: action, Kind: kind, Name: name, Why: why}
}

// The run of an entry exists: a run that is deleted goes after the entry is written.
const insertAudit = `
INSERT INTO kagzi.audit_log (entry_id, namespace_id, occurred_at, action, kind, name, task_queue, workflow_type,
	external_id, other_run_id, step_id, reason, actor, changes)
SELECT u.entry_id, $1, statement_timestamp(), u.action, u.kind, u.name, NULLIF(u.task_queue, ''), r.workflow_type,
	r.external_id,
	NULLIF(u.other, '00000000-0000-0000-0000-000000000000'), NULLIF(u.step_id, ''), NULLIF(u.reason, ''),
		NULLIF(u.actor, ''), NULLIF(u.changes, '')::jsonb
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::text[], $10::text[],
	$11::text[], $12::text[])
	AS u (entry_id, run_id, action, kind, name, task_queue, other, step_id, reason, actor, changes)
LEFT JOIN LATERAL (
	SELECT q.workflow_type, q.external_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id
		AND q.namespace_id = $1 OFFSET 0
) r ON true
ON CONFLICT DO NOTHING`

var auditColumns = columnsOf(insertAudit,
	uuids("entry_id", func(e AuditEntry) uuid.UUID { return e.ID }),
	uuids("run_id", func(e AuditEntry) (run uuid.UUID) {
		if e.Kind == OnRun {
			run = uuid.MustParse(e.Name) // as audited has written it
		}
		return run
	}),
	texts("action", func(e AuditEntry) string { return e.Action }),
	texts("kind", func(e AuditEntry) string { return e.Kind }),
	texts("name", func(e AuditEntry) string { return e.Name }),
	texts("task_queue", func(e AuditEntry) string { return e.Queue }),
	uuids("other", func(e AuditEntry) uuid.UUID { return e.Other }),
	texts("step_id", func(e AuditEntry) string { return e.Step }),
	texts("reason", func(e AuditEntry) string { return e.Reason }),
	texts("actor", func(e AuditEntry) string { return e.Actor }),
	texts("changes", func(e AuditEntry) string { return changesText(e.Changes) }),
)

// audit writes entries in tx, the transaction of the change that they are about. Entries that exist stay.
func (s *Store) audit(ctx context.Context, tx pgx.Tx, entries ...AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return ask(ctx, tx, insertAudit, auditColumns.args(s.namespace, entries), nil)
}

// Change adds a change of a value, if it is one.
func (e *AuditEntry) Change(field string, from, to any) {
	if from != to {
		e.Changes = append(e.Changes, Changed{field, valueText(from), valueText(to)})
	}
}

// valueText returns a value as text, empty for a zero value.
func valueText(v any) string {
	switch v {
	case 0, "", false, time.Duration(0):
		return ""
	}
	return fmt.Sprint(v)
}

func changesText(changes []Changed) string {
	if changes == nil {
		return ""
	}
	text, _ := json.Marshal(changes) // strings
	return string(text)
}

// An AuditFilter chooses entries. A zero field does not restrict the choice.
type AuditFilter struct {
	Kind   string
	Name   string // or the external ID of a run
	Queue  string // of a key, or of what else has one
	Action string
	Actor  string
	Since  time.Time
	Until  time.Time
	After  uuid.UUID // the last entry of the page before: only older ones follow
	Limit  int
}

// ErrNoEntry reports that the entry of AuditFilter.After does not exist, or no longer.
var ErrNoEntry = errors.New("no such entry")

// The planner chooses the index for the filter's fields: see askPlanned.
const listAudit = `
SELECT a.entry_id, a.action, a.kind, a.name, coalesce(a.task_queue, ''), coalesce(a.workflow_type, ''),
	coalesce(a.external_id, ''),
	coalesce(a.other_run_id, '00000000-0000-0000-0000-000000000000'), coalesce(a.step_id, ''), coalesce(a.reason, ''),
		coalesce(a.actor, ''), a.changes, a.occurred_at
FROM kagzi.audit_log a
WHERE a.namespace_id = $1 AND a.namespace_id = $1 COLLATE "POSIX"
	AND ($2::text = '' OR a.kind = $2::text)
	AND ($3::text = '' OR a.name = $3::text OR a.external_id = $3::text)
	AND ($4::text = '' OR a.task_queue = $4::text)
	AND ($5::text = '' OR a.action = $5::text)
	AND ($6::text = '' OR a.actor = $6::text)
	AND ($7::bigint = 0 OR a.occurred_at >= timestamptz 'epoch' + $7::bigint * interval '1 microsecond')
	AND ($8::bigint = 0 OR a.occurred_at < timestamptz 'epoch' + $8::bigint * interval '1 microsecond')
	AND ($9::uuid = '00000000-0000-0000-0000-000000000000'
		OR (a.occurred_at, a.entry_id) < (timestamptz 'epoch' + $10::bigint * interval '1 microsecond', $9::uuid))
ORDER BY a.occurred_at DESC, a.entry_id DESC
LIMIT $11::int`

const entryTime = `SELECT a.occurred_at FROM kagzi.audit_log a WHERE a.entry_id = $2 AND a.namespace_id = $1`

// Audit returns a page of the chosen entries, the newest first. It returns ErrNoEntry if entry After does not exist.
func (s *Store) Audit(ctx context.Context, f AuditFilter) (page []AuditEntry, err error) {
	err = do(ctx, func(ctx context.Context) error {
		var after time.Time
		if f.After != uuid.Nil {
			err := askRow(ctx, s.pool, entryTime, []any{s.namespace, f.After}, utc(&after))
			if errors.Is(err, pgx.ErrNoRows) {
				err = ErrNoEntry
			}
			if err != nil {
				return err
			}
		}
		args := []any{
			s.namespace, f.Kind, f.Name, f.Queue, f.Action, f.Actor, epoch(f.Since), epoch(f.Until),
			f.After.String(), epoch(after), f.Limit,
		}
		return askPlanned(ctx, s.pool, listAudit, args,
			collect(&page, func(row pgx.CollectableRow) (e AuditEntry, err error) {
				return e, row.Scan(&e.ID, &e.Action, &e.Kind, &e.Name, &e.Queue, &e.Type, &e.External, &e.Other,
					&e.Step, &e.Reason, &e.Actor, &e.Changes, utc(&e.At))
			}))
	})
	return page, wrap("read the audit log", err)
}

const pruneAudit = `
WITH l AS MATERIALIZED (
	SELECT a.entry_id
	FROM kagzi.audit_log a
	WHERE a.namespace_id = $1 AND a.namespace_id = $1 COLLATE "POSIX"
		AND a.occurred_at < now() - $2::bigint * interval '1 microsecond'
	ORDER BY a.occurred_at
	LIMIT $3
	FOR UPDATE SKIP LOCKED
), d AS (
	DELETE FROM kagzi.audit_log a WHERE a.entry_id = ANY (ARRAY (SELECT l.entry_id FROM l)) AND a.namespace_id = $1
		RETURNING a.entry_id
)
SELECT count(*) FROM d`

// PruneAudit deletes up to limit entries of the audit log that are older than keep, and returns how many it has
// deleted.
func (s *Store) PruneAudit(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = do(ctx, func(ctx context.Context) error {
		n, err = askOne[int64](ctx, s.pool, pruneAudit, s.namespace, micros(keep), limit)
		return err
	})
	return n, wrap("prune the audit log", err)
}
