package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

// A row is what the test compares of a run.
type row struct {
	ID         uuid.UUID
	Type       string
	External   string
	Status     string
	At         When
	Lease      uuid.UUID
	Worker     uuid.UUID
	Parent     uuid.UUID
	Priority   int
	Wakeups    int64
	Attempts   int
	Recoveries int
	Version    int
	Started    bool
	Cancelling bool
	Paused     bool
	Key        string
	Slot       int // if the run holds it
	Outcome    string
	Deadline   When
	Schedule   uuid.UUID
	Tick       int
	Queued     bool
}

// A sight is what the model takes from the tables.
type sight struct {
	ID    uuid.UUID
	DueAt time.Time // zero: never
}

const (
	// However slow the machine is, what is soon does not come by itself.
	keepSoon = `
		UPDATE kagzi.workflow_runs SET deadline_at = deadline_at + interval '20 minutes',
			available_at = CASE WHEN status = 'RUNNING' AND available_at > now()
				THEN GREATEST(available_at, now() + interval '20 minutes') ELSE available_at END
		WHERE deadline_at BETWEEN now() AND now() + interval '5 minutes' AND finished_at IS NULL`
	readRuns = `
		SELECT run_id, workflow_type, coalesce(external_id, ''), status,
			CASE WHEN available_at IS NULL THEN 'none' WHEN available_at = 'infinity' THEN 'never'
				WHEN available_at <= clock_timestamp() THEN 'due'
				WHEN available_at < clock_timestamp() + interval '30 minutes' THEN 'soon' ELSE 'later' END,
			coalesce(lease, '00000000-0000-0000-0000-000000000000'),
				coalesce(locked_by, '00000000-0000-0000-0000-000000000000'),
			coalesce(parent_run_id, '00000000-0000-0000-0000-000000000000'), priority, wakeups, attempts, recoveries,
				coalesce(version, 0),
			started_at IS NOT NULL, cancel_requested_at IS NOT NULL, paused_at IS NOT NULL,
			coalesce(run_key, '') || CASE WHEN key_scope = '' THEN ' group' ELSE '' END,
			CASE WHEN status = 'RUNNING' OR slot = 2 AND status IN ('PENDING', 'SLEEPING') THEN coalesce(slot, 0)
				ELSE 0 END,
			coalesce(outcome ->> 'status', ''),
			CASE WHEN deadline_at IS NULL THEN 'none' WHEN deadline_at <= clock_timestamp() THEN 'due'
				WHEN deadline_at < clock_timestamp() + interval '30 minutes' THEN 'soon' ELSE 'later' END,
			coalesce(schedule_id, '00000000-0000-0000-0000-000000000000'),
				coalesce(extract(epoch FROM fire_at - '2020-01-01Z') / 3600, 0)::int,
			coalesce(waiting_on = '[{"kind": "previous run"}]', false)
		FROM kagzi.workflow_runs`
	readSights = `
		SELECT run_id, coalesce(NULLIF(available_at, 'infinity'), '0001-01-01 00:00:00+00') FROM kagzi.workflow_runs`
	readSchedules = `
		SELECT concat_ws(' ', 'schedule', name, '"' || coalesce(overlap_policy, '') || '"', paused::text,
			'cursor', (extract(epoch FROM cursor_at - '2020-01-01Z') / 3600)::int, 'due', (next_at <= now())::text)
		FROM kagzi.schedules`
	readPauses = `
		SELECT concat_ws(' ', 'pause', '"' || task_queue || '"', '"' || workflow_type || '"', '""', parks::text)
		FROM kagzi.pauses
		UNION ALL
		SELECT concat_ws(' ', 'pause', '"" ""', '"' || run_key || '"', pause_parks::text) FROM kagzi.run_keys
		WHERE paused_at IS NOT NULL`
	readSteps = `
		SELECT concat_ws(' ', 'step', run_id, step_id, attempt_number, step_kind, status,
			NULLIF(convert_from(output, 'UTF8'), ''), child_run_id, 'message', coalesce(sequence, 0))
			FROM kagzi.step_runs`
	readMessages = `SELECT concat_ws(' ', 'message', run_id, signal_id, sequence, 'read by', consumed_by)
		FROM kagzi.signals`
)

// compare fails the test unless the tables are as the model.
func (w *world) compare(t *rapid.T) {
	t.Helper()
	w.met["comparison"]++
	if d := differences(w.tables(t), w.lines()); d != "" {
		t.Fatalf("the tables differ from the model:\n%s", d)
	}
	w.look()
}

// look gives the model what it takes from the tables as they were read last.
func (w *world) look() {
	for _, s := range w.sights {
		if r := w.Runs[s.ID]; r != nil {
			r.DueAt = s.DueAt
		}
	}
}

// tables returns the rows of the tables, sorted.
func (w *world) tables(t *rapid.T) (lines []string) {
	t.Helper()
	b := &pgx.Batch{}
	b.Queue(keepSoon)
	b.Queue(readRuns).Query(func(rows pgx.Rows) error {
		runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		for _, r := range runs {
			lines = append(lines, fmt.Sprintf("run %+v", r))
		}
		return err
	})
	b.Queue(readSights).Query(func(rows pgx.Rows) (err error) {
		w.sights, err = pgx.CollectRows(rows, pgx.RowToStructByPos[sight])
		return err
	})
	for _, sql := range []string{readSteps, readMessages, readPauses, readSchedules} {
		b.Queue(sql).Query(func(rows pgx.Rows) error {
			some, err := pgx.CollectRows(rows, pgx.RowTo[string])
			lines = append(lines, some...)
			return err
		})
	}
	if err := w.pool.SendBatch(ctx, b).Close(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// lines returns the rows of the model's tables, sorted.
func (m *Model) lines() (lines []string) {
	for _, r := range m.all() {
		lines = append(lines, fmt.Sprintf("run %+v", row{
			r.ID, r.Type, r.External, r.Status, r.At, r.Lease, r.Worker, r.Parent, r.Priority, r.Wakeups, r.Attempts,
			r.Recoveries, r.Version,
			r.Started, r.Cancelling, r.Paused, keyOf(r.Key).text(), r.heldSlot(), r.Outcome, r.Deadline, r.scheduleID(),
			r.Tick, r.Queued,
		}))
		for step, attempts := range r.Steps {
			for i, a := range attempts {
				line := fmt.Sprintf("step %v %s %d %s %s", r.ID, step, i+1, a.Kind, a.Status)
				if a.Output != "" {
					line += " " + a.Output
				}
				if a.Child != uuid.Nil {
					line += " " + a.Child.String()
				}
				lines = append(lines, fmt.Sprint(line, " message ", a.Sequence))
			}
		}
		for _, g := range r.Messages {
			line := fmt.Sprintf("message %v %s %d read by", r.ID, g.ID, g.Sequence)
			if g.ReadBy != "" {
				line += " " + g.ReadBy
			}
			lines = append(lines, line)
		}
	}
	for name, s := range m.Schedules {
		lines = append(lines, fmt.Sprintf("schedule %s %q %t cursor %d due %t", name, s.Overlap, s.Paused, s.Cursor,
			s.Cursor < m.Hour))
	}
	for p, is := range m.Pauses {
		lines = append(lines, fmt.Sprintf("pause %q %q %q %t", p.Queue, p.Type, p.Key.Name, is.Parks))
	}
	slices.Sort(lines)
	return lines
}

// A keyOf is a key, as the test prints it.
type keyOf store.Key

func (k keyOf) text() string {
	if k.Group {
		return k.Name + " group"
	}
	return k.Name
}

func (r *Run) scheduleID() uuid.UUID {
	if r.Schedule == "" {
		return uuid.Nil
	}
	return scheduleID(r.Schedule)
}

func (r *Run) heldSlot() int {
	if !r.holdsSlot() {
		return 0
	}
	return r.Slot
}

// differences returns the lines that only one of two sorted lists has.
func differences(got, want []string) (text string) {
	for _, l := range got {
		if _, both := slices.BinarySearch(want, l); !both {
			text += "  table: " + l + "\n"
		}
	}
	for _, l := range want {
		if _, both := slices.BinarySearch(got, l); !both {
			text += "  model: " + l + "\n"
		}
	}
	return text
}

// invariants fails the test if the tables, or the recorded changes, violate one.
func (w *world) invariants(t *rapid.T) {
	found, err := dbtest.Violations(ctx, w.pool, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Errorf("invariant broken: %s", v)
	}
}
