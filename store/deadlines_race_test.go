package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// Coordinators, a cancel and workers race for the same runs: each run ends once, and no parent misses a wake-up.
func TestOverdueRunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	parents := running(t, s, 20)
	f := &Flush{}
	var ids []uuid.UUID
	for _, p := range parents {
		ids = append(ids, start(t, s, many(10, withParent(p.RunID), withTimeout(time.Hour))...)...)
		f.Suspensions = append(f.Suspensions, &Suspension{
			RunID: p.RunID, Lease: p.Lease, Status: Sleeping,
			Wake: -1, Need: 10,
		})
	}
	flush(t, s, f)
	workers := claim(t, s, request(100)).Runs // half of them
	pass(t, s, 2*grace, ids...)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			o := overdue()
			for more := true; more; {
				var err error
				if _, more, err = s.Ends.EndOverdue(context.WithoutCancel(t.Context()), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for _, id := range ids[50:150] {
			if _, err := s.Runs.Cancel(t.Context(), nil, id, Why{}, 0); err != nil &&
				!strings.Contains(err.Error(), ErrRunFinished.Error()) {
				t.Error(err)
			}
		}
	})
	all.Go(func() {
		for _, r := range workers {
			if err := s.Records.Flush(t.Context(), &Flush{Finishes: []*Finish{finish(r)}}); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	endOverdueRuns(t, s) // the locked ones
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE parent_run_id IS NOT NULL
		AND finished_at IS NULL`); n > 0 {
		t.Errorf("%d runs have not ended", n)
	}
	for _, p := range parents {
		if row := readRow(t, s.pool, p.RunID); row.Wakeups != 10 || !row.Due {
			t.Errorf("parent %+v", row)
		}
	}
}

// Whichever statement or answer is lost, the runs are ended once: the statement is repeated, or its effect is found.
func TestOverdueRunsAndLostAnswers(t *testing.T) {
	t.Parallel()
	for name, matched := range map[string]func() pgproxy.Match{
		"Lock":     func() pgproxy.Match { return pgproxy.Contains("kagzi deadlines") },
		"Look":     func() pgproxy.Match { return pgproxy.Contains("ORDER BY q.deadline_at") },
		"Children": func() pgproxy.Match { return pgproxy.Contains("THEN 'mark'") },
		"End":      func() pgproxy.Match { return pgproxy.Nth(2, pgproxy.Contains("THEN 'mark'")) },
		"Commit": func() pgproxy.Match {
			return pgproxy.After(pgproxy.Contains("kagzi deadlines"), pgproxy.Exactly("commit"))
		},
	} {
		for loss, drop := range map[string]func(*pgproxy.Proxy,
			pgproxy.Match) *pgproxy.Drop{"Request": (*pgproxy.Proxy).DropRequest, "Answer": (*pgproxy.Proxy).DropAck} {
			t.Run(name+loss, func(t *testing.T) {
				t.Parallel()
				db := dbtest.Database(t)
				dbtest.Audit(t, db.Pool)
				s := New(db.Pool, "test")
				parent := start(t, s, newRun())[0]
				late := start(t, s, newRun(withTimeout(time.Hour), withParent(parent)))[0]
				start(t, s, newRun(withParent(late)))
				pass(t, s, 2*grace, late)
				proxy := pgproxy.Start(t, db.DSN)
				lossy := New(poolWith(t, proxy.DSN(), nil), "test")
				lost := drop(proxy, matched())
				if _, more, err := lossy.Ends.EndOverdue(t.Context(), overdue()); err == nil || more {
					t.Errorf("more %t, error %v", more, err)
				}
				<-lost.Done()
				// The server may notice only later that the connection has ended, and keep its locks until then.
				for begun := time.Now(); time.Since(begun) < time.Minute && !readRow(t, s.pool, late).Ended; {
					endOverdueRuns(t, lossy)
				}
				wantEnded(t, s, late, "FAILED deadline: too late")
				if row := readRow(t, s.pool, parent); row.Wakeups != 1 {
					t.Errorf("the parent %+v", row)
				}
				if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE status = 'CANCELLED'`); n != 1 {
					t.Errorf("%d children are cancelled", n)
				}
			})
		}
	}
}

// A coordinator that is frozen in the middle loses its locks, and its transaction is rolled back.
func TestOverdueRunsAndAFrozenCoordinator(t *testing.T) {
	t.Parallel()
	s := open(t)
	late := start(t, s, newRun(withTimeout(time.Hour)))[0]
	pass(t, s, 2*grace, late)
	frozen := errors.New("frozen")
	err := pg.Transact(t.Context(), s.pool, pg.Brief, func(tx pgx.Tx) error {
		if found, err := s.Ends.lockOverdue(t.Context(), tx, overdue(), 10); err != nil || len(found) != 1 {
			t.Errorf("found %v, error %v", found, err)
		}
		if other := endOverdueRuns(t, s); len(other.Ended) != 0 {
			t.Errorf("ended %v beside a coordinator", other.Ended)
		}
		return frozen // TestAFrozenTransactionKeepsNothing shows how it ends
	})
	if err != frozen {
		t.Errorf("error %v", err)
	}
	wantIDs(t, "ended", endOverdueRuns(t, s).Ended, late)
}

// The late writes of a worker whose lease has expired do not change a coordinator's decision.
func TestOverdueRunsAreFenced(t *testing.T) {
	t.Parallel()
	for name, compensates := range map[string]bool{"Ended": false, "Compensating": true} {
		for write, flushOf := range map[string]func(*ClaimedRun) *Flush{
			"Suspend": func(r *ClaimedRun) *Flush {
				return &Flush{Suspensions: []*Suspension{sleep(r, 30*24*time.Hour)}}
			},
			"Finish": func(r *ClaimedRun) *Flush { return &Flush{Finishes: []*Finish{finish(r)}} },
			"Failure": func(r *ClaimedRun) *Flush {
				return &Flush{Finishes: []*Finish{{
					RunID: r.RunID, Lease: r.Lease, Status: Failed, ErrorKind: "unknown",
					Error: "mine",
				}}}
			},
			"Record": func(r *ClaimedRun) *Flush { return &Flush{Records: []*Record{record(r, "late", "x")}} },
		} {
			s := open(t)
			r := running(t, s, 1, withTimeout(time.Hour))[0]
			if compensates {
				flush(t, s, &Flush{Records: []*Record{registering(r, "booking", 1)}})
			}
			pass(t, s, 2*grace, r.RunID)
			expire(t, s, r.RunID)
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour'
				WHERE run_id = $1`, r.RunID)
			if moved := endOverdueRuns(t, s).Changed(); len(moved) != 1 {
				t.Fatalf("%s, %s: moved %v", name, write, moved)
			}
			before := one[string](t, s.pool, `SELECT to_jsonb(r)::text FROM kagzi.workflow_runs r
				WHERE run_id = $1`, r.RunID)
			f := flushOf(r)
			flush(t, s, f)
			outcomes := []Outcome{}
			for _, p := range f.Suspensions {
				outcomes = append(outcomes, p.Outcome)
			}
			for _, e := range f.Finishes {
				outcomes = append(outcomes, e.Outcome)
			}
			for _, r := range f.Records {
				outcomes = append(outcomes, r.Outcome)
			}
			if len(outcomes) != 1 || outcomes[0] != Lost {
				t.Errorf("%s, %s: outcome %v, want Lost", name, write, outcomes)
			}
			if after := one[string](t, s.pool, `SELECT to_jsonb(r)::text FROM kagzi.workflow_runs r WHERE run_id = $1`,
				r.RunID); after != before {
				t.Errorf("%s, %s: the row was %s, and is %s", name, write, before, after)
			}
		}
	}
}
