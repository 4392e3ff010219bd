package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// Several goroutines take one run's steps at the same time: each compensation starts once, in order.
func TestCompensateAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	r := withCompensations(t, s, []string{"a", "b", "c"})
	flushEnds(t, s, failing(r))
	for _, step := range []string{"c", "b", "a", ""} {
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				_, err := s.Ends.Compensate(context.WithoutCancel(t.Context()), r.RunID)
				for pg.Locked(err) { // a slow machine may have one wait for longer than it should
					_, err = s.Ends.Compensate(context.WithoutCancel(t.Context()), r.RunID)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if step != "" {
			flushEnds(t, s, finish(claimCompensation(t, s, step)))
		}
	}
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
}

// A compensation ends while the run's step is under way: the run's next step is due.
func TestCompensateMeetsAnEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := compensating(t, s, []string{"a", "b"})
	c := claimCompensation(t, s, "b")
	tx := begin(t, s) // the step of a transaction that sees no end yet
	if err := s.lock(t.Context(), tx, r.RunID); err != nil {
		t.Fatal(err)
	}
	if err := s.Ends.compensateLocked(t.Context(), tx, r.RunID, &CancelledRuns{}); err != nil {
		t.Fatal(err)
	}
	var out *CancelledRuns
	var err error
	meetsLock(t, s, func(ctx context.Context) {
		out, err = s.Runs.Cancel(ctx, nil, c.RunID, Why{}, 0)
	}, func() { commit(t, tx) })
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "to be stepped", out.Step, r.RunID)
}

// A finish waits for the transaction of a step, and sees what that has registered.
func TestFinishSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	tx := begin(t, s)
	if c, err := s.Records.WriteIn(t.Context(), tx, nil, record(r, "a", "x"), registering(r, "a", 1)); err != nil ||
		!c.Written {
		t.Fatalf("written %t, error %v", c.Written, err)
	}
	f := &Flush{Finishes: []*Finish{failing(r)}}
	meetsLock(t, s, func(ctx context.Context) { // for a moment, again and again
		for busy := true; busy; busy = f.Finishes[0].Outcome == Busy {
			if err := s.Records.Flush(ctx, f); err != nil {
				t.Error(err)
				return
			}
		}
	}, func() { commit(t, tx) })
	wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
	wantOutcomeOf(t, s, r.RunID, "FAILED kind: broken")
	wantIDs(t, "to be stepped", f.Step, r.RunID)
}

// Families of runs compensate while others flush, cancel and end them: every run ends, its compensations run in order,
// and there is no deadlock.
func TestCompensateBesideAllElse(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	s := New(poolWith(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["deadlock_timeout"] = "1" }),
		"test")
	families := campaign.Size(6, 12)
	roots := running(t, s, families, withTimeout(time.Hour))
	var ids []uuid.UUID
	for _, r := range roots {
		flush(t, s, &Flush{Records: []*Record{
			registering(r, "a", 1), registering(r, "b", 2), starting(r, "one", withTimeout(time.Hour)),
			starting(r, "two", withTimeout(time.Hour)),
		}})
		ids = append(ids, r.RunID)
	}
	children := claim(t, s, request(2*families)).Runs
	for _, c := range children {
		flush(t, s, &Flush{Records: []*Record{registering(c, "c", 1)}, Suspensions: []*Suspension{sleep(c, time.Hour)}})
		ids = append(ids, c.RunID)
	}
	pass(t, s, 2*grace, children[0].RunID, children[1].RunID, children[2].RunID)
	ctx := context.WithoutCancel(t.Context())
	check := func(err error) {
		// A lock that was not had in time is no fault: the next pass does it.
		if err != nil && !errors.Is(err, ErrRunFinished) && !errors.Is(err, ErrLeaseLost) && !pg.Locked(err) {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		for _, r := range roots {
			_, err := s.Ends.CancelChildren(ctx, held(r))
			check(err)
			f := &Flush{Finishes: []*Finish{failing(r)}}
			for f.Finishes[0].Outcome == Undecided || f.Finishes[0].Outcome == Busy ||
				f.Finishes[0].Outcome == Cancelling {
				if f.Finishes[0].Outcome == Cancelling {
					f.Finishes[0].Status = Cancelled
				}
				check(s.Records.Flush(ctx, f))
			}
		}
	})
	all.Go(func() {
		for i := len(ids) - 1; i >= 0; i -= 2 {
			check(cancelled(s.Runs.Cancel(ctx, nil, ids[i], Why{}, 0)))
		}
	})
	all.Go(func() {
		o := overdue()
		for more := true; more; {
			var err error
			_, more, err = s.Ends.EndOverdue(ctx, o)
			check(err)
		}
	})
	for range 3 {
		all.Go(func() {
			for range campaign.Size(12, 30) {
				due, err := s.Ends.DueCompensations(ctx, 5)
				check(err)
				for _, id := range due {
					_, err := s.Ends.Compensate(ctx, id)
					check(err)
				}
				c, err := s.Claims.Claim(ctx, request(3, types(WorkflowVersions{"undo", []int{1}, 1})))
				check(err)
				f := &Flush{}
				for _, r := range c.Runs {
					f.Finishes = append(f.Finishes, finish(r))
				}
				check(s.Records.Flush(ctx, f))
			}
		})
	}
	all.Wait()
	endOverdueRuns(t, s)
	// busy flushes
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() WHERE workflow_type = 'undo'
		AND status = 'RUNNING'`)
	for left := 1; left > 0; {
		stepAll(t, s, mustDue(t, s))
		runCompensations(t, s)
		left = len(mustDue(t, s)) + one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE workflow_type = 'undo' AND status IN ('PENDING', 'RUNNING')`)
	}
	if left := column[string](t, s.pool, `SELECT concat_ws(' ', run_id, status, waiting_on, error)
		FROM kagzi.workflow_runs WHERE finished_at IS NULL`); len(left) > 0 {
		t.Errorf("not over: %s", strings.Join(left, "\n"))
	}
	wantNoDeadlocks(t, s)
}
