package store

import (
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// Those that come after one that fails run all the same. The run has failed by that, until it is resumed.
func TestCompensationFails(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	r := compensating(t, s, []string{"a", "b", "c", "d"}, withID("id"))
	fail := func(step string, end func(*ClaimedRun)) uuid.UUID {
		t.Helper()
		c := claimCompensation(t, s, step)
		end(c)
		stepAll(t, s, []uuid.UUID{r.RunID})
		return c.RunID
	}
	fails := func(c *ClaimedRun) { flushEnds(t, s, failing(c)) }
	cancels := func(c *ClaimedRun) {
		mustCancel(t, s, c.RunID, "")
	}
	d, _, b := fail("d", fails), fail("c", fails), fail("b", cancels)
	fail("a", func(c *ClaimedRun) { flushEnds(t, s, finish(c)) })
	const text = "not compensated: d#compensation: broken\nc#compensation: broken\nb#compensation: run was " +
		"cancelled; the run ended because: broken (kind)"
	wantEnded(t, s, r.RunID, "FAILED compensation: "+text)
	wantCompensations(t, s, r.RunID, "d#compensation 1 FAILED undo d kind broken", "c#compensation 1 FAILED undo c "+
		"kind broken",
		"b#compensation 1 FAILED undo b cancelled run was cancelled", "a#compensation 1 COMPLETED undo a")
	_, err := s.Runs.Restart(t.Context(), nil, Restart{Run: r.RunID, New: newID(), Step: "a"})
	wantError(t, err, ErrCompensated)

	// One of them was put right by itself, and another is under way again.
	for _, id := range []uuid.UUID{d, b} {
		mustResume(t, s, id)
	}
	again := claimCompensations(t, s)
	for _, c := range again {
		if c.RunID == d {
			f := flushEnds(t, s, finish(c))
			wantIDs(t, "to be stepped", f.Step) // the run is over
		}
	}
	other := start(t, s, newRun(withID("id")))[0]
	_, err = s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
	wantError(t, err, ErrIDConflict)
	mustCancel(t, s, other, "")
	resumed, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{Reason: "mine"})
	if err != nil || resumed.Queue != "queue" || resumed.Ends == nil || len(resumed.Ends.Due) != 1 {
		t.Fatalf("resumed %+v, error %v", resumed, err)
	}
	wantWaiting(t, s, r.RunID, "compensation c")
	wantOutcomeOf(t, s, r.RunID, "FAILED kind: broken")
	if row := readRow(t, s.pool, r.RunID); row.Ended || *row.ErrorKind != "kind" {
		t.Errorf("row %+v", row)
	}
	wantCompensations(t, s, r.RunID, "d#compensation 1 COMPLETED undo d", "c#compensation 1 RUNNING undo c",
		"b#compensation 1 RUNNING undo b", "a#compensation 1 COMPLETED undo a")
	_, err = s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
	wantError(t, err, ErrRunActive)
	fail("c", func(c *ClaimedRun) { flushEnds(t, s, finish(c)) })
	wantWaiting(t, s, r.RunID, "compensation b") // which was not started anew
	if more := claimCompensations(t, s); len(more) > 0 {
		t.Errorf("claimed %+v", more)
	}
	for _, c := range again {
		if c.RunID == b {
			f := flushEnds(t, s, finish(c))
			stepAll(t, s, f.Step)
		}
	}
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	_, err = s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
	wantError(t, err, ErrCompensated)
	if events, err := s.Runs.Events(t.Context(), r.RunID); err != nil || len(events) != 1 ||
		events[0].Reason != "mine" {
		t.Errorf("events %+v, error %v", events, err)
	}
}

// A run whose compensations were all put right by themselves ends as it is resumed.
func TestResumeEndsARun(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := running(t, s, 1)[0]
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parent, -1)}})
	r := compensating(t, s, []string{"a"}, withParent(parent.RunID))
	c := claimCompensation(t, s, "a")
	flushEnds(t, s, failing(c))
	compensate(t, s, r.RunID)
	wantEnded(t, s, r.RunID, "FAILED compensation: not compensated: a#compensation: broken; the run ended because: "+
		"broken (kind)")
	mustResume(t, s, c.RunID)
	flushEnds(t, s, finish(claimCompensation(t, s, "a")))
	resumed, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
	if err != nil || resumed.Ends == nil {
		t.Fatalf("resumed %+v, error %v", resumed, err)
	}
	wantIDs(t, "ended", resumed.Ends.Ended, r.RunID)
	wantIDs(t, "woken", resumed.Ends.Woken, parent.RunID)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
}

// A compensation's run that was deleted has not run it, as far as the database knows.
func TestCompensationIsDeleted(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := compensating(t, s, []string{"a"})
	c := claimCompensation(t, s, "a")
	exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE run_id = $1`, c.RunID)
	compensate(t, s, r.RunID)
	wantEnded(t, s, r.RunID, "FAILED compensation: not compensated: a#compensation: its run "+c.RunID.String()+
		" was deleted; the run ended because: broken (kind)")
	mustResume(t, s, r.RunID)
	runCompensations(t, s)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
}
