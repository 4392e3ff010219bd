package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// The last registered runs first, with its newest registration under its name, one after the other; then the run ends.
func TestCompensateInOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	parent := running(t, s, 1)[0]
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parent, -1)}})
	r := running(t, s, 1, withParent(parent.RunID), withPriority(2), withTimeout(time.Hour))[0]
	flush(t, s, &Flush{Records: []*Record{
		registering(r, "a", 1), registering(r, "b", 2), registering(r, "c", 3),
		registering(r, "d", 4, announcing),
	}})
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 5, asSecond)}})
	f := flushEnds(t, s, failing(r))
	wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
	wantIDs(t, "to be stepped", f.Step, r.RunID)
	if !f.Finishes[0].Compensating || len(f.Woken) > 0 {
		t.Errorf("finish %+v, woken %v", f.Finishes[0], f.Woken)
	}
	wantOutcomeOf(t, s, r.RunID, "FAILED kind: broken")
	if row := readRow(t, s.pool, r.RunID); row.Status != Sleeping || !row.Due || row.Ended || row.LockedBy != nil ||
		row.Attempts != 1 || *row.ErrorKind != "kind" {
		t.Errorf("row %+v", row)
	}
	if c := claim(t, s, request(10)); len(c.Runs) > 0 {
		t.Errorf("claimed %v", c.Runs)
	}
	stepped := compensate(t, s, r.RunID)
	for i, step := range []string{"again", "c", "b"} {
		wantWaiting(t, s, r.RunID, "compensation "+[]string{"a", "c", "b"}[i])
		c := claimCompensation(t, s, step)
		if len(stepped.Due) != 1 || stepped.Due[0] != (DueRun{c.RunID, "queue", "undo", 0}) || len(stepped.Changed())+
			len(stepped.Step) > 0 {
			t.Errorf("stepped %+v", stepped)
		}
		run, err := s.Runs.Get(t.Context(), c.RunID)
		if err != nil || run.Parent != r.RunID || run.ParentStep != CompensationID([]string{"a", "c", "b"}[i]) ||
			run.Priority != 2 || run.ExternalID != "" || !run.DeadlineAt.IsZero() {
			t.Errorf("compensation %+v, %v", run, err)
		}
		end := flushEnds(t, s, finish(c))
		wantIDs(t, "to be stepped", end.Step, r.RunID)
		if len(end.Woken) > 0 || end.Finishes[0].Compensating {
			t.Errorf("flush %+v", end)
		}
		stepped = compensate(t, s, r.RunID)
	}
	wantIDs(t, "ended", stepped.Ended, r.RunID)
	wantIDs(t, "woken", stepped.Woken, parent.RunID)
	if len(stepped.Due) != 1 || stepped.Due[0].RunID != parent.RunID || len(stepped.Step) > 0 {
		t.Errorf("stepped %+v", stepped)
	}
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	if row := readRow(t, s.pool, r.RunID); !row.Ended || row.Attempts != 1 || row.WaitingOn != nil || row.In != 0 {
		t.Errorf("row %+v", row)
	}
	if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 1 || !row.Due {
		t.Errorf("the parent %+v", row)
	}
	wantCompensations(t, s, r.RunID, "a#compensation 2 COMPLETED undo again", "d#compensation 1 RUNNING",
		"c#compensation 1 COMPLETED undo c",
		"b#compensation 1 COMPLETED undo b", "a#compensation 1 RUNNING undo a")
}

// Which ends run compensations.
func TestCompensatesOnlyWhatEndsBadly(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, tt := range map[string]struct {
		finish      Finish
		steps       []string
		compensates bool
	}{
		"Completed": {Finish{Status: Completed}, []string{"a"}, false},
		// what kind an error has decides nothing
		"Failed":      {Finish{Status: Failed, ErrorKind: "crash_loop"}, []string{"a"}, true},
		"Quarantined": {Finish{Status: Failed, ErrorKind: "crash_loop", Quarantined: true}, []string{"a"}, false},
		"Cancelled":   {Finish{Status: Cancelled, ErrorKind: "cancelled"}, []string{"a"}, true},
		"Nothing":     {Finish{Status: Failed, ErrorKind: "kind"}, nil, false},
	} {
		r := withCompensations(t, s, tt.steps)
		flush(t, s, &Flush{Records: []*Record{registering(r, "announced", 9, announcing)}})
		tt.finish.RunID, tt.finish.Lease = r.RunID, r.Lease
		f := flushEnds(t, s, &tt.finish)
		wantOutcome(t, name, tt.finish.Outcome, Done)
		row := readRow(t, s.pool, r.RunID)
		if tt.finish.Compensating != tt.compensates || row.Ended == tt.compensates ||
			len(f.Step) == 1 != tt.compensates {
			t.Errorf("%s: %+v, row %+v, to be stepped %v", name, tt.finish, row, f.Step)
		}
		before := one[string](t, s.pool, `SELECT to_jsonb(r)::text FROM kagzi.workflow_runs r
			WHERE run_id = $1`, r.RunID)
		out := compensate(t, s, r.RunID)
		after := one[string](t, s.pool, `SELECT to_jsonb(r)::text FROM kagzi.workflow_runs r
			WHERE run_id = $1`, r.RunID)
		if (len(out.Due) == 1) != tt.compensates || (before != after) != tt.compensates {
			t.Errorf("%s: stepped %+v, the row was %s and is %s", name, out, before, after)
		}
		if q := one[bool](t, s.pool, `SELECT quarantined FROM kagzi.workflow_runs WHERE run_id = $1`,
			r.RunID); q != tt.finish.Quarantined {
			t.Errorf("%s: quarantined %t", name, q)
		}
	}
	for name, r := range map[string]uuid.UUID{
		"Unknown": uuid.New(),
		"Pending": start(t, s, newRun(withDelay(time.Hour)))[0], "Sleeping": asleepWith(t, s, ofType("type")),
	} {
		if out := compensate(t, s, r); len(out.Changed())+len(out.Due)+len(out.Step) > 0 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	runCompensations(t, s)
}

// The children end first, whatever ends them, but for those that are detached.
func TestCompensateWaitsForChildren(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	r := withCompensations(t, s, []string{"a"})
	starts := &Flush{Records: []*Record{
		starting(r, "one"), starting(r, "two"), starting(r, "three"),
		starting(r, "stays", detached),
	}}
	flush(t, s, starts)
	children := map[string]*ClaimedRun{}
	for _, c := range claim(t, s, request(4)).Runs {
		i := slices.IndexFunc(starts.Records, func(rec *Record) bool { return rec.ChildRunID == c.RunID })
		children[starts.Records[i].StepID] = c
	}
	flush(t, s, &Flush{Records: []*Record{registering(children["two"], "below", 1)}})
	ends := flushEnds(t, s, failing(r), finish(children["one"])) // one ends with its parent
	wantIDs(t, "to be stepped", ends.Step, r.RunID)
	if out := compensate(t, s, r.RunID); len(out.Due)+len(out.Changed()) > 0 {
		t.Errorf("stepped %+v", out)
	}
	wantWaiting(t, s, r.RunID, "children")
	f := flushEnds(t, s, failing(children["two"])) // which compensates, too
	wantIDs(t, "to be stepped", f.Step, children["two"].RunID)
	compensate(t, s, children["two"].RunID)
	f = flushEnds(t, s, finish(children["three"]))
	wantIDs(t, "to be stepped", f.Step)
	wantWaiting(t, s, r.RunID, "children")
	below := claimCompensation(t, s, "below")
	f = flushEnds(t, s, finish(below))
	wantIDs(t, "to be stepped", f.Step, children["two"].RunID)
	out := compensate(t, s, children["two"].RunID)
	wantIDs(t, "ended", out.Ended, children["two"].RunID)
	wantIDs(t, "to be stepped", out.Step, r.RunID)
	if len(out.Due) > 0 {
		t.Errorf("nobody claims a run that compensates: %v", out.Due)
	}
	compensate(t, s, r.RunID)
	runCompensations(t, s)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	if row := readRow(t, s.pool, children["stays"].RunID); row.Status != Running {
		t.Errorf("the detached child is %s", row.Status)
	}
}

// Whatever ends a compensation makes the run's next step due, which the transaction that ended it takes.
func TestEndOfACompensationSteps(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *Store, *ClaimedRun) []uuid.UUID{
		"Flush": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			f := flushEnds(t, s, failing(c))
			return f.Step
		},
		"FlushBesideALock": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			r := running(t, s, 1)[0]
			lockRow(t, begin(t, s), r.RunID)
			f := &Flush{Records: []*Record{record(r, "a", "x")}, Finishes: []*Finish{failing(c)}}
			flush(t, s, f)
			wantOutcome(t, "record", f.Records[0].Outcome, Busy)
			return f.Step
		},
		"Cancel": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			out, err := s.Runs.Cancel(t.Context(), nil, c.RunID, Why{}, 0)
			if err != nil || len(out.Due) > 0 {
				t.Errorf("%+v, %v", out, err)
			}
			return out.Step
		},
		"Terminate": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			out, err := s.Runs.Terminate(t.Context(), nil, c.RunID, Why{})
			if err != nil || len(out.Due) > 0 {
				t.Errorf("%+v, %v", out, err)
			}
			return out.Step
		},
		"Deadline": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			pass(t, s, 2*grace, c.RunID)
			out := endOverdueRuns(t, s)
			wantIDs(t, "ended", out.Ended, c.RunID)
			return out.Step
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			dbtest.Audit(t, s.pool)
			r := compensating(t, s, []string{"a", "b"})
			wantIDs(t, "to be stepped", end(t, s, claimCompensation(t, s, "b")), r.RunID)
			wantIDs(t, "due", mustDue(t, s), r.RunID)
			compensate(t, s, r.RunID)
			runCompensations(t, s)
			if got := one[string](t, s.pool, `SELECT error_kind FROM kagzi.workflow_runs WHERE run_id = $1`,
				r.RunID); got != "compensation" {
				t.Errorf("ended as %s", got)
			}
		})
	}
}

// A run that no transaction has stepped is found, the longest due first; one that waits is not.
func TestDueCompensations(t *testing.T) {
	t.Parallel()
	s := open(t)
	compensating(t, s, []string{"a"})
	asleepWith(t, s)
	withCompensations(t, s, []string{"a"})
	foreign := New(s.pool, "other")
	flush(t, foreign, &Flush{Finishes: []*Finish{failing(withCompensations(t, foreign, []string{"a"}))}})
	var want []uuid.UUID
	for range 3 {
		r := withCompensations(t, s, []string{"a"})
		flushEnds(t, s, failing(r))
		want = append(want, r.RunID)
	}
	for n := range 4 {
		got, err := s.Ends.DueCompensations(t.Context(), n)
		if err != nil || !slices.Equal(got, want[:n]) {
			t.Errorf("due %v, want %v, error %v", got, want[:n], err)
		}
	}
	stepAll(t, s, want)
	wantIDs(t, "due", mustDue(t, s))
	// A message keeps nothing from going on.
	if _, err := s.Messages.Send(t.Context(), nil, Message{RunID: want[0], Name: "signal", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	stepAll(t, s, mustDue(t, s))
	runCompensations(t, s)
	wantEnded(t, s, want[0], "FAILED kind: broken")
}
