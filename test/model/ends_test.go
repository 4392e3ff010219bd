package model

import (
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// The verbs of compensations and deadlines.

// announcing records that a step under way may register a compensation.
func (w *world) announcing(t *rapid.T) act { return w.compensation(t, "announcement", nil) }

// registering registers a compensation.
func (w *world) registering(t *rapid.T) act {
	return w.compensation(t, "registration",
		&store.Compensation{Spec: store.Spec{Type: compensationType}, Input: []byte("input")})
}

func (w *world) compensation(t *rapid.T, what string, c *store.Compensation) act {
	h, step := w.lease(t), drawn(t, "step", "one", "two")
	w.counter++
	position := int64(w.counter)
	return w.flushing(what, h, func() *store.Flush {
		rec := h.record(store.CompensationID(step), 1, store.KindCompensation, store.Running, "")
		rec.Position, rec.Compensation = position, c
		if c != nil {
			rec.Output = []byte("undo")
		}
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// compensating takes the next step of a run whose compensations are under way. Beside another act it may give up,
// because the run is locked.
func (w *world) compensating(t *rapid.T) act {
	id := w.runWhich(t, func(r *Run) bool { return r.Outcome != "" }).ID
	locked := false
	return changing("compensate", func(s *store.Store) error {
		_, err := s.Ends.Compensate(ctx, id)
		if locked = pg.Locked(err); locked {
			return nil
		}
		return err
	}, func(m *Model) error {
		if !locked {
			m.Compensate(id)
		}
		return nil
	})
}

func (w *world) startedFor(run uuid.UUID, position int64) (id uuid.UUID) {
	err := w.pool.QueryRow(ctx, `SELECT child_run_id FROM kagzi.step_runs WHERE run_id = $1
		AND step_kind = 'COMPENSATION' AND position = $2`,
		run, position).Scan(&id)
	if err != nil {
		return uuid.New() // none: the comparison shows it
	}
	return id
}

// The lease of a worker ends three seconds after the deadline.
const passDeadline = `
UPDATE kagzi.workflow_runs SET deadline_at = now() - interval '10 s',
	available_at = LEAST(available_at, now() - CASE WHEN status = 'RUNNING' THEN interval '7 s'
		ELSE interval '10 s' END)
WHERE run_id = $1`

// passDeadline lets the deadline of a run pass.
func (w *world) passDeadline(t *rapid.T) {
	r := w.runWhich(t, func(r *Run) bool { return r.Active() && (r.Deadline == Later || r.Deadline == Soon) })
	w.exec(t, passDeadline, r.ID)
	w.exec(t, passKey, r.Key.Name)
	w.PassDeadline(r)
}

func (w *world) endingOverdue(*rapid.T) act {
	return changing("end overdue runs", func(s *store.Store) error {
		o := &store.Overdue{Kind: "deadline", Error: "text"}
		for more := true; more; {
			var err error
			if _, more, err = s.Ends.EndOverdue(ctx, o); err != nil {
				return err
			}
		}
		return nil
	}, func(m *Model) error {
		m.EndOverdue()
		return nil
	})
}
