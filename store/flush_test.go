package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

func TestSuspend(t *testing.T) {
	t.Parallel()

	t.Run("Sleep", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		p := sleep(r, time.Hour)
		flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		wantOutcome(t, "suspend", p.Outcome, Done)
		row := readRow(t, s.pool, r.RunID)
		if row.Status != Sleeping || row.In < 3590 || row.LockedBy != nil || *row.Lease != r.Lease ||
			*row.WaitingOn != "timer" || row.Attempts != 0 {
			t.Errorf("row %+v", row)
		}
		if d := time.Until(p.AvailableAt); d < 50*time.Minute {
			t.Errorf("available in %v", d)
		}
	})

	// A run that is given back unbegun is as it was before its claim, even if the answer of the claim was lost.
	t.Run("AsBeforeTheClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, many(5)...)
		exec(t, s.pool, `UPDATE kagzi.workflow_runs r SET version = CASE WHEN n.n % 2 = 1 THEN 1 END,
			started_at = CASE WHEN n.n > 1 THEN timestamptz '2020-01-01' END
			FROM (SELECT k.run_id, row_number() OVER (ORDER BY k.available_at) - 1 AS n FROM kagzi.workflow_runs k) n
				WHERE n.run_id = r.run_id`)
		rows := func() []string {
			return one[[]string](t, s.pool, `SELECT array_agg(concat_ws(' ', run_id, 'version', version, 'started',
				started_at, status, available_at) ORDER BY available_at) FROM kagzi.workflow_runs`)
		}
		before := rows()
		req := request(5)
		due := map[uuid.UUID]time.Time{}
		for _, r := range claim(t, s, req).Runs {
			due[r.RunID] = r.DueAt
		}
		found, err := s.Claims.Resolve(t.Context(), req)
		if err != nil || len(found.Runs) != 5 {
			t.Fatalf("found %d, %v", len(found.Runs), err)
		}
		var given []*Suspension
		for _, r := range found.Runs {
			given = append(given, &Suspension{
				RunID: r.RunID, Lease: r.Lease, Status: Pending, Wake: -1,
				WakeAt: due[r.RunID], Unbegun: true,
			})
		}
		flush(t, s, &Flush{Suspensions: given})
		if after := rows(); !slices.Equal(after, before) {
			t.Errorf("given back as %q, want %q", after, before)
		}
		begun := claim(t, s, request(1)).Runs[0]
		flush(t, s, &Flush{Suspensions: []*Suspension{{RunID: begun.RunID, Lease: begun.Lease, Status: Pending}}})
		if got := one[bool](t, s.pool, `SELECT version IS NOT NULL AND started_at IS NOT NULL FROM kagzi.workflow_runs
			WHERE run_id = $1`, begun.RunID); !got {
			t.Error("a run that has begun lost its version or its start")
		}
	})

	t.Run("TheEarlierOfWakeAndWakeAt", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rs := running(t, s, 2)
		a, b := sleep(rs[0], time.Hour), sleep(rs[1], 10*time.Minute)
		a.WakeAt, b.WakeAt = time.Now().Add(20*time.Minute), time.Now().Add(30*time.Minute)
		flush(t, s, &Flush{Suspensions: []*Suspension{a, b}})
		for i, want := range []float64{1200, 600} {
			if got := readRow(t, s.pool, rs[i].RunID).In; got < want-10 || got > want {
				t.Errorf("run %d available in %v s, want %v", i, got, want)
			}
		}
	})

	t.Run("AWakeUpNotSeen", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET wakeups = wakeups + 1`)
		p := sleep(r, time.Hour)
		flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		if row := readRow(t, s.pool, r.RunID); row.Status != Sleeping || !row.Due {
			t.Errorf("row %+v, want one that is due", row)
		}
		r = claim(t, s, request(1)).Runs[0]
		if r.Wakeups != 1 || r.Fresh {
			t.Errorf("claimed %+v", r)
		}
		p = sleep(r, time.Hour) // has seen it
		flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		if row := readRow(t, s.pool, r.RunID); row.Due {
			t.Error("a wake-up that was seen wakes again")
		}
	})

	t.Run("ARetryKeepsItsBackoff", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := running(t, s, 1)[0]
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET wakeups = 5`)
		p := &Suspension{
			RunID: parent.RunID, Lease: parent.Lease, Status: Pending, Wake: time.Hour,
			Failed: &FailedAttempt{ErrorKind: "kind", Error: "text"},
		}
		flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		row := readRow(t, s.pool, parent.RunID)
		if row.Status != Pending || row.In < 3590 || row.Attempts != 1 || *row.ErrorKind != "kind" {
			t.Errorf("row %+v", row)
		}
		start(t, s, newRun(withParent(parent.RunID)))
		child := claim(t, s, request(1)).Runs[0]
		flush(t, s, &Flush{Finishes: []*Finish{finish(child)}})
		if row := readRow(t, s.pool, parent.RunID); row.In < 3590 || row.Wakeups != 6 {
			t.Errorf("after a wake-up: %+v", row)
		}
	})

	t.Run("NotUnderALostLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		next := supersede(t, s, r)
		f := &Flush{Suspensions: []*Suspension{sleep(r, time.Hour)}}
		flush(t, s, f)
		wantOutcome(t, "suspend", f.Suspensions[0].Outcome, Lost)
		f = &Flush{Finishes: []*Finish{finish(r)}, Records: []*Record{record(r, "a", "x")}}
		flush(t, s, f)
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Lost)
		wantOutcome(t, "record", f.Records[0].Outcome, Lost)
		if row := readRow(t, s.pool, r.RunID); row.Status != Running || *row.Lease != next.Lease {
			t.Errorf("row %+v", row)
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.step_runs`); n > 0 {
			t.Error("a step was recorded under a lost lease")
		}
	})
}

func TestFinish(t *testing.T) {
	t.Parallel()

	t.Run("EndsTheRun", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rs := running(t, s, 2)
		failed := &Finish{RunID: rs[1].RunID, Lease: rs[1].Lease, Status: Failed, ErrorKind: "kind", Error: "text"}
		flush(t, s, &Flush{Finishes: []*Finish{finish(rs[0]), failed}})
		ended, missing, err := s.Runs.Ended(t.Context(), []uuid.UUID{rs[0].RunID, rs[1].RunID, uuid.New()}, 0)
		if err != nil || len(ended) != 2 || len(missing) != 1 {
			t.Fatal(ended, missing, err)
		}
		for _, e := range ended {
			want := Ended{RunID: rs[0].RunID, Type: "type", Status: Completed, Output: []byte("output")}
			if e.RunID == rs[1].RunID {
				want = Ended{RunID: rs[1].RunID, Type: "type", Status: Failed, ErrorKind: "kind", Error: "text"}
			}
			if fmt.Sprintf("%+v", e) != fmt.Sprintf("%+v", want) {
				t.Errorf("%+v, want %+v", e, want)
			}
			if row := readRow(t, s.pool, e.RunID); *row.Lease != rs[0].Lease || row.LockedBy != nil || !row.Ended ||
				row.In != 0 {
				t.Errorf("row %+v: the lease stays, to tell a lost answer from a lost lease", row)
			}
		}
	})

	t.Run("NotCompletedWhileACancelIsPending", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET cancel_requested_at = now()`)
		e := finish(r)
		flush(t, s, &Flush{Finishes: []*Finish{e}})
		if e.Outcome == Done || readRow(t, s.pool, r.RunID).Status != Running {
			t.Errorf("outcome %d", e.Outcome)
		}
		e.Status, e.ErrorKind, e.Output = Cancelled, "cancelled", nil
		flush(t, s, &Flush{Finishes: []*Finish{e}})
		wantOutcome(t, "cancelled", e.Outcome, Done)
	})

	t.Run("WakesTheParent", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := running(t, s, 1)[0]
		start(t, s, many(3, withParent(parent.RunID))...)
		children := claim(t, s, request(3)).Runs
		// Two end beside a parent that falls asleep in the same flush, having seen neither.
		f := &Flush{
			Suspensions: []*Suspension{sleep(parent, time.Hour)},
			Finishes:    []*Finish{finish(children[0]), finish(children[1])},
		}
		flush(t, s, f)
		wantOutcome(t, "suspend", f.Suspensions[0].Outcome, Done)
		if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 2 || !row.Due {
			t.Errorf("row %+v", row)
		}
		parent = claim(t, s, request(1)).Runs[0]
		// The last ends together with the parent.
		f = &Flush{Finishes: []*Finish{finish(children[2]), finish(parent)}}
		flush(t, s, f)
		wantOutcome(t, "child", f.Finishes[0].Outcome, Done)
		wantOutcome(t, "parent", f.Finishes[1].Outcome, Done)
		if row := readRow(t, s.pool, parent.RunID); row.Status != Completed || row.Attempts != 0 || !row.Ended {
			t.Errorf("row %+v", row)
		}
	})

	t.Run("LeavesAParentThatIsOver", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := running(t, s, 1)[0]
		start(t, s, newRun(withParent(parent.RunID)))
		child := claim(t, s, request(1)).Runs[0]
		flush(t, s, &Flush{Finishes: []*Finish{finish(parent)}})
		flush(t, s, &Flush{Finishes: []*Finish{finish(child)}})
		if row := readRow(t, s.pool, parent.RunID); row.Wakeups != 0 {
			t.Errorf("row %+v", row)
		}
	})
}

// A user's transaction holds a run's row. All others go on.
func TestAUsersTransactionStallsNobodyElse(t *testing.T) {
	t.Parallel()
	s := open(t)
	rs := running(t, s, 4)
	start(t, s, newRun(withParent(rs[0].RunID)))
	child := claim(t, s, request(1)).Runs[0]
	tx := begin(t, s)
	lockRow(t, tx, rs[0].RunID)

	f := &Flush{
		Records:     []*Record{record(rs[0], "step", "x"), record(rs[1], "step", "x")},
		Suspensions: []*Suspension{sleep(rs[2], time.Hour)},
		Finishes:    []*Finish{finish(rs[3]), finish(child)},
	}
	began := time.Now()
	flush(t, s, f)
	if d := time.Since(began); d > 7*time.Second { // a wait without a limit of its own takes 8 s or more
		t.Errorf("the flush took %v, want about 100 ms", d)
	}
	outcome := func(id uuid.UUID) Outcome {
		for _, e := range f.Finishes {
			if e.RunID == id {
				return e.Outcome
			}
		}
		return 0
	}
	for _, r := range f.Records {
		want := Done
		if r.RunID == rs[0].RunID {
			want = Busy
		}
		wantOutcome(t, "record", r.Outcome, want)
	}
	wantOutcome(t, "suspend", f.Suspensions[0].Outcome, Done)
	wantOutcome(t, "finish", outcome(rs[3].RunID), Done)
	wantOutcome(t, "finish of a child whose parent's row is held", outcome(child.RunID), Busy)

	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() + interval '1 s' WHERE run_id = $1`,
		rs[1].RunID)
	states, _ := extend(t, s, time.Hour, rs[0], rs[1])
	if len(states) != 2 || !states[0].Holds || !states[1].Holds {
		t.Errorf("states %+v", states)
	}
	if a, b := readRow(t, s.pool, rs[0].RunID).In, readRow(t, s.pool, rs[1].RunID).In; a > 60 || b < 3500 {
		t.Errorf("extended to %v and %v s: the held row is to be left alone, the other not", a, b)
	}

	commit(t, tx)
	f = &Flush{Records: f.Records, Finishes: []*Finish{finish(child)}}
	flush(t, s, f)
	wantOutcome(t, "record once the row is free", f.Records[0].Outcome, Done)
	wantOutcome(t, "finish once the parent's row is free", f.Finishes[0].Outcome, Done)
	if row := readRow(t, s.pool, rs[0].RunID); row.Wakeups != 1 {
		t.Errorf("%d wake-ups, want 1", row.Wakeups)
	}

	// One that loses its lease while it is held is not busy for ever.
	tx = begin(t, s)
	exec(t, tx, `UPDATE kagzi.workflow_runs SET lease = $2 WHERE run_id = $1`, rs[0].RunID, uuid.New())
	f = &Flush{Finishes: []*Finish{finish(rs[0])}}
	flush(t, s, f)
	wantOutcome(t, "held", f.Finishes[0].Outcome, Busy)
	commit(t, tx)
	flush(t, s, f)
	wantOutcome(t, "lost", f.Finishes[0].Outcome, Lost)
}

// The first try has suspended the run when it meets a lock on a step, and is rolled back. A transaction that has waited
// for the run has it before the second try does.
func TestARolledBackTryIsNotDone(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	failed := record(r, "step", "")
	failed.Status, failed.Error = Failed, "no"
	flush(t, s, &Flush{Records: []*Record{failed}})
	onStep := begin(t, s)
	exec(t, onStep, `SELECT FROM kagzi.step_runs WHERE run_id = $1 FOR UPDATE`, r.RunID)
	for {
		suspension, onRun := sleep(r, time.Hour), begin(t, s)
		suspension.Status, suspension.Failed = Pending, &FailedAttempt{Forget: []string{"step"}}
		var err error
		meetsLock(t, s, func(ctx context.Context) {
			err = s.Records.Flush(ctx, &Flush{Suspensions: []*Suspension{suspension}})
		}, func() { lockRow(t, onRun, r.RunID) })
		if pg.Locked(err) { // the second try was sooner
			rollback(t, onRun)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, "suspend", suspension.Outcome, Busy)
		if row := readRow(t, s.pool, r.RunID); row.Status != Running {
			t.Errorf("row %+v", row)
		}
		return
	}
}

// A value and a checkpoint have a row already when another transaction locks their run: it is no result of the change.
func TestReplacementsWaitForALockedRun(t *testing.T) {
	t.Parallel()
	for _, id := range []string{ValueID("state"), CheckpointID("step")} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			r := running(t, s, 1)[0]
			change := func(number int64) *Record {
				rec := record(r, id, fmt.Sprint(number))
				rec.Sequence, rec.Position, rec.Kind = number, number, KindCheckpoint
				if id == ValueID("state") {
					rec.Kind = KindValue
				}
				return rec
			}
			write := func(rec *Record, want Outcome) {
				t.Helper()
				flush(t, s, &Flush{Records: []*Record{rec}})
				wantOutcome(t, "the change", rec.Outcome, want)
			}
			write(change(1), Done)
			tx, second := begin(t, s), change(2)
			lockRow(t, tx, r.RunID)
			write(second, Busy)
			commit(t, tx)
			write(second, Done)
			write(second, Done) // as after a lost answer
			if got := dbtest.QueryOne[string](t, s.pool, `SELECT concat_ws(' ', convert_from(output, 'UTF8'), sequence,
				position) FROM kagzi.step_runs WHERE run_id = $1`, r.RunID); got != "2 2 2" {
				t.Errorf("the row has %q, want output, sequence and position of the second change", got)
			}
		})
	}
}

// Retention has deleted the child's parent: that no transaction holds its row is no reason to wait.
func TestAFinishWhoseParentIsGone(t *testing.T) {
	t.Parallel()
	s := open(t)
	held := running(t, s, 1)[0]
	start(t, s, newRun(withParent(uuid.New())))
	child := claim(t, s, request(1)).Runs[0]
	lockRow(t, begin(t, s), held.RunID)
	f := &Flush{Records: []*Record{record(held, "step", "x")}, Finishes: []*Finish{finish(child)}}
	flush(t, s, f)
	wantOutcome(t, "record of a run that is held", f.Records[0].Outcome, Busy)
	wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
}

// Two processes end children of each other's runs, and record steps of these runs in the same flushes.
func TestFlushesCrosswise(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	// A deadlock is found at once, before a wait ends for another reason.
	pool := poolWith(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["deadlock_timeout"] = "1" })
	s := New(pool, "test")
	const rounds, width = 60, 6
	parents := [2][]*ClaimedRun{running(t, s, width), running(t, s, width)}
	var children [2][]*ClaimedRun
	for i := range parents {
		// What process i executes are children of the other's runs.
		var runs []NewRun
		for n := range rounds * width {
			runs = append(runs, newRun(withParent(parents[1-i][n%width].RunID)))
		}
		start(t, s, runs...)
		children[i] = claim(t, s, request(len(runs))).Runs
	}
	var wg sync.WaitGroup
	for i := range parents {
		wg.Go(func() {
			byParent := map[uuid.UUID][]*ClaimedRun{}
			for _, c := range children[i] {
				byParent[c.ParentRunID] = append(byParent[c.ParentRunID], c)
			}
			for n := range rounds {
				f := &Flush{}
				for k, p := range parents[i] {
					f.Records = append(f.Records, record(p, fmt.Sprintf("step-%d", n), "x"))
					f.Finishes = append(f.Finishes, finish(byParent[parents[1-i][k].RunID][n]))
				}
				for range 100 {
					if err := s.Records.Flush(t.Context(), f); err != nil {
						t.Error(err)
						return
					}
					rest := &Flush{}
					for _, r := range f.Records {
						if r.Outcome == Busy {
							rest.Records = append(rest.Records, r)
						}
					}
					for _, e := range f.Finishes {
						if e.Outcome == Busy {
							rest.Finishes = append(rest.Finishes, e)
						}
						if e.Outcome == Lost {
							t.Error("a finish was lost")
						}
					}
					if f = rest; len(f.Records)+len(f.Finishes) == 0 {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range parents {
		for _, p := range parents[i] {
			if row := readRow(t, s.pool, p.RunID); row.Wakeups != rounds {
				t.Errorf("%d wake-ups of %v, want %d", row.Wakeups, p.RunID, rounds)
			}
		}
	}
	wantNoDeadlocks(t, s)
}

// wantNoDeadlocks fails the test if the server broke a deadlock in its database.
func wantNoDeadlocks(t *testing.T, s *Store) {
	t.Helper()
	s.pool.Reset() // sessions report when they end, at the latest
	exec(t, s.pool, `
		DO $$ BEGIN
			FOR i IN 1 .. 1000 LOOP
				PERFORM pg_stat_clear_snapshot();
				EXIT WHEN (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
					AND backend_type = 'client backend') <= 1;
				PERFORM pg_sleep(0.005);
			END LOOP;
		END $$`)
	if n := one[int](t, s.pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// The flush of a process that records one run and ends another, against one that wakes both as parents: the order
// of the locks is the same, whatever kinds of items a flush holds.
func TestLocksComeInOneOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	pool := poolWith(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["deadlock_timeout"] = "1" })
	s := New(pool, "test")
	for i := range 80 {
		rs := running(t, s, 2)
		first, last := rs[0], rs[1]
		if compareIDs(first.RunID, last.RunID) > 0 {
			first, last = last, first
		}
		start(t, s, newRun(withParent(first.RunID)), newRun(withParent(last.RunID)))
		children := claim(t, s, request(2)).Runs
		own := &Flush{Records: []*Record{record(last, "step", "x")}, Finishes: []*Finish{finish(first)}}
		if i%2 == 1 {
			own = &Flush{Records: []*Record{record(last, "step", "x"), registering(first, "step", 1)}}
		}
		other := &Flush{Finishes: []*Finish{finish(children[0]), finish(children[1])}}
		var wg sync.WaitGroup
		for _, f := range []*Flush{own, other} {
			wg.Go(func() {
				if err := s.Records.Flush(t.Context(), f); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	wantNoDeadlocks(t, s)
}

// What the server refuses is classified as the content's fault, so that it can be distinguished.
func TestARefusedItem(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool,
		`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poison'; END $$`)
	exec(t, s.pool, `CREATE TRIGGER refuse BEFORE INSERT ON kagzi.step_runs FOR EACH ROW
		WHEN (NEW.output = 'poison'::bytea) EXECUTE FUNCTION public.refuse()`)
	rs := running(t, s, 3)
	f := &Flush{
		Records:  []*Record{record(rs[0], "step", "x"), record(rs[1], "step", "poison")},
		Finishes: []*Finish{finish(rs[2])},
	}
	if err := s.Records.Flush(t.Context(), f); !pg.Refused(err) || pg.Unavailable(err) || pg.Repeatable(err) {
		t.Fatalf("error %v, want one that says refused", err)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.step_runs`); n > 0 ||
		readRow(t, s.pool, rs[2].RunID).Status != Running {
		t.Error("a part of a refused flush is there")
	}
	for _, r := range f.Records {
		err := s.Records.Flush(t.Context(), &Flush{Records: []*Record{r}})
		if poison := string(r.Output) == "poison"; pg.Refused(err) != poison {
			t.Errorf("%s alone: %v", r.Output, err)
		}
	}
	flush(t, s, &Flush{Finishes: f.Finishes})
	wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
}

// Schemas change while statements are prepared.
func TestADDLBetweenCalls(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.MaxConns(1))
	for i := range 3 {
		r := running(t, s, 1)[0]
		f := &Flush{Records: []*Record{record(r, "step", "x")}}
		flush(t, s, f)
		wantOutcome(t, "record", f.Records[0].Outcome, Done)
		if _, err := s.Runs.Get(t.Context(), r.RunID); err != nil {
			t.Error(err)
		}
		if h, err := s.Histories.Latest(t.Context(), []uuid.UUID{r.RunID}); err != nil || len(h[r.RunID]) != 1 {
			t.Error(h, err)
		}
		e := finish(r)
		flush(t, s, &Flush{Finishes: []*Finish{e}})
		wantOutcome(t, "finish", e.Outcome, Done)
		exec(t, s.pool, fmt.Sprintf(`ALTER TABLE kagzi.workflow_runs ADD COLUMN extra_%d text`, i))
		// Prepared statements fail if the types of their columns change.
		exec(t, s.pool, fmt.Sprintf(`ALTER TABLE kagzi.step_runs ALTER error TYPE %s`,
			[]string{"varchar", "text", "varchar"}[i]))
		exec(t, s.pool, fmt.Sprintf(`ALTER TABLE kagzi.workflow_runs ALTER error TYPE %s`,
			[]string{"varchar", "text", "varchar"}[i]))
	}
}

// The answer of a flush is lost, and its records are sent again: with the statement that expects them. The worker's
// next flush of the same writes does not know that either.
func TestFlushFindsItsRecords(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := running(t, s, 2)
	first := &Flush{Records: []*Record{record(runs[0], "step", "1")}}
	flush(t, s, first)
	again := &Flush{Records: []*Record{record(runs[0], "step", "2"), record(runs[1], "step", "1")}}
	if err := s.Records.Flush(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	for _, r := range again.Records {
		wantOutcome(t, r.StepID, r.Outcome, Done)
		if string(r.Output) != `1` {
			t.Errorf("the record of %v has the output %s", r.RunID, r.Output)
		}
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.step_runs`); n != 2 {
		t.Errorf("%d records", n)
	}
}

// A second record of a result is noticed by its key, also when another server of a cluster has found it.
func TestAlreadyRecorded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&pgconn.PgError{Code: "23505", SchemaName: "kagzi", ConstraintName: "step_runs_pkey"}, true},
		{&pgconn.PgError{Code: "23505", SchemaName: "public", ConstraintName: "step_runs_pkey"}, false},
		{&pgconn.PgError{Code: "23505", SchemaName: "kagzi", ConstraintName: "signals_pkey"}, false},
		{&pgconn.PgError{
			Code: "23505", Message: `duplicate key value violates unique constraint "step_runs_pkey_102217"`,
		}, true},
		{&pgconn.PgError{
			Code: "23505", Message: `duplicate key value violates unique constraint "signals_pkey_102301"`,
		}, false},
		{&pgconn.PgError{Code: "23514", SchemaName: "kagzi", ConstraintName: "step_runs_pkey"}, false},
		{errors.New("another"), false},
	} {
		if got := alreadyRecorded(fmt.Errorf("flush: %w", tt.err)); got != tt.want {
			t.Errorf("%#v: %t, want %t", tt.err, got, tt.want)
		}
	}
}
