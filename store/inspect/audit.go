package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

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

// The planner chooses the index for the filter's fields: see pg.AskPlanned.
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
func (s *Lists) Audit(ctx context.Context, f AuditFilter) (page []store.AuditEntry, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var after time.Time
		if f.After != uuid.Nil {
			err := pg.AskRow(ctx, s.pool, entryTime, []any{s.namespace, f.After}, pg.UTC(&after))
			if errors.Is(err, pgx.ErrNoRows) {
				err = ErrNoEntry
			}
			if err != nil {
				return err
			}
		}
		args := []any{
			s.namespace, f.Kind, f.Name, f.Queue, f.Action, f.Actor, pg.Epoch(f.Since), pg.Epoch(f.Until),
			f.After.String(), pg.Epoch(after), f.Limit,
		}
		return pg.AskPlanned(ctx, s.pool, listAudit, args,
			pg.Collect(&page, func(row pgx.CollectableRow) (e store.AuditEntry, err error) {
				return e, row.Scan(&e.ID, &e.Action, &e.Kind, &e.Name, &e.Queue, &e.Type, &e.External, &e.Other,
					&e.Step, &e.Reason, &e.Actor, &e.Changes, pg.UTC(&e.At))
			}))
	})
	return page, pg.Wrap("read the audit log", err)
}
