package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestCancel(t *testing.T) {
	t.Parallel()

	t.Run("FromEachStatus", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rs := running(t, s, 3)
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(rs[1], time.Hour)}, Finishes: []*Finish{finish(rs[2])}})
		pending := start(t, s, newRun())[0]
		for _, id := range []uuid.UUID{rs[0].RunID, rs[1].RunID, pending} {
			for range 2 { // a cancelled run stays so
				if err := cancelled(s.Runs.Cancel(t.Context(), nil, id, Why{}, 0)); err != nil {
					t.Error(err)
				}
			}
			if row := readRow(t, s.pool, id); row.Status != Cancelled || !row.Ended || row.LockedBy != nil ||
				row.In != 0 || *row.ErrorKind != "cancelled" {
				t.Errorf("row %+v", row)
			}
		}
		wantError(t, cancelled(s.Runs.Cancel(t.Context(), nil, rs[2].RunID, Why{}, 0)), ErrRunFinished)
		wantError(t, cancelled(s.Runs.Cancel(t.Context(), nil, uuid.New(), Why{}, 0)), ErrRunNotFound)
		wantError(t, cancelled(New(s.pool, "other").Runs.Cancel(t.Context(), nil, rs[0].RunID, Why{}, 0)),
			ErrRunNotFound)
		wantError(t, cancelled(s.Runs.Cancel(t.Context(), nil, saveTemplate(t, s, "s").ID, Why{}, 0)), ErrRunNotFound)

		// Cancel wins over writes that were under way.
		f := &Flush{Records: []*Record{record(rs[0], "step", "x")}, Finishes: []*Finish{finish(rs[0])}}
		flush(t, s, f)
		wantOutcome(t, "record", f.Records[0].Outcome, Lost)
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Lost)
		if c := claim(t, s, request(5)); len(c.Runs) > 0 {
			t.Errorf("claimed %v", c.Runs)
		}
	})

	t.Run("WakesTheParentOnce", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := running(t, s, 1)[0]
		child := start(t, s, newRun(withParent(parent.RunID)))[0]
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parent, -1)}})
		for range 2 {
			mustCancel(t, s, child, "")
		}
		if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 1 || !row.Due {
			t.Errorf("row %+v", row)
		}
	})

	t.Run("InACallersTransaction", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		tx := begin(t, s)
		if err := cancelled(s.Runs.Cancel(t.Context(), tx, id, Why{}, 0)); err != nil {
			t.Fatal(err)
		}
		wantError(t, cancelled(s.Runs.Cancel(t.Context(), tx, uuid.New(), Why{}, 0)), ErrRunNotFound)
		if c := claim(t, s, request(1)); len(c.Runs) > 0 {
			t.Error("claimed while a cancel is about to be committed")
		}
		rollback(t, tx)
		if row := readRow(t, s.pool, id); row.Status != Pending {
			t.Errorf("row %+v after a rollback", row)
		}
	})

	// It decides by the row as it was committed while the cancel waited for it.
	t.Run("MeetsAFinish", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		tx := begin(t, s)
		lockRow(t, tx, r.RunID)
		exec(t, tx, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', finished_at = now(), available_at = NULL,
			locked_by = NULL WHERE run_id = $1`, r.RunID)
		var err error
		meetsLock(t, s, func(ctx context.Context) {
			err = cancelled(s.Runs.Cancel(ctx, nil, r.RunID, Why{}, 0))
		}, func() { commit(t, tx) })
		wantError(t, err, ErrRunFinished)
		if row := readRow(t, s.pool, r.RunID); row.Status != Completed {
			t.Errorf("row %+v", row)
		}
	})

	// Cancels of children lock them and their parents, as flushes of both do. One of them ends the child, and the
	// parent is woken once.
	t.Run("BesideFlushes", func(t *testing.T) {
		t.Parallel()
		pool := poolWith(t, dbtest.Database(t).DSN, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["deadlock_timeout"] = "1"
		})
		s := New(pool, "test")
		for range 20 {
			parents := running(t, s, 2)
			start(t, s, newRun(withParent(parents[0].RunID)), newRun(withParent(parents[1].RunID)),
				newRun(withParent(parents[0].RunID)))
			children := claim(t, s, request(3)).Runs
			slices.SortFunc(children, func(a, b *ClaimedRun) int { return compareIDs(a.RunID, b.RunID) })
			var wg sync.WaitGroup
			wg.Go(func() {
				f := &Flush{
					Records:  []*Record{record(parents[0], "a", "x"), record(parents[1], "a", "x")},
					Finishes: []*Finish{finish(children[0]), finish(children[1]), finish(children[2])},
				}
				busy := true // as long as the cancel holds the locks
				for busy {
					if err := s.Records.Flush(t.Context(), f); err != nil {
						t.Error(err)
						return
					}
					busy = slices.ContainsFunc(f.Finishes, func(e *Finish) bool { return e.Outcome == Busy })
				}
			})
			wg.Go(func() {
				if err := cancelled(s.Runs.Cancel(t.Context(), nil, children[2].RunID, Why{}, 0)); err != nil &&
					!errors.Is(err, ErrRunFinished) {
					t.Error(err)
				}
			})
			wg.Wait()
			if row := readRow(t, s.pool, parents[0].RunID); row.Wakeups+readRow(t, s.pool, parents[1].RunID).
				Wakeups != 3 {
				t.Errorf("wake-ups were lost")
			}
		}
		wantNoDeadlocks(t, s)
	})
}

func TestResume(t *testing.T) {
	t.Parallel()

	t.Run("BeginsANewAttempt", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rs := running(t, s, 3, withTimeout(time.Hour))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = 7, recoveries_since = now()`)
		flush(t, s, &Flush{
			Records: []*Record{record(rs[0], "step", "x")},
			Finishes: []*Finish{{
				RunID: rs[0].RunID, Lease: rs[0].Lease, Status: Failed, ErrorKind: "kind",
				Error: "text",
			}, finish(rs[2])},
		})
		mustCancel(t, s, rs[1].RunID, "")
		for _, r := range rs[:2] {
			resumed, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
			if err != nil || resumed != (Resumed{Queue: "queue"}) {
				t.Errorf("resumed %+v, error %v", resumed, err)
			}
			row := readRow(t, s.pool, r.RunID)
			if row.Status != Pending || !row.Due || row.Lease != nil || row.Recoveries != 0 || row.ErrorKind != nil ||
				row.Ended || row.Attempts != 1 {
				t.Errorf("row %+v", row)
			}
			got := claim(t, s, request(1)).Runs[0]
			if !got.DeadlineAt.IsZero() || got.Attempts != 1 || got.Fresh {
				t.Errorf("claimed %+v", got)
			}
			_, err = s.Runs.Resume(t.Context(), nil, r.RunID, Why{})
			wantError(t, err, ErrRunActive)
		}
		_, err := s.Runs.Resume(t.Context(), nil, rs[2].RunID, Why{})
		wantError(t, err, ErrRunFinished)
		_, err = s.Runs.Resume(t.Context(), nil, uuid.New(), Why{})
		wantError(t, err, ErrRunNotFound)
		_, err = New(s.pool, "other").Runs.Resume(t.Context(), nil, rs[0].RunID, Why{})
		wantError(t, err, ErrRunNotFound)
		// The old holder comes too late.
		f := &Flush{Records: []*Record{record(rs[0], "late", "x")}}
		flush(t, s, f)
		wantOutcome(t, "record", f.Records[0].Outcome, Lost)
	})

	t.Run("ATakenID", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun(withID("id")))[0]
		mustCancel(t, s, id, "")
		other := start(t, s, newRun(withID("id")))[0]
		_, err := s.Runs.Resume(t.Context(), nil, id, Why{})
		wantError(t, err, ErrIDConflict)
		tx := begin(t, s)
		_, err = s.Runs.Resume(t.Context(), tx, id, Why{})
		wantError(t, err, ErrIDConflict)
		if n := one[int](t, tx, `SELECT 1`); n != 1 {
			t.Error("the caller's transaction is aborted")
		}
		if err := cancelled(s.Runs.Cancel(t.Context(), tx, other, Why{}, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Runs.Resume(t.Context(), tx, id, Why{}); err != nil {
			t.Error(err)
		}
		commit(t, tx)
		if row := readRow(t, s.pool, id); row.Status != Pending {
			t.Errorf("row %+v", row)
		}
		// A completed run with the ID of an active one is over, whichever run has its ID.
		r := claim(t, s, request(1)).Runs[0]
		flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
		start(t, s, newRun(withID("id")))
		_, err = s.Runs.Resume(t.Context(), nil, id, Why{})
		wantError(t, err, ErrRunFinished)
	})

	// The ID is taken between the check and the change.
	t.Run("AnIDTakenMeanwhile", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun(withID("id")))[0]
		mustCancel(t, s, id, "")
		taking := begin(t, s)
		if _, err := s.Starts.Start(t.Context(), taking, []NewRun{newRun(withID("id"))}); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, s)
		var err error
		meetsLock(t, s, func(ctx context.Context) {
			_, err = s.Runs.Resume(ctx, tx, id, Why{})
		}, func() { commit(t, taking) })
		wantError(t, err, ErrIDConflict)
		if n := one[int](t, tx, `SELECT 1`); n != 1 {
			t.Error("the caller's transaction is aborted")
		}
		_ = tx.Rollback(t.Context())
	})
}
