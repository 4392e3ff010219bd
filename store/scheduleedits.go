package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

const lockTemplate = `SELECT t.schedule_id FROM kagzi.schedules t WHERE t.schedule_id = $2 AND t.namespace_id = $1
	FOR UPDATE`

const getTemplate = `
SELECT ` + templateColumns + `, t.input
FROM kagzi.schedules t
WHERE t.schedule_id = $2 AND t.namespace_id = $1`

// Get returns one template.
func (s Schedules) Get(ctx context.Context, id uuid.UUID) (t *Template, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		t, err = s.template(ctx, s.pool, id)
		return err
	})
	if err == nil && t == nil {
		err = ErrScheduleNotFound
	}
	return t, pg.Wrap("get schedule", err)
}

// template returns the template; nil if there is none.
func (s Schedules) template(ctx context.Context, db pg.DB, id uuid.UUID) (*Template, error) {
	var found []*Template
	err := pg.Ask(ctx, db, getTemplate, []any{s.namespace, id}, func(rows pgx.Rows) (err error) {
		found, err = readTemplates(rows)
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

const listTemplates = `
SELECT ` + templateColumns + `, t.input
FROM kagzi.schedules t
WHERE t.namespace_id = $1 AND t.name > $2
	AND ($4::text = '' OR t.workflow_type = $4::text)
ORDER BY t.name
LIMIT $3`

// List returns up to limit templates in order of their names, those after the name given. If workflow is not
// empty, it returns only the templates of that workflow.
func (s Schedules) List(ctx context.Context, workflow, after string, limit int) (out []*Template, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, listTemplates, []any{s.namespace, after, limit, workflow},
			func(rows pgx.Rows) error {
				out, err = readTemplates(rows)
				return err
			})
	})
	return out, pg.Wrap("list schedules", err)
}

// An Edit is a change of a template. Fire is applied first, and to a new template last.
type Edit struct {
	UnlessActive bool // with Fire: ErrRunActive, and no change, if a run of the template is active, or one of its group

	Fire   *Firing   // the ticks that are due under the old timetable, or runs that belong to no tick; nil: none
	Save   *Template // the new template; nil leaves the old one
	Delete bool      // delete the template; Save is ignored
	Count  *int      // if not nil and Fire is set, Schedules.Edit stores the number of inserted runs in it

	// of the change, for the audit log; nil: none. With Count it is written if runs were inserted, and says how many
	Entry *AuditEntry
}

// Edit locks the template and applies the Edit that edit returns. It passes the database's time to edit, and
// nil if there is no template. It returns the runs that it inserted. It is a transaction of its own, repeated if its
// answer is lost, or a part of tx.
func (s Schedules) Edit(ctx context.Context, tx pgx.Tx, id uuid.UUID, edit func(now time.Time, t *Template) (*Edit,
	error),
) (fired []DueRun, err error) {
	var refusal error
	refusing := func(now time.Time, t *Template) (*Edit, error) {
		var e *Edit
		e, refusal = edit(now, t)
		return e, refusal
	}
	err = s.change(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		for {
			done, err := s.editOnce(ctx, tx, id, refusing, &fired)
			if err != nil || done {
				return err
			}
		}
	})
	if refusal != nil {
		return nil, refusal
	}
	return fired, pg.Wrap("edit schedule", err)
}

// A Ticked has the changes of Schedules.Tick.
type Ticked struct {
	Fired     []DueRun      // the runs that it inserted
	Cancelled CancelledRuns // the runs that it cancelled for them
}

// Tick is Edit for a coordinator: it waits at most wait for each lock, and the server ends its
// transaction if the process is frozen. If edit asks to Replace the active runs, Tick cancels them and calls
// edit again, with what is still active then. The cancel and the run that replaces them are one transaction, so none of
// them happens without the other.
func (s Schedules) Tick(ctx context.Context, id uuid.UUID, wait time.Duration,
	edit func(now time.Time, t *Template) (*Edit, error),
) (out Ticked, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		out = Ticked{}
		return pg.Transact(ctx, s.pool, pg.Mode{Locks: max(time.Millisecond, wait)}, func(tx pgx.Tx) error {
			_, err := s.editOnce(ctx, tx, id, func(now time.Time, t *Template) (*Edit, error) {
				e, err := edit(now, t)
				if err != nil || e == nil || e.Fire == nil || !e.Fire.Replace {
					return e, err
				}
				cancelled, err := s.cancelFired(ctx, tx, id)
				if err != nil {
					return nil, err
				}
				if t, err = s.template(ctx, tx, id); err != nil {
					return nil, err
				}
				out.Cancelled, t.Cancelled = *cancelled, true
				return edit(now, t)
			}, &out.Fired)
			return err
		})
	})
	return out, pg.Wrap("fire schedule", err)
}

// editOnce applies the Edit once. done is false if another caller created the template meanwhile: the caller tries
// again.
func (s Schedules) editOnce(ctx context.Context, tx pgx.Tx, id uuid.UUID,
	edit func(time.Time, *Template) (*Edit, error), fired *[]DueRun,
) (done bool, err error) {
	t, now, locked, err := s.lock(ctx, tx, id)
	if err != nil || t != nil && !locked {
		return false, err
	}
	e, err := edit(now, t)
	if err != nil || e == nil {
		return true, err
	}
	if e.UnlessActive {
		if active, err := pg.AskOne[bool](ctx, tx, templateActive, s.namespace, id, fireIDs(e.Fire)); err != nil ||
			active {
			return false, cmp.Or(err, ErrRunActive)
		}
	}
	if done, err = s.apply(ctx, tx, id, t == nil, e, fired); err == nil && done {
		err = s.auditEdit(ctx, tx, e)
	}
	return done, err
}

// lock locks the template, and returns it and the database's time. The template is nil if there is none. It is not
// locked if another caller created it meanwhile.
func (s Schedules) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) (t *Template, now time.Time, locked bool,
	err error,
) {
	err = pg.Ask(ctx, tx, lockTemplate, []any{s.namespace, id}, func(rows pgx.Rows) error {
		locked = rows.Next()
		return nil
	})
	if err == nil {
		now, err = readTime(tx.QueryRow(ctx, databaseTime))
	}
	if err == nil {
		t, err = s.template(ctx, tx, id)
	}
	return t, now, locked, err
}

// apply writes what an Edit changes. done is as that of editOnce.
func (s Schedules) apply(ctx context.Context, tx pgx.Tx, id uuid.UUID, isNew bool, e *Edit,
	fired *[]DueRun,
) (done bool, err error) {
	if isNew && e.Save != nil {
		if done, err = s.save(ctx, tx, e.Save, true); err != nil || !done {
			return done, err
		}
	}
	if e.Fire != nil {
		if *fired, err = s.fireAgain(ctx, tx, e.Fire); err != nil {
			return false, err
		}
		if e.Count != nil {
			*e.Count = len(*fired)
		}
	}
	switch {
	case e.Delete:
		return true, pg.Ask(ctx, tx, deleteTemplate, []any{s.namespace, id}, nil)
	case !isNew && e.Save != nil:
		return s.save(ctx, tx, e.Save, false)
	}
	return true, nil
}

// auditEdit writes the entry of an edit that took effect.
func (s Schedules) auditEdit(ctx context.Context, tx pgx.Tx, e *Edit) error {
	if e.Entry == nil || e.Count != nil && *e.Count == 0 {
		return nil
	}
	entry := *e.Entry // a copy: the transaction may be repeated
	if e.Count != nil {
		entry.Changes = slices.Clip(entry.Changes)
		entry.Change("runs", 0, *e.Count)
	}
	return s.audit(ctx, tx, entry)
}

// The runs $3 do not count: an earlier try, whose answer was lost, has inserted them. A group is active if one of its
// runs has its slot.
const templateActive = `
SELECT EXISTS (
	SELECT FROM kagzi.workflow_runs r
	WHERE r.schedule_id = $2 AND r.namespace_id = $1 AND r.status IN ('PENDING', 'SLEEPING', 'RUNNING')
		AND r.run_id <> ALL ($3::uuid[])
) OR EXISTS (
	SELECT
	FROM (SELECT t.run_key FROM kagzi.schedules t WHERE t.schedule_id = $2 AND t.namespace_id = $1
		AND t.key_scope = '' OFFSET 0) t
	CROSS JOIN LATERAL (
		SELECT FROM kagzi.workflow_runs WHERE run_key = t.run_key AND namespace_id = $1
			AND ` + clause.HoldsGroup + ` AND run_id <> ALL ($3::uuid[])
		OFFSET 0
	) r
)`

// fireIDs returns the IDs of the runs of a firing.
func fireIDs(f *Firing) string {
	var ids []uuid.UUID
	for _, r := range f.Runs {
		ids = append(ids, r.RunID)
	}
	return array(ids)
}

// fireAgain is fire for a call whose earlier try may have inserted some of the runs: it returns these, too.
func (s Schedules) fireAgain(ctx context.Context, tx pgx.Tx, f *Firing) ([]DueRun, error) {
	fired, err := s.fire(ctx, tx, []*Firing{f})
	if err != nil || len(fired) == len(f.Runs) {
		return fired, err
	}
	missing := map[uuid.UUID]bool{}
	for _, r := range f.Runs {
		missing[r.RunID] = true
	}
	for _, r := range fired {
		delete(missing, r.RunID)
	}
	ids := make([]uuid.UUID, 0, len(missing))
	for id := range missing {
		ids = append(ids, id)
	}
	return fired, pg.Ask(ctx, tx, firedRuns, []any{s.namespace, array(ids)}, func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DueRun])
		fired = append(fired, found...)
		return err
	})
}

const firedRuns = `
SELECT r.run_id, r.task_queue, r.workflow_type, coalesce(r.version, 0)
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.* FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r`

const givenTemplate = `given AS MATERIALIZED (
	SELECT ` + specOfArrays + `, u.schedule_id, u.name, u.input, NULLIF(u.cron_expr, '') AS cron_expr,
		NULLIF(u.time_zone, '') AS time_zone, u.max_catchup, NULLIF(u.overlap_policy, '') AS overlap_policy,
		u.timing::jsonb AS timing, u.paused,
		CASE WHEN u.paused_at > 0 THEN timestamptz 'epoch' + u.paused_at * interval '1 microsecond' END AS paused_at,
		NULLIF(u.pause_actor, '') AS pause_actor, NULLIF(u.pause_reason, '') AS pause_reason,
		timestamptz 'epoch' + u.cursor_at * interval '1 microsecond' AS cursor_at,
		CASE WHEN u.next_at = 0 THEN 'infinity' ELSE timestamptz 'epoch' + u.next_at * interval '1 microsecond' END
			AS next_at
	FROM unnest(` + specArrays + `, $15::uuid[], $16::text[], $17::bytea[], $18::text[], $19::text[], $20::int[],
		$21::text[], $22::text[], $23::bool[], $24::bigint[], $25::text[], $26::text[], $27::bigint[], $28::bigint[])
		AS u (` + specNames + `, schedule_id, name, input, cron_expr, time_zone, max_catchup, overlap_policy, timing,
			paused, paused_at, pause_actor, pause_reason, cursor_at, next_at)
)
INSERT INTO kagzi.schedules AS t (schedule_id, namespace_id, ` + savedColumns + `)
SELECT given.schedule_id, $1, ` + savedColumns + `
FROM given
ON CONFLICT (schedule_id, namespace_id) DO `

// Two statements, because a distributed Postgres takes no argument in ON CONFLICT. insertTemplate returns nothing if
// the namespace has the template.
const (
	insertTemplate = `
WITH ` + givenTemplate + `NOTHING
RETURNING t.schedule_id`
	storeTemplate = `
WITH ` + givenTemplate + `UPDATE
SET (` + savedColumns + `) = ROW (excluded.task_queue, excluded.workflow_type, excluded.timeout,
	excluded.execution_timeout, excluded.start_within, excluded.retry_policy, excluded.run_key, excluded.key_scope,
	excluded.publishes, excluded.priority, excluded.metadata, excluded.headers,
	excluded.version, excluded.name, excluded.input, excluded.cron_expr, excluded.time_zone, excluded.max_catchup,
	excluded.overlap_policy, excluded.timing, excluded.paused, excluded.paused_at, excluded.pause_actor,
	excluded.pause_reason, GREATEST(t.cursor_at, excluded.cursor_at), excluded.next_at), problem = NULL
RETURNING t.schedule_id`
)

const savedColumns = specNames + `, name, input, cron_expr, time_zone, max_catchup, overlap_policy, timing, paused,
	paused_at, pause_actor, pause_reason, cursor_at, next_at`

var savedTemplate = columnsOf(storeTemplate, append(specColumnsOf(func(t *Template) *Spec { return &t.Spec }),
	uuids("schedule_id", func(t *Template) uuid.UUID { return t.ID }),
	texts("name", func(t *Template) string { return t.Name }),
	byteas("input", func(t *Template) []byte { return t.Input }),
	texts("cron_expr", func(t *Template) string { return t.Cron }),
	texts("time_zone", func(t *Template) string { return t.TimeZone }),
	ints("max_catchup", func(t *Template) int { return t.CatchUp }),
	texts("overlap_policy", func(t *Template) string { return t.Overlap }),
	texts("timing", func(t *Template) string { return string(t.Timing) }),
	bools("paused", func(t *Template) bool { return t.Paused }),
	bigints("paused_at", func(t *Template) int64 { return pg.Epoch(t.PausedAt) }),
	texts("pause_actor", func(t *Template) string { return t.PauseWhy.Actor }),
	texts("pause_reason", func(t *Template) string { return t.PauseWhy.Reason }),
	bigints("cursor_at", func(t *Template) int64 { return pg.Epoch(t.Cursor) }),
	bigints("next_at", func(t *Template) int64 { return pg.Epoch(t.Next) }),
)...)

const deleteTemplate = `DELETE FROM kagzi.schedules t WHERE t.schedule_id = $2 AND t.namespace_id = $1`

// save writes the template. It returns false if isNew, and another caller created the template meanwhile.
func (s Schedules) save(ctx context.Context, tx pgx.Tx, t *Template, isNew bool) (bool, error) {
	statement := storeTemplate
	if isNew {
		statement = insertTemplate
	}
	_, err := pg.AskOne[uuid.UUID](ctx, tx, statement, savedTemplate.args(s.namespace, []*Template{t})...)
	if errors.Is(err, pgx.ErrNoRows) && isNew {
		return false, nil
	}
	return true, err
}
