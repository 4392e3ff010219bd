package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pgproxy"
)

// Whatever is lost, each compensation starts once, and the run ends once.
func TestLostCompensate(t *testing.T) {
	t.Parallel()
	for loss, drop := range map[string]func(*pgproxy.Proxy, pgproxy.Match) *pgproxy.Drop{"Request": (*pgproxy.Proxy).
		DropRequest, "Answer": (*pgproxy.Proxy).DropAck} {
		for _, part := range []string{
			"FOR UPDATE", "INSERT INTO kagzi.workflow_runs", "SET child_run_id = $5",
			"SET wakeups_awaited", "commit",
		} {
			t.Run(loss+" "+part, func(t *testing.T) {
				t.Parallel()
				s, direct, proxy := losing(t)
				r := withCompensations(t, direct, []string{"a", "b"})
				flushEnds(t, direct, failing(r))
				lose := func() *pgproxy.Drop {
					if part == "commit" {
						return drop(proxy, pgproxy.Exactly(part))
					}
					return drop(proxy, pgproxy.Contains(part))
				}
				lost := lose()
				compensate(t, s, r.RunID)
				happened(t, lost)
				wantWaiting(t, direct, r.RunID, "compensation b")
				flushEnds(t, direct, finish(claimCompensation(t, direct, "b")))
				compensate(t, direct, r.RunID)
				flushEnds(t, direct, failing(claimCompensation(t, direct, "a")))
				if part == "FOR UPDATE" || part == "commit" { // the others are no part of the last step
					lost = lose()
					compensate(t, s, r.RunID)
					happened(t, lost)
				} else {
					compensate(t, s, r.RunID)
				}
				wantEnded(t, direct, r.RunID, "FAILED compensation: not compensated: a#compensation: broken; the run "+
					"ended because: broken (kind)")

				lost = lose()
				if resumed, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{}); err != nil ||
					resumed.Queue != "queue" ||
					resumed.Ends == nil {
					t.Errorf("resumed %+v, error %v", resumed, err)
				}
				happened(t, lost)
				wantWaiting(t, direct, r.RunID, "compensation a")
				runCompensations(t, direct)
				wantEnded(t, direct, r.RunID, "FAILED kind: broken")
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE workflow_type = 'undo'`); n != 3 {
					t.Errorf("%d compensations were started, want 3", n)
				}
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.run_events`); n != 1 {
					t.Errorf("%d events of one resumption", n)
				}
			})
		}
	}
}

// A flush that fails a run loses its answer: repeated, it finds the run ended, also while the compensations run.
func TestLostFinishOfARunThatCompensates(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		r := withCompensations(t, direct, []string{"a"})
		f := &Flush{Finishes: []*Finish{failing(r)}}
		drop := lose(proxy, "u.status, u.output")
		wantAway(t, s.Records.Flush(t.Context(), f))
		happened(t, drop)
		flush(t, s, f)
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
		if !f.Finishes[0].Compensating {
			t.Errorf("finish %+v", f.Finishes[0])
		}
		if due := mustDue(t, direct); len(due) != 1 {
			t.Errorf("due %v", due)
		}
		compensate(t, s, r.RunID)
		flush(t, s, f)
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
		wantWaiting(t, direct, r.RunID, "compensation a")
		if row := readRow(t, direct.pool, r.RunID); row.Attempts != 1 {
			t.Errorf("row %+v", row)
		}
	})
}

// A cancel whose request or answer is lost takes place once, whatever the state of the run.
func TestLostCancelOfARunThatCompensates(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, _ bool) {
		for name, prepare := range map[string]func(s *Store) uuid.UUID{
			"Sleeping":     func(s *Store) uuid.UUID { return asleepWith(t, s) },
			"Running":      func(s *Store) uuid.UUID { return withCompensations(t, s, []string{"booking"}).RunID },
			"Compensating": func(s *Store) uuid.UUID { return compensating(t, s, []string{"booking"}).RunID },
		} {
			for _, part := range []string{"THEN 'mark'", "INSERT INTO kagzi.run_events", "commit"} {
				s, direct, proxy := losing(t)
				id := prepare(direct)
				drop := lose(proxy, part)
				out, err := s.Runs.Cancel(t.Context(), nil, id, Why{Reason: "mine"}, time.Hour)
				if err != nil || !out.has(id) {
					t.Errorf("%s, %s: %+v, error %v", name, part, out, err)
				}
				happened(t, drop)
				if events, err := direct.Runs.Events(t.Context(), id); err != nil || len(events) != 1 ||
					events[0].Reason != "mine" {
					t.Errorf("%s, %s: events %+v, error %v", name, part, events, err)
				}
				if name == "Running" {
					pass(t, direct, 2*grace, id)
					wantIDs(t, "compensating", endOverdueRuns(t, direct).Compensating, id)
				}
				stepAll(t, direct, append(out.Step, mustDue(t, direct)...))
				wantWaiting(t, direct, id, "compensation booking")
				runCompensations(t, direct)
				wantEnded(t, direct, id, "CANCELLED cancelled: run was cancelled: mine")
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE workflow_type = 'undo'`); n != 1 {
					t.Errorf("%s, %s: %d compensations", name, part, n)
				}
			}
		}
	})
}
