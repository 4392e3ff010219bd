package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
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

// An AuditEntry is a change that an operator or a program made.
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
func (s *conn) audit(ctx context.Context, tx pgx.Tx, entries ...AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return pg.Ask(ctx, tx, insertAudit, auditColumns.args(s.namespace, entries), nil)
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
