package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A caller's transaction may have begun long ago: times that are written in it count from the statement. Each case
// first reads the clock in the transaction, so that the transaction began before that.
func TestTimesInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	inTx := func(t *testing.T, s *Store, act func(tx pgx.Tx)) (before time.Time) {
		t.Helper()
		tx := begin(t, s)
		before = one[time.Time](t, tx, `SELECT clock_timestamp()`)
		act(tx)
		commit(t, tx)
		return before
	}
	counts := func(t *testing.T, s *Store, id uuid.UUID, before time.Time, delay, timeout time.Duration) {
		t.Helper()
		r, err := s.Runs.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.CreatedAt.Before(before) || r.AvailableAt.Before(before.Add(delay)) || timeout > 0 &&
			r.DeadlineAt.Before(before.Add(delay+timeout)) {
			t.Errorf("created %v, available %v, deadline %v; want them to count from %v", r.CreatedAt, r.AvailableAt,
				r.DeadlineAt, before)
		}
	}

	t.Run("Start", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		run, due := newRun(withDelay(time.Hour), withTimeout(time.Minute)), newRun(withTimeout(time.Minute))
		before := inTx(t, s, func(tx pgx.Tx) {
			if _, err := s.Starts.Start(t.Context(), tx, []NewRun{run, due}); err != nil {
				t.Fatal(err)
			}
		})
		counts(t, s, run.RunID, before, time.Hour, time.Minute)
		counts(t, s, due.RunID, before, 0, time.Minute)
		if got := claimIDs(t, s, request(2)); len(got) != 1 || got[0] != due.RunID {
			t.Errorf("claimed %v, want %v as soon as the transaction has committed", got, due.RunID)
		}
	})

	// A run whose At is in the past is due when it is started, and has its whole Timeout.
	t.Run("PastAt", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		run := newRun(withTimeout(time.Minute), func(r *NewRun) { r.At = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) })
		before := inTx(t, s, func(tx pgx.Tx) {
			if _, err := s.Starts.Start(t.Context(), tx, []NewRun{run}); err != nil {
				t.Fatal(err)
			}
		})
		counts(t, s, run.RunID, before, 0, time.Minute)
	})

	t.Run("Restart", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := over(t, s, nil, withTimeout(time.Minute))
		r := Restart{Run: id, New: newID()}
		before := inTx(t, s, func(tx pgx.Tx) {
			if _, err := s.Runs.Restart(t.Context(), tx, r); err != nil {
				t.Fatal(err)
			}
		})
		counts(t, s, r.New, before, 0, time.Minute)
	})

	// The transaction's age does not shorten the time that a group of branches has left of its Timeout.
	t.Run("Fork", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := over(t, s, []string{"group/a/first", "group/a/second"})
		exec(t, s.pool, `UPDATE kagzi.step_runs SET started_at = '2020-01-01', finished_at = '2020-01-01'
			WHERE run_id = $1`, id)
		exec(t, s.pool, `UPDATE kagzi.step_runs SET started_at = '2020-01-02', finished_at = '2020-01-02'
			WHERE run_id = $1 AND step_id = 'group/a/second'`, id)
		exec(t, s.pool, `
			INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
				first_attempt, wake_at, started_at)
			SELECT run_id, 'group', 1, namespace_id, 'RUNNING', 'MARKER', 1, 1, '2020-01-03', '2020-01-01'
				FROM kagzi.workflow_runs WHERE run_id = $1`, id)
		r := Restart{Run: id, New: newID(), Step: "group/a/second"}
		before := inTx(t, s, func(tx pgx.Tx) {
			if _, err := s.Runs.Restart(t.Context(), tx, r); err != nil {
				t.Fatal(err)
			}
		})
		if until := one[time.Time](t, s.pool, `SELECT wake_at FROM kagzi.step_runs WHERE run_id = $1
			AND step_id = 'group'`, r.New); until.Before(before.Add(24 * time.Hour)) {
			t.Errorf("the group times out at %v, want a day after %v", until, before)
		}
	})

	t.Run("Resume", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		mustCancel(t, s, id, "")
		before := inTx(t, s, func(tx pgx.Tx) {
			if _, err := s.Runs.Resume(t.Context(), tx, id, Why{}); err != nil {
				t.Fatal(err)
			}
		})
		if r, err := s.Runs.Get(t.Context(), id); err != nil || r.AvailableAt.Before(before) {
			t.Errorf("available %v, %v; want it after %v", r.AvailableAt, err, before)
		}
	})

	t.Run("Trigger", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		template := saveTemplate(t, s, "schedule")
		id := newID()
		before := inTx(t, s, func(tx pgx.Tx) {
			edit(t, s, tx, template.ID,
				&Edit{Fire: &Firing{Template: template.ID, Runs: []TickRun{{RunID: id}}, Next: template.Next}})
		})
		counts(t, s, id, before, 0, time.Minute)
	})
}
