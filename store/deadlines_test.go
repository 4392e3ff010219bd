package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

const grace = time.Minute

// overdue returns a new pass over the runs past their deadlines.
func overdue() *Overdue {
	return &Overdue{Grace: grace, Kind: "deadline", Error: "too late"}
}

// endOverdueRuns makes a whole pass.
func endOverdueRuns(t *testing.T, s *Store) *CancelledRuns {
	t.Helper()
	all, o := &CancelledRuns{}, overdue()
	for more := true; more; {
		var out *CancelledRuns
		var err error
		if out, more, err = s.Ends.EndOverdue(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		all.add(out)
	}
	slices.SortFunc(all.Ended, compareIDs)
	return all
}

// pass moves the runs' deadlines into the past, by ago, and available_at with them, which is the deadline at the
// latest.
func pass(t *testing.T, s *Store, ago time.Duration, ids ...uuid.UUID) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET deadline_at = clock_timestamp() - $2::interval,
		available_at = LEAST(available_at, clock_timestamp() - $2::interval) WHERE run_id = ANY ($1)`, ids, ago)
}

// asleep starts a run with a deadline and lets it sleep.
func asleep(t *testing.T, s *Store, change ...func(*NewRun)) uuid.UUID {
	t.Helper()
	r := running(t, s, 1, append(change, withTimeout(24*time.Hour))...)[0]
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, time.Hour)}})
	return r.RunID
}

// asleepWith is asleep for a run that has registered a compensation.
func asleepWith(t *testing.T, s *Store, change ...func(*NewRun)) uuid.UUID {
	t.Helper()
	r := running(t, s, 1, append(change, withTimeout(24*time.Hour))...)[0]
	flush(t, s, &Flush{
		Records:     []*Record{registering(r, "booking", 1)},
		Suspensions: []*Suspension{sleep(r, time.Hour)},
	})
	return r.RunID
}

func wantIDs(t *testing.T, what string, got []uuid.UUID, want ...uuid.UUID) {
	t.Helper()
	got, want = slices.SortedFunc(slices.Values(got), compareIDs), slices.SortedFunc(slices.Values(want), compareIDs)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantEnded checks a run's status and error: "FAILED deadline: too late".
func wantEnded(t *testing.T, s *Store, id uuid.UUID, want string) {
	t.Helper()
	if got := one[string](t, s.pool, `SELECT concat(status, ' ', error_kind, ': ', error) FROM kagzi.workflow_runs
		WHERE run_id = $1`, id); got != want {
		t.Errorf("run %v is %s, want %s", id, got, want)
	}
}

// Runs that no worker executes end as they do at a worker. Runs that a worker executes, or that are not late enough, do
// not end.
func TestOverdueRunsEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	timeout := withTimeout(24 * time.Hour)
	pending := start(t, s, newRun(timeout))[0]
	sleeping, silent, live := asleep(t, s, withPriority(1)), running(t, s, 1, timeout, withPriority(1))[0],
		running(t, s, 1, timeout, withPriority(1))[0]
	recent, future := start(t, s, newRun(timeout))[0], start(t, s, newRun(timeout))[0]
	backoff := start(t, s, newRun(timeout))[0] // claimed from a dead worker after the deadline, and set back
	start(t, s, newRun())
	foreign := start(t, New(s.pool, "other"), newRun(timeout))[0]
	pass(t, s, 2*grace, pending, sleeping, silent.RunID, live.RunID, backoff, foreign)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = clock_timestamp() + interval '5 minutes'
		WHERE run_id = ANY ($1)`, []uuid.UUID{live.RunID, backoff})
	pass(t, s, grace/2, recent)

	out := endOverdueRuns(t, s)
	wantIDs(t, "ended", out.Ended, pending, sleeping, silent.RunID, backoff)
	if len(out.Compensating)+len(out.Marked)+len(out.Woken)+len(out.Due)+len(out.Step) > 0 {
		t.Errorf("%+v", out)
	}
	for _, id := range out.Ended {
		wantEnded(t, s, id, "FAILED deadline: too late")
		if row := readRow(t, s.pool, id); row.Attempts != 1 || row.LockedBy != nil || row.WaitingOn != nil ||
			!row.Ended {
			t.Errorf("row %+v", row)
		}
	}
	for _, id := range []uuid.UUID{live.RunID, recent, future, foreign} {
		if row := readRow(t, s.pool, id); row.Ended {
			t.Errorf("run %v has ended", id)
		}
	}
	// An operator can resume such a run.
	if _, err := s.Runs.Resume(t.Context(), nil, sleeping, Why{}); err != nil {
		t.Error(err)
	}
	if again := endOverdueRuns(t, s); len(again.Ended) != 0 {
		t.Errorf("ended again: %+v", again)
	}
}

// The parent of an overdue run is woken, and the runs below it are cancelled unless they are detached.
func TestOverdueRunHasAFamily(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	parent := running(t, s, 1, withPriority(1))[0]
	late := asleep(t, s, withParent(parent.RunID), withPriority(1))
	child := start(t, s, newRun(withParent(late)))[0]
	grandchild := start(t, s, newRun(withParent(child)))[0]
	detached := start(t, s, newRun(withParent(late)))[0]
	compensating := asleepWith(t, s, withParent(late), withPriority(1))
	lateToo := start(t, s, newRun(withParent(child), withTimeout(time.Hour)))[0]
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET detached = true WHERE run_id = $1`, detached)
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parent, -time.Second)}})
	pass(t, s, 2*grace, late, lateToo)

	out := endOverdueRuns(t, s)
	wantIDs(t, "ended", out.Ended, late, child, grandchild, lateToo)
	wantIDs(t, "compensating", out.Compensating, compensating)
	if !slices.Contains(out.Woken, parent.RunID) || !slices.ContainsFunc(out.Due, func(w DueRun) bool {
		return w.RunID == parent.RunID && w.Queue == "queue" && w.Type == "type"
	}) {
		t.Errorf("woken %v, due %v, want the parent", out.Woken, out.Due)
	}
	if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 1 || !row.Due || row.Status != Sleeping {
		t.Errorf("the parent %+v", row)
	}
	wantEnded(t, s, late, "FAILED deadline: too late")
	wantEnded(t, s, lateToo, "FAILED deadline: too late")
	wantEnded(t, s, child, "CANCELLED cancelled: run was cancelled: its parent "+late.String()+" ended")
	wantEnded(t, s, grandchild, "CANCELLED cancelled: run was cancelled: its parent "+child.String()+" ended")
	if row := readRow(t, s.pool, detached); row.Status != Pending {
		t.Errorf("the detached child %+v", row)
	}
	wantWaiting(t, s, compensating, "compensation booking")
	wantOutcomeOf(t, s, compensating, "CANCELLED cancelled: run was cancelled: its parent "+late.String()+" ended")

	// A parent that retention has deleted does not keep its child from ending.
	orphan := start(t, s, newRun(withParent(uuid.New()), withTimeout(time.Hour)))[0]
	pass(t, s, 2*grace, orphan)
	wantIDs(t, "ended", endOverdueRuns(t, s).Ended, orphan)
}

// A run with registered compensations sleeps until they have run. Then it ends with the error of its deadline, or of
// the cancel that came before.
func TestOverdueRunIsCompensated(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	parent := running(t, s, 1, withPriority(1))[0]
	id := asleepWith(t, s, withParent(parent.RunID), withPriority(1))
	stuck := running(t, s, 1, withPriority(1), withTimeout(24*time.Hour))[0] // its worker ignores the cancel
	flush(t, s, &Flush{
		Records:     []*Record{registering(stuck, "booking", 1)},
		Suspensions: []*Suspension{sleep(parent, -time.Second)},
	})
	out, err := s.Runs.Cancel(t.Context(), nil, stuck.RunID, Why{Reason: "mine"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "marked", out.Marked, stuck.RunID)
	pass(t, s, 2*grace, id, stuck.RunID)

	out = endOverdueRuns(t, s)
	wantIDs(t, "ended", out.Ended)
	wantIDs(t, "compensating", out.Compensating, id, stuck.RunID)
	wantIDs(t, "woken", out.Woken)
	wantIDs(t, "to be stepped", out.Step)
	if len(out.Due) != 2 || out.Due[0].Type != "undo" || out.Due[0].Queue != "queue" {
		t.Errorf("due: %v, want two compensations", out.Due)
	}
	for id, outcome := range map[uuid.UUID]string{
		id:          "FAILED deadline: too late",
		stuck.RunID: "CANCELLED cancelled: run was cancelled: mine",
	} {
		wantWaiting(t, s, id, "compensation booking")
		wantOutcomeOf(t, s, id, outcome)
		if row := readRow(t, s.pool, id); row.Lease != nil || row.LockedBy != nil || row.Ended {
			t.Errorf("row %+v", row)
		}
	}
	if row := readRow(t, s.pool, id); row.Attempts != 1 {
		t.Errorf("%d attempts have failed, want 1", row.Attempts)
	}
	if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 0 {
		t.Errorf("the parent was woken: %+v", row)
	}
	if again := endOverdueRuns(t, s); len(again.Changed()) != 0 {
		t.Errorf("looked at again: %+v", again)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE deadline_at IS NOT NULL`); n != 0 {
		t.Errorf("%d runs have a deadline: a run that compensates has none", n)
	}
	if c := claim(t, s, request(10)); len(c.Runs) != 0 {
		t.Errorf("claimed %+v", c.Runs)
	}
	runCompensations(t, s)
	wantEnded(t, s, id, "FAILED deadline: too late")
	wantEnded(t, s, stuck.RunID, "CANCELLED cancelled: run was cancelled: mine")
	if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 1 || !row.Due {
		t.Errorf("the parent %+v", row)
	}
	if row := readRow(t, s.pool, id); row.Attempts != 1 {
		t.Errorf("%d attempts have failed, want 1", row.Attempts)
	}
}

// A run whose family another transaction has locked waits for a later pass, and does not keep the others from ending.
func TestOverdueRunsPassOverLocks(t *testing.T) {
	t.Parallel()
	for _, locked := range []string{"Run", "Parent", "Child", "Grandchild"} {
		t.Run(locked, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			timeout := withTimeout(time.Hour)
			parent := start(t, s, newRun())[0]
			late := start(t, s, newRun(timeout, withParent(parent)))[0]
			child := start(t, s, newRun(timeout, withParent(late)))[0]
			grandchild := start(t, s, newRun(withParent(child)))[0]
			others := start(t, s, many(20, timeout)...)
			pass(t, s, 2*grace, append(others, late, child)...)
			tx := begin(t, s)
			lockRow(t, tx, map[string]uuid.UUID{
				"Run": late, "Parent": parent, "Child": child,
				"Grandchild": grandchild,
			}[locked])
			want := others
			if locked == "Parent" { // the child's own parent is free
				want = append(want, child, grandchild)
			}
			wantIDs(t, "ended beside a lock", endOverdueRuns(t, s).Ended, want...)
			commit(t, tx)
			all := append(endOverdueRuns(t, s).Ended, want...)
			wantIDs(t, "ended", all, append(others, late, child, grandchild)...)
		})
	}
}

// More runs than one transaction ends are ended in batches. A batch in which no run can end, because the parent of all
// is locked, does not stop the pass.
func TestOverdueRunsEndInBatches(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := start(t, s, newRun())[0]
	ids := start(t, s, many(overdueBatch, withTimeout(time.Hour), withParent(parent))...)
	pass(t, s, 3*grace, ids...)
	ids = append(ids, start(t, s, many(overdueBatch+7, withTimeout(time.Hour))...)...)
	pass(t, s, 2*grace, ids[overdueBatch:]...)
	tx := begin(t, s)
	lockRow(t, tx, parent)
	wantIDs(t, "ended beside the locks", endOverdueRuns(t, s).Ended, ids[overdueBatch:]...)
	commit(t, tx)
	o := overdue()
	out, more, err := s.Ends.EndOverdue(t.Context(), o)
	if err != nil || len(out.Ended) != overdueBatch || !more {
		t.Errorf("ended %d, more %t, error %v", len(out.Ended), more, err)
	}
	if out, more, err = s.Ends.EndOverdue(t.Context(), o); err != nil || len(out.Ended) != 0 || more {
		t.Errorf("ended %d, more %t, error %v", len(out.Ended), more, err)
	}
}

// overdueRuns reads as many rows as it returns, however many have a deadline to come, or are late in another namespace.
func TestOverdueLookReadsLittle(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	rows := campaign.Size(15_000, 50_000)
	exec(t, s.pool, plans.LoadRuns, rows)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET deadline_at = now() + interval '1 hour' WHERE status = 'SLEEPING'`)
	exec(t, s.pool, `INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status,
		available_at, deadline_at)
		SELECT gen_random_uuid(), 'other', 'queue', 'type', 'PENDING', now(), now() - interval '1 hour'
			FROM generate_series(1, $1::int)`, rows)
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	late := start(t, s, many(10, withTimeout(time.Hour))...)
	pass(t, s, 2*grace, late...)
	conn := dbtest.Connect(t, s.pool.Config().ConnString())
	for _, want := range []struct{ rows, buffers int }{{10, 60}, {0, 30}} {
		p := plans.Explain(t, plans.Prepared(t, conn), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)", overdueRuns,
			s.namespace,
			time.Time{}, uuid.Nil, pg.Micros(grace), overdueBatch)
		if p.MaxRows("workflow_runs") > float64(want.rows) || p.Buffers() > want.buffers {
			t.Errorf("with %d runs that are late the query reads %v rows and %d buffers\n%s", want.rows,
				p.MaxRows("workflow_runs"), p.Buffers(), p.Text)
		}
		exec(t, conn, `ROLLBACK`)
		endOverdueRuns(t, s)
		exec(t, s.pool, `VACUUM kagzi.workflow_runs`)
	}
}
