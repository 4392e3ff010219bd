package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// starting is the record of a child's start by r.
func starting(r *ClaimedRun, step string, change ...func(*NewRun)) *Record {
	rec := record(r, step, "")
	child := newRun(change...)
	rec.Status, rec.Kind, rec.Output, rec.ChildRunID, rec.Start = Running, KindChild, nil, child.RunID, &child
	return rec
}

func detached(r *NewRun) { r.Detached = true }

// childless fails the test unless nothing is recorded of rec, nor its child there.
func childless(t *testing.T, s *Store, rec *Record) {
	t.Helper()
	if n := one[int](t, s.pool, `SELECT (SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1) + (SELECT count(*)
		FROM kagzi.step_runs WHERE child_run_id = $1)`, rec.ChildRunID); n != 0 {
		t.Errorf("%d rows of a child that did not start", n)
	}
}

func TestStartOfAChild(t *testing.T) {
	t.Parallel()

	t.Run("RunAndRecordTogether", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1, withPriority(1))[0]
		a, b := starting(r, "a", withPriority(0)), starting(r, "b", detached, withPriority(4))
		for range 2 { // and once more, as after a lost answer
			flush(t, s, &Flush{Records: []*Record{a, b}})
			wantOutcome(t, "a", a.Outcome, Done)
			wantOutcome(t, "b", b.Outcome, Done)
		}
		for _, rec := range []*Record{a, b} {
			row, err := s.Runs.Get(t.Context(), rec.ChildRunID)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"a": 1, "b": 4}[rec.StepID] // the parent's, or its own
			if row.Parent != r.RunID || row.ParentStep != rec.StepID || row.Priority != want ||
				string(row.Input) != "input" || row.Status != Pending {
				t.Errorf("row %+v", row)
			}
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE parent_run_id = $1`,
			r.RunID); n != 2 {
			t.Errorf("%d children", n)
		}
	})

	t.Run("NotUnderALostLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		supersede(t, s, r)
		rec := starting(r, "a")
		flush(t, s, &Flush{Records: []*Record{rec}})
		wantOutcome(t, "start", rec.Outcome, Lost)
		childless(t, s, rec)
	})

	t.Run("TakenID", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		holder := start(t, s, newRun(withID("id")))[0]
		rec, beside := starting(r, "a", withID("id")), starting(r, "b")
		flush(t, s, &Flush{Records: []*Record{rec, beside}})
		wantOutcome(t, "start", rec.Outcome, Taken) // though input and type are the same
		wantOutcome(t, "the one beside it", beside.Outcome, Done)
		childless(t, s, rec)
		mustCancel(t, s, holder, "")
		flush(t, s, &Flush{Records: []*Record{rec}})
		wantOutcome(t, "start once the ID is free", rec.Outcome, Done)
		twice := []*Record{starting(r, "c", withID("two")), starting(r, "d", withID("two"))}
		flush(t, s, &Flush{Records: twice})
		if a, b := twice[0].Outcome, twice[1].Outcome; a+b != Done+Taken || a == b {
			t.Errorf("two with one ID: %d and %d", a, b)
		}
	})

	t.Run("EndedChildIsNews", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		rec := starting(r, "a")
		flush(t, s, &Flush{Records: []*Record{rec}, Suspensions: []*Suspension{sleep(r, -1)}})
		child := claim(t, s, request(1)).Runs[0]
		f := &Flush{Finishes: []*Finish{finish(child)}}
		flush(t, s, f)
		if len(f.Woken) != 1 || f.Woken[0].RunID != r.RunID {
			t.Errorf("woken %+v", f.Woken)
		}
		parent := claim(t, s, request(1)).Runs[0]
		inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{r.RunID})
		if err != nil || len(inbox[r.RunID].Ends) != 1 || inbox[r.RunID].Wakeups != 1 {
			t.Fatalf("inbox %+v, %v", inbox[r.RunID], err)
		}
		end := inbox[r.RunID].Ends[0]
		if end.Child != child.RunID || end.Type != "type" || end.Status != Completed ||
			string(end.Output) != "output" || end.FinishedAt.IsZero() {
			t.Errorf("end %+v", end)
		}
		taken := starting(parent, "a")
		taken.Status, taken.Output, taken.ChildRunID, taken.Start, taken.EndedAt = Completed, end.Output, child.RunID,
			nil, end.FinishedAt
		late := *rec // a start that is written again, after the end was taken in
		late.Lease = parent.Lease
		flush(t, s, &Flush{Records: []*Record{taken}})
		flush(t, s, &Flush{Records: []*Record{&late}})
		wantOutcome(t, "late start", late.Outcome, Done)
		if late.Status != Completed || string(late.Output) != "output" {
			t.Errorf("the row is %+v", late.StepRow)
		}
		if inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{r.RunID}); err != nil ||
			len(inbox[r.RunID].Ends) != 0 {
			t.Errorf("what was taken in is in the inbox: %+v, %v", inbox[r.RunID], err)
		}
	})

	// A parent that waits for three is due with the third end, and with no other.
	t.Run("NeedsAsManyWakeups", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		f := &Flush{Records: []*Record{starting(r, "a"), starting(r, "b"), starting(r, "c")}}
		p := sleep(r, -1)
		p.Need = 3
		f.Suspensions = []*Suspension{p}
		flush(t, s, f)
		for i, c := range claim(t, s, request(3)).Runs {
			flush(t, s, &Flush{Finishes: []*Finish{finish(c)}})
			if row := readRow(t, s.pool, r.RunID); row.Due != (i == 2) {
				t.Errorf("after %d ends: %+v", i+1, row)
			}
		}
	})
}

func TestCancelChildren(t *testing.T) {
	t.Parallel()

	t.Run("AllButDetached", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		stays, goes := starting(r, "stays", detached), starting(r, "goes")
		flush(t, s, &Flush{Records: []*Record{stays, goes}})
		children := claim(t, s, request(2)).Runs
		below := map[uuid.UUID]*Record{}
		for _, c := range children {
			below[c.RunID] = starting(c, "below")
			flush(t, s, &Flush{Records: []*Record{below[c.RunID]}})
		}
		out, err := s.Ends.CancelChildren(t.Context(), held(r))
		if err != nil || len(out.Ended) != 2 {
			t.Fatalf("%+v, %v", out, err)
		}
		for rec, want := range map[*Record]string{
			stays: Running, goes: Cancelled, below[stays.ChildRunID]: Pending, below[goes.ChildRunID]: Cancelled,
		} {
			if row := readRow(t, s.pool, rec.ChildRunID); row.Status != want {
				t.Errorf("%s is %s, want %s", rec.StepID, row.Status, want)
			}
		}
	})

	// The children are the next holder's.
	t.Run("NotUnderALostLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		rec := starting(r, "a", withDelay(time.Hour))
		flush(t, s, &Flush{Records: []*Record{rec}})
		supersede(t, s, r)
		_, err := s.Ends.CancelChildren(t.Context(), held(r))
		wantError(t, err, ErrLeaseLost)
		if row := readRow(t, s.pool, rec.ChildRunID); row.Status != Pending {
			t.Errorf("the child is %s", row.Status)
		}
	})
}

// TestFamiliesDoNotDeadlock cancels members of families while others of them end, and start children.
func TestFamiliesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const each = 8
	families := campaign.Size(3, 6)
	// each call has a connection; ends are written as they come, without cancelling children first
	s := open(t, dbtest.Unchecked(), dbtest.MaxConns(60))
	roots := running(t, s, families)
	starts := &Flush{}
	for _, r := range roots {
		for i := range each {
			starts.Records = append(starts.Records, starting(r, string(rune('a'+i))))
		}
	}
	flush(t, s, starts)
	children := claim(t, s, request(families*each)).Runs
	ctx := context.WithoutCancel(t.Context())
	var wg sync.WaitGroup
	for i := range children {
		wg.Go(func() { // a flush ends children of several families, and starts some below
			f := &Flush{Records: []*Record{starting(children[i], "below", withDelay(time.Hour))}}
			for k := range 3 {
				f.Finishes = append(f.Finishes, finish(children[(i+k*each)%len(children)]))
			}
			if err := s.Records.Flush(ctx, f); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
	}
	for i, r := range roots {
		wg.Go(func() {
			for k := range each {
				if err := cancelled(s.Runs.Cancel(ctx, nil, children[(i*5+k*7)%len(children)].RunID, Why{}, 0)); err !=
					nil && !errors.Is(err, ErrRunFinished) {
					t.Errorf("cancel of a child: %v", err)
				}
			}
		})
		wg.Go(func() {
			if err := cancelled(s.Runs.Cancel(ctx, nil, r.RunID, Why{}, 0)); err != nil {
				t.Errorf("cancel of a family: %v", err)
			}
		})
	}
	wg.Wait()
	wantNoDeadlocks(t, s)
	for _, r := range roots {
		if row := readRow(t, s.pool, r.RunID); row.Status != Cancelled {
			t.Errorf("a family's head is %s", row.Status)
		}
	}
}
