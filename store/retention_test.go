package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

const day = 24 * time.Hour

// keepDays is the retention of the tests.
var keepDays = Retention{Completed: 7 * day, Failed: 30 * day, Workflows: map[string]time.Duration{
	"brief": time.Hour,
	"long":  60 * day,
}}

// atOnce deletes runs that are over.
var atOnce = Retention{Completed: time.Microsecond, Failed: time.Microsecond}

// everything is a walk over all IDs.
var everything = Range{End: uuid.Max}

// madeAgo gives the run an ID that a client made so long ago.
func madeAgo(d time.Duration) func(*NewRun) {
	return func(r *NewRun) {
		id := pg.IDAt(time.Now().Add(-d))
		copy(r.RunID[:6], id[:6])
	}
}

// old starts a run and makes it one that got its status so long ago.
func old(t *testing.T, s *Store, status string, ago time.Duration, change ...func(*NewRun)) uuid.UUID {
	t.Helper()
	id := start(t, s, newRun(append(change, madeAgo(ago))...))[0]
	exec(t, s.pool, `
		UPDATE kagzi.workflow_runs
		SET status = $2, available_at = CASE WHEN $2 IN ('PENDING', 'SLEEPING', 'RUNNING') THEN now() END,
			lease = gen_random_uuid(), locked_by = CASE WHEN $2 = 'RUNNING' THEN gen_random_uuid() END,
			finished_at = CASE WHEN $2 IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN now() - $3::interval END,
				error_kind = 'error'
		WHERE run_id = $1 AND namespace_id = $4`, id, status, ago, s.namespace)
	return id
}

// withRows gives a run n steps, a signal and an event.
func withRows(t *testing.T, s *Store, id uuid.UUID, n int) uuid.UUID {
	t.Helper()
	exec(t, s.pool, `
		INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
			first_attempt, output, finished_at)
		SELECT $1, 'step-' || (g + 1) / 2, 1 + (g + 1) % 2, $2, CASE WHEN g % 2 = 0 THEN 'COMPLETED' ELSE 'FAILED' END,
			'FUNCTION', 1, 1, '1', now() - interval '1 year'
		FROM generate_series(1, $3::int) AS g`, id, s.namespace, n)
	exec(t, s.pool, `INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		VALUES ($1, 'signal', 1, $2, 'id')`, id, s.namespace)
	exec(t, s.pool, `INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event)
		VALUES ($1, gen_random_uuid(), $2, 'RESUMED')`, id, s.namespace)
	return id
}

// rowsOf counts the rows of a run: its own, steps, signals and events.
func rowsOf(t *testing.T, s *Store, id uuid.UUID) string {
	t.Helper()
	return one[string](t, s.pool, `
		SELECT concat_ws(' ', (SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND namespace_id = $2),
			(SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND namespace_id = $2),
			(SELECT count(*) FROM kagzi.signals WHERE run_id = $1 AND namespace_id = $2),
			(SELECT count(*) FROM kagzi.run_events WHERE run_id = $1 AND namespace_id = $2))`, id, s.namespace)
}

func prune(t *testing.T, s *Store, keep Retention, rows int, ids ...uuid.UUID) Pruned {
	t.Helper()
	out, err := s.Deletions.Prune(t.Context(), keep, ids, rows)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every status and age: the delete takes the runs that the scan finds.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := open(t)
	var all, want []uuid.UUID
	for _, status := range []string{Pending, Running, Sleeping, Completed, Failed, Cancelled} {
		for _, typ := range []string{"type", "brief", "long"} {
			for _, ago := range []time.Duration{
				time.Minute, 2 * time.Hour, 7*day - time.Minute, 7*day + time.Minute,
				30*day - time.Minute, 30*day + time.Minute, 59 * day, 61 * day,
			} {
				id := withRows(t, s, old(t, s, status, ago, ofType(typ)), 2)
				all = append(all, id)
				over := status == Completed || status == Failed || status == Cancelled
				keep := map[string]time.Duration{"brief": time.Hour, "long": 60 * day}[typ]
				if keep == 0 && status == Completed {
					keep = 7 * day
				} else if keep == 0 {
					keep = 30 * day
				}
				if over && ago > keep {
					want = append(want, id)
				}
			}
		}
	}
	// Another namespace has runs of the same IDs.
	for _, table := range []string{"workflow_runs", "step_runs", "signals", "run_events"} {
		exec(t, s.pool, `CREATE TEMP TABLE copy AS SELECT * FROM kagzi.`+table+`; UPDATE copy
			SET namespace_id = 'other';
			INSERT INTO kagzi.`+table+` SELECT * FROM copy; DROP TABLE copy`)
	}
	got, left, err := s.Deletions.Expired(t.Context(), keepDays, everything, 1000, time.Minute)
	slices.SortFunc(want, compareIDs)
	if err != nil || left != nil || !slices.Equal(got, want) {
		t.Errorf("found %d runs, want %d; left %v, error %v", len(got), len(want), left, err)
	}
	// The delete does not rely on the scan.
	if p := prune(t, s, keepDays, 1000, all...); p.Deleted != len(want) || p.Left != nil || p.Long != nil ||
		p.Elsewhere {
		t.Errorf("pruned %+v, want %d", p, len(want))
	}
	for _, id := range all {
		rows := "1 2 1 1"
		if slices.Contains(want, id) {
			rows = "0 0 0 0"
		}
		if got := rowsOf(t, s, id); got != rows {
			t.Errorf("run %v: rows %s, want %s", id, got, rows)
		}
		if got := rowsOf(t, New(s.pool, "other"), id); got != "1 2 1 1" {
			t.Errorf("run %v: rows %s in another namespace", id, got)
		}
	}
}

// A walk in small steps visits each run once, whatever its ID.
func TestWalk(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	ranges, workers, err := s.Deletions.RetentionRanges(t.Context(), 7*day)
	if err != nil || workers != 1 || len(ranges) != 2 {
		t.Fatalf("ranges %v, %d workers, error %v", ranges, workers, err)
	}
	if err := s.Workers.Stopped(t.Context(), s.pool, w.ID, Counts{}); err != nil {
		t.Fatal(err)
	}
	if _, workers, _ = s.Deletions.RetentionRanges(t.Context(), 7*day); workers != 0 {
		t.Errorf("%d workers", workers)
	}
	named := func(text string) func(*NewRun) {
		return func(r *NewRun) { r.RunID = uuid.MustParse(text) }
	}
	want := []uuid.UUID{
		old(t, s, Completed, 9*day),
		old(t, s, Completed, 8*day),
		old(t, s, Completed, 7*day+time.Minute),
	}
	old(t, s, Sleeping, 10*day)
	old(t, s, Completed, 6*day)
	// no clock's, and one that is ahead
	for _, id := range []string{"ffffffff-0000-5000-8000-000000000001", "7fffffff-ffff-7000-8000-000000000001"} {
		run := start(t, s, newRun(named(id)))[0]
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL,
			finished_at = now() - interval '8 days' WHERE run_id = $1`, run)
		want = append(want, run)
	}
	slices.SortFunc(want, compareIDs)
	for _, n := range []int{1, 2, 3, 100} {
		var got []uuid.UUID
		for _, r := range ranges {
			for left := &r; left != nil; {
				var found []uuid.UUID
				if found, left, err = s.Deletions.Expired(t.Context(), keepDays, *left, n, time.Minute); err != nil {
					t.Fatal(err)
				}
				got = append(got, found...)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in steps of %d: found %v, want %v", n, got, want)
		}
	}
}

// What the planner knows divides the key into parts of about as many runs each, of whichever namespace they are.
func TestKeyStatistics(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the statistics are those of the nodes")
	s := open(t, dbtest.Unchecked())
	check := func(namespace string, least, most float64) (bounds []uuid.UUID) {
		t.Helper()
		share, bounds, err := New(s.pool, namespace).Deletions.KeyStatistics(t.Context())
		if err != nil || share < least || share > most || !slices.IsSortedFunc(bounds, compareIDs) {
			t.Errorf("share %v of %s, want one from %v to %v; bounds %v, error %v", share, namespace, least, most,
				bounds, err)
		}
		return bounds
	}
	if bounds := check("test", 1, 1); len(bounds) > 0 {
		t.Errorf("bounds of a table that was never analyzed: %v", bounds)
	}
	exec(t, s.pool, plans.LoadRuns, 20_000)
	exec(t, s.pool, `ANALYZE kagzi.workflow_runs`)
	check("test", 1, 1)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs
		SET namespace_id = 'tenant-' || get_byte(decode(md5(run_id::text), 'hex'), 0) % 8 WHERE status = 'SLEEPING'`)
	exec(t, s.pool, `ANALYZE kagzi.workflow_runs`)
	check("test", 0.4, 0.6)
	check("nobody", 0, 0.001)
	bounds := check("tenant-7", 0.04, 0.09)
	if len(bounds) < 50 {
		t.Fatalf("%d bounds", len(bounds))
	}
	for i := range bounds[1:] {
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_id > $1 AND run_id <= $2`,
			bounds[i], bounds[i+1]); n > 20_000/len(bounds)*3 {
			t.Errorf("%d runs in part %d of %d", n, i, len(bounds))
		}
	}
}

// A scan that takes too long is cancelled, and one of a locked table sooner.
func TestLookIsCutOff(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the time is too short for one server with many rows, and not for several with fewer")
	s := open(t, dbtest.Unchecked())
	exec(t, s.pool, plans.LoadRuns, campaign.Size(100_000, 300_000))
	other := New(s.pool, "other")
	_, _, err := other.Deletions.Expired(t.Context(), keepDays, everything, 1000, 2*time.Millisecond)
	wantError(t, err, ErrTooLong)
	if _, left, err := other.Deletions.Expired(t.Context(), keepDays, everything, 1000, time.Minute); err != nil ||
		left != nil {
		t.Errorf("left %v, error %v", left, err)
	}
	// A connection that has scanned before meets the lock in the scan, and not in its preparation.
	one := New(poolWith(t, s.pool.Config().ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 }), "test")
	scan := func(most time.Duration) error {
		_, _, err := one.Deletions.Expired(t.Context(), keepDays, everything, 1000, most)
		return err
	}
	if err := scan(time.Minute); err != nil {
		t.Error(err)
	}
	tx := begin(t, s)
	exec(t, tx, `LOCK kagzi.workflow_runs`)
	if err := scan(4 * time.Second); !pg.Locked(err) {
		t.Errorf("error %v", err)
	}
}

func TestPruneKeepsChildren(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{Running, Sleeping, Pending, Completed, Failed, Cancelled} {
		t.Run(parent, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			// The parent is not past its retention, the child is.
			p := old(t, s, parent, 40*day, ofType("long"))
			c := old(t, s, Completed, 39*day, withParent(p))
			if got := prune(t, s, keepDays, 100, c); got.Deleted != 0 || rowsOf(t, s, c) != "1 0 0 0" {
				t.Errorf("pruned %+v", got)
			}
			// Once it is gone, it keeps no run. A child that stands beside its parent follows it the next time.
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET workflow_type = 'type', status = 'COMPLETED',
				available_at = NULL, locked_by = NULL, finished_at = now() - interval '40 days' WHERE run_id = $1`, p)
			if got := prune(t, s, keepDays, 100, p, c); got.Deleted != 1 || rowsOf(t, s, p) != "0 0 0 0" {
				t.Errorf("pruned %+v", got)
			}
			if got := prune(t, s, keepDays, 100, c); got.Deleted != 1 {
				t.Errorf("pruned %+v", got)
			}
		})
	}
	t.Run("OfAnotherNamespace", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		other := New(s.pool, "other")
		c := old(t, s, Completed, 40*day, withParent(old(t, other, Running, 40*day)))
		if got := prune(t, s, keepDays, 100, c); got.Deleted != 1 {
			t.Errorf("pruned %+v", got)
		}
	})
}

// What an operator does meanwhile counts.
func TestPruneMeetsResume(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := withRows(t, s, old(t, s, Failed, 40*day), 2), withRows(t, s, old(t, s, Failed, 40*day), 2)
	tx := begin(t, s)
	if _, err := s.Runs.Resume(t.Context(), tx, a, Why{}); err != nil {
		t.Fatal(err)
	}
	if got := prune(t, s, keepDays, 100, a, b); got.Deleted != 1 {
		t.Errorf("pruned %+v beside a lock", got)
	}
	commit(t, tx)
	if got := prune(t, s, keepDays, 100, a, b); got.Deleted != 0 || rowsOf(t, s, a) != "1 2 1 3" { // two events are new
		t.Errorf("pruned %+v after a resume", got)
	}
	_, err := s.Runs.Resume(t.Context(), nil, b, Why{})
	wantError(t, err, ErrRunNotFound)
}

func TestPruneInSeveralTransactions(t *testing.T) {
	t.Parallel()
	s := open(t)
	long := func() uuid.UUID { return withRows(t, s, old(t, s, Failed, 40*day), 10) } // and a signal
	short := func() uuid.UUID { return withRows(t, s, old(t, s, Failed, 40*day), 2) }
	a, b, c, d := short(), short(), short(), short()
	if got := prune(t, s, keepDays, 7, a, b, c, d); got.Deleted != 2 || !slices.Equal(got.Left, []uuid.UUID{c, d}) ||
		got.Long != nil {
		t.Errorf("pruned %+v", got)
	}
	if got := prune(t, s, keepDays, 7, c, d); got.Deleted != 2 {
		t.Errorf("pruned %+v", got)
	}

	id := long()
	// One that was not marked keeps its steps.
	if n, err := s.Deletions.PruneSteps(t.Context(), id, 100); n != 0 || err != nil {
		t.Errorf("deleted %d steps, error %v", n, err)
	}
	behind := short()
	if got := prune(t, s, keepDays, 10, id, behind); got.Deleted != 0 || !slices.Equal(got.Long, []uuid.UUID{id}) ||
		!slices.Equal(got.Left, []uuid.UUID{behind}) {
		t.Errorf("pruned %+v", got)
	}
	if n, err := s.Deletions.PruneSteps(t.Context(), id, 3); n != 4 || err != nil || rowsOf(t, s, id) != "1 7 0 1" {
		t.Errorf("deleted %d rows, error %v, left %s", n, err, rowsOf(t, s, id))
	}
	// The process dies here. The run cannot be resumed: it would execute the first steps again.
	_, err := s.Runs.Resume(t.Context(), nil, id, Why{})
	wantError(t, err, ErrRunNotFound)
	wantError(t, cancelled(s.Runs.Cancel(t.Context(), nil, id, Why{}, 0)), ErrRunNotFound)
	if row := readRow(t, s.pool, id); row.Status != Failed || *row.WaitingOn != "deletion" {
		t.Errorf("row %+v", row)
	}
	// Another process finds it, and goes on.
	found, _, err := s.Deletions.Expired(t.Context(), keepDays, everything, 100, time.Minute)
	if err != nil || !slices.Contains(found, id) {
		t.Errorf("found %v, error %v", found, err)
	}
	for _, want := range []int{3, 3, 1, 0} {
		if n, err := s.Deletions.PruneSteps(t.Context(), id, 3); n != want || err != nil {
			t.Errorf("deleted %d steps, want %d, error %v", n, want, err)
		}
	}
	if got := prune(t, s, keepDays, 10, id, behind); got.Deleted != 2 {
		t.Errorf("pruned %+v", got)
	}
}

// Two coordinators do not do the same work; a lock on the table is not waited for.
func TestPruneElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the lock is one of the node with the rows, which the test does not know")
	s := open(t)
	id := old(t, s, Completed, 40*day)
	tx := begin(t, s)
	exec(t, tx, `SELECT pg_advisory_xact_lock(hashtextextended('kagzi prune test', 0))`)
	if got := prune(t, s, keepDays, 100, id); !got.Elsewhere || got.Deleted != 0 {
		t.Errorf("pruned %+v", got)
	}
	other := New(s.pool, "other")
	if got := prune(t, other, keepDays, 100, id); got.Elsewhere {
		t.Error("kept from it by another namespace's coordinator")
	}
	commit(t, tx)
	tx = begin(t, s)
	exec(t, tx, `LOCK kagzi.signals`)
	if _, err := s.Deletions.Prune(t.Context(), keepDays, []uuid.UUID{id}, 100); !pg.Locked(err) {
		t.Errorf("error %v", err)
	}
	commit(t, tx)
	if got := prune(t, s, keepDays, 100, id); got.Deleted != 1 {
		t.Errorf("pruned %+v", got)
	}
}

// The audit sees the rows that runs of all kinds leave behind, and nothing that it forbids.
func TestPruneIsAudited(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	parent := running(t, s, 1)[0]
	start(t, s, newRun(withParent(parent.RunID)))
	child := claim(t, s, request(1)).Runs[0]
	long := running(t, s, 1)[0]
	f := &Flush{
		Records:  []*Record{record(parent, "step", "x"), record(child, "step", "x")},
		Finishes: []*Finish{finish(child), finish(long)},
	}
	for i := range 20 {
		f.Records = append(f.Records, record(long, fmt.Sprint("step-", i), "x"))
	}
	flush(t, s, f)
	ids := []uuid.UUID{parent.RunID, child.RunID, long.RunID}
	slices.SortFunc(ids, compareIDs)
	for {
		p := prune(t, s, atOnce, 10, ids...)
		if len(p.Long) == 0 {
			break
		}
		if _, err := s.Deletions.PruneSteps(t.Context(), long.RunID, 10); err != nil {
			t.Fatal(err)
		}
	}
	if rowsOf(t, s, long.RunID) != "0 0 0 0" || rowsOf(t, s, child.RunID) != "1 1 0 0" {
		t.Error("the long run, or the child of a live one")
	}
	flush(t, s, &Flush{Finishes: []*Finish{finish(parent)}})
	for range 2 {
		prune(t, s, atOnce, 10, ids...)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("%d runs are left", n)
	}
}
