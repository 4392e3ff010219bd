package store

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// A run whose worker may still register more is marked, and its worker has the grace to end it.
func TestCancelMarks(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	state := func(r *ClaimedRun) HeldRunState {
		t.Helper()
		all, err := s.Leases.HeldStates(t.Context(), s.pool, []HeldRun{held(r)}, nil)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, error %v", all, err)
		}
		return all[0]
	}
	for name, tt := range map[string]struct {
		grace, timeout time.Duration
		announced      bool
		want           time.Duration
	}{
		"Default":   {0, 0, false, CancelGrace},
		"Grace":     {time.Hour, 0, false, time.Hour},
		"Timeout":   {2 * time.Hour, time.Hour, false, time.Hour},
		"Announced": {time.Hour, 0, true, time.Hour},
	} {
		r := running(t, s, 1, withTimeout(tt.timeout))[0]
		rec := registering(r, "a", 1)
		if tt.announced {
			announcing(rec)
		}
		flush(t, s, &Flush{Records: []*Record{rec}})
		for range 2 { // the second grants no more time
			out, err := s.Runs.Cancel(t.Context(), nil, r.RunID, Why{Reason: "mine"}, tt.grace)
			if err != nil || len(out.Ended)+len(out.Compensating)+len(out.Due)+len(out.Step) > 0 {
				t.Errorf("%s: %+v, error %v", name, out, err)
			}
			wantIDs(t, "marked", out.Marked, r.RunID)
		}
		st := state(r)
		if !st.Holds || !st.Cancel || time.Until(st.Deadline) < tt.want-30*time.Second ||
			time.Until(st.Deadline) > tt.want+30*time.Second {
			t.Errorf("%s: %+v, which ends in %v, want %v", name, st, time.Until(st.Deadline), tt.want)
		}
		// It registers more, and cannot complete.
		more := registering(r, "b", 2)
		f := &Flush{Records: []*Record{more}, Finishes: []*Finish{finish(r)}}
		flush(t, s, f)
		wantOutcome(t, "registration", more.Outcome, Done)
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Cancelling)
		f = flushEnds(t, s, &Finish{
			RunID: r.RunID, Lease: r.Lease, Status: Cancelled, ErrorKind: "cancelled",
			Error: "of the worker's own",
		})
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
		wantOutcomeOf(t, s, r.RunID, "CANCELLED cancelled: run was cancelled: mine")
		stepAll(t, s, f.Step)
		runCompensations(t, s)
		wantEnded(t, s, r.RunID, "CANCELLED cancelled: run was cancelled: mine")
	}
}

// The worker of a marked run is gone: its next worker sees the mark, or its deadline passes.
func TestMarkWithoutAWorker(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := withCompensations(t, s, []string{"a"})
	mustCancel(t, s, r.RunID, "mine")
	p := sleep(r, time.Hour)
	p.NotBefore = true // its step waits for its next attempt, say
	flush(t, s, &Flush{Suspensions: []*Suspension{p}})
	if row := readRow(t, s.pool, r.RunID); row.Due || row.In < 3000 {
		t.Errorf("row %+v", row)
	}
	if out := endOverdueRuns(t, s); len(out.Changed()) > 0 {
		t.Errorf("ended before the grace: %+v", out)
	}
	pass(t, s, 2*grace, r.RunID)
	wantIDs(t, "compensating", endOverdueRuns(t, s).Compensating, r.RunID)
	runCompensations(t, s)
	wantEnded(t, s, r.RunID, "CANCELLED cancelled: run was cancelled: mine")

	// One that has announced what never came to be just ends.
	r = running(t, s, 1)[0]
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1, announcing)}})
	mustCancel(t, s, r.RunID, "")
	pass(t, s, 2*grace, r.RunID)
	wantIDs(t, "ended", endOverdueRuns(t, s).Ended, r.RunID)
	wantEnded(t, s, r.RunID, "CANCELLED cancelled: run was cancelled")
}

// People cancel and terminate runs whose compensations are under way.
func TestCompensatingRunIsChanged(t *testing.T) {
	t.Parallel()

	// A cancel changes how it ends, and nothing else; its compensations go on.
	t.Run("Cancelled", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		dbtest.Audit(t, s.pool)
		r := compensating(t, s, []string{"a", "b"})
		for range 2 {
			out, err := s.Runs.Cancel(t.Context(), nil, r.RunID, Why{Reason: "mine"}, 0)
			if err != nil || len(out.Ended)+len(out.Compensating)+len(out.Due) > 0 {
				t.Errorf("%+v, error %v", out, err)
			}
			wantIDs(t, "decided", out.Marked, r.RunID)
			stepAll(t, s, out.Step)
		}
		wantWaiting(t, s, r.RunID, "compensation b")
		if row := readRow(t, s.pool, r.RunID); *row.ErrorKind != "cancelled" {
			t.Errorf("row %+v", row)
		}
		runCompensations(t, s)
		wantEnded(t, s, r.RunID, "CANCELLED cancelled: run was cancelled: mine")
		mustCancel(t, s, r.RunID, "")
		_, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
		wantError(t, err, ErrCompensated)
	})

	// A cancel of its parent changes nothing of it, and so does that of its own child.
	t.Run("WithItsParent", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		dbtest.Audit(t, s.pool)
		parent := withCompensations(t, s, []string{"above"})
		r := compensating(t, s, []string{"a", "b"}, withParent(parent.RunID))
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parent, time.Hour)}})
		out, err := s.Runs.Cancel(t.Context(), nil, parent.RunID, Why{}, 0)
		if err != nil || len(out.Ended)+len(out.Marked)+len(out.Due)+len(out.Step) > 0 {
			t.Errorf("%+v, error %v", out, err)
		}
		wantIDs(t, "compensating", out.Compensating, parent.RunID)
		wantWaiting(t, s, parent.RunID, "children")
		wantOutcomeOf(t, s, r.RunID, "FAILED kind: broken")
		runCompensations(t, s)
		wantEnded(t, s, r.RunID, "FAILED kind: broken")
		wantEnded(t, s, parent.RunID, "CANCELLED cancelled: run was cancelled")
	})

	t.Run("Terminated", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		dbtest.Audit(t, s.pool)
		parent := running(t, s, 1)[0]
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parent, -1)}})
		r := compensating(t, s, []string{"a", "b"}, withParent(parent.RunID))
		c := claimCompensation(t, s, "b")
		out, err := s.Runs.Terminate(t.Context(), nil, r.RunID, Why{Reason: "mine"})
		if err != nil || len(out.Step) > 0 || len(out.Due) != 1 || out.Due[0].RunID != parent.RunID {
			t.Errorf("%+v, error %v", out, err)
		}
		wantIDs(t, "ended", out.Ended, r.RunID, c.RunID)
		wantEnded(t, s, r.RunID, "CANCELLED cancelled: run was terminated: mine")
		wantEnded(t, s, c.RunID, "CANCELLED cancelled: run was terminated: its parent "+r.RunID.String()+
			" was terminated")
		if out := compensate(t, s, r.RunID); len(out.Changed())+len(out.Due) > 0 {
			t.Errorf("stepped %+v", out)
		}
	})

	// What its cancel ends is what it has waited for.
	for _, how := range []string{"Child", "Grandchild"} {
		t.Run("CancelledWithIts"+how, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			dbtest.Audit(t, s.pool)
			r := withCompensations(t, s, []string{"a"})
			parent := r.RunID
			if how == "Grandchild" {
				child := withCompensations(t, s, []string{"b"}, withParent(r.RunID))
				flushEnds(t, s, failing(child))
				parent = child.RunID
			}
			last := start(t, s, newRun(withParent(parent)))[0]
			flushEnds(t, s, failing(r))
			compensate(t, s, parent)
			compensate(t, s, r.RunID)
			wantWaiting(t, s, r.RunID, "children")
			out, err := s.Runs.Cancel(t.Context(), nil, r.RunID, Why{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			wantIDs(t, "ended", out.Ended, last)
			stepAll(t, s, append(out.Step, mustDue(t, s)...))
			runCompensations(t, s)
			wantEnded(t, s, r.RunID, "CANCELLED cancelled: run was cancelled")
		})
	}
}
