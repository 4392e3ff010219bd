package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestRecordCompensation(t *testing.T) {
	t.Parallel()

	// A registration is written once, whatever is lost; an announcement becomes it; another one is another attempt.
	t.Run("Attempts", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		write := func(rec *Record) {
			t.Helper()
			flush(t, s, &Flush{Records: []*Record{rec}})
			wantOutcome(t, rec.StepID, rec.Outcome, Done)
			if rec.StartedAt.IsZero() || !rec.FinishedAt.IsZero() {
				t.Errorf("recorded %+v", rec.StepRow)
			}
		}
		write(registering(r, "a", 1, announcing))
		write(registering(r, "a", 1, announcing))
		wantCompensations(t, s, r.RunID, "a#compensation 1 RUNNING")
		for range 2 {
			write(registering(r, "a", 2))
		}
		write(registering(r, "b", 3))
		write(registering(r, "a", 4, asSecond))
		wantCompensations(t, s, r.RunID, "a#compensation 2 RUNNING undo again", "b#compensation 1 RUNNING undo b",
			"a#compensation 1 RUNNING undo a")
		h, err := s.Histories.Latest(t.Context(), []uuid.UUID{r.RunID})
		if err != nil || len(h[r.RunID]) != 2 {
			t.Fatalf("history %+v, error %v: want the last registrations", h, err)
		}
		for _, row := range h[r.RunID] {
			if row.StepID == CompensationID("a") &&
				(row.Attempt != 2 || row.Position != 4 || string(row.Output) != "hash of a" || row.Status != Running) {
				t.Errorf("history %+v", row)
			}
		}
	})

	t.Run("NotUnderALostLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		supersede(t, s, r)
		rec := registering(r, "a", 1)
		flush(t, s, &Flush{Records: []*Record{rec}})
		wantOutcome(t, "registration", rec.Outcome, Lost)
		wantCompensations(t, s, r.RunID)
	})

	// With its step it is there, or neither is.
	t.Run("InAStepTx", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		tx := begin(t, s)
		if c, err := s.Records.WriteIn(t.Context(), tx, nil, record(r, "a", "x"), registering(r, "a", 1)); err != nil ||
			!c.Written {
			t.Errorf("written %t, error %v", c.Written, err)
		}
		wantCompensations(t, s, r.RunID)
		commit(t, tx)
		wantCompensations(t, s, r.RunID, "a#compensation 1 RUNNING undo a")
		supersede(t, s, r)
		tx = begin(t, s)
		if c, err := s.Records.WriteIn(t.Context(), tx, nil, record(r, "b", "x"), registering(r, "b", 2)); err != nil ||
			c.Written {
			t.Errorf("written %t under a lost lease, error %v", c.Written, err)
		}
	})
}

// A compensation takes what its registration says, and the rest from its run.
func TestCompensationStarts(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1, withPriority(2))[0]
	rec := registering(r, "a", 1)
	rec.Compensation = &Compensation{
		Spec: Spec{
			Queue: "other", Type: "undo", Version: 7, Priority: 4, Timeout: 2 * time.Hour,
			RetryPolicy: []byte(`{"a": [1]}`), Metadata: []byte(`{"k": "it's"}`),
		},
		Delay: time.Hour,
		Input: []byte{0, 0xff},
	}
	flush(t, s, &Flush{Records: []*Record{rec}})
	flushEnds(t, s, failing(r))
	out := compensate(t, s, r.RunID)
	if len(out.Due) != 1 || out.Due[0] != (DueRun{out.Due[0].RunID, "other", "undo", 7}) {
		t.Fatalf("stepped %+v", out)
	}
	got, err := s.Runs.Get(t.Context(), out.Due[0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Queue != "other" || got.Version != 7 || got.Priority != 4 || string(got.Metadata) != `{"k": "it's"}` ||
		string(got.Input) != "\x00\xff" || got.Status != Pending {
		t.Errorf("compensation %+v", got)
	}
	if d := time.Until(got.AvailableAt); d < 50*time.Minute || d > 70*time.Minute {
		t.Errorf("due in %v, want an hour", d)
	}
	if d := got.DeadlineAt.Sub(got.AvailableAt).Round(time.Second); d != 2*time.Hour {
		t.Errorf("ends %v after it is due, want 2 hours", d)
	}
	if row := one[string](t, s.pool, `SELECT concat_ws(' ', retry_policy, detached) FROM kagzi.workflow_runs
		WHERE run_id = $1`, got.RunID); row != `{"a": [1]} t` {
		t.Errorf("compensation %s", row)
	}
}
