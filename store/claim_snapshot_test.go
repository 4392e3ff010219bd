package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

func since(c Claim) func(*ClaimRequest) { return func(r *ClaimRequest) { r.Since = c.Reached } }

// A claim that begins where another got to reads none of the dead entries before: those of runs that were due and were
// claimed since another transaction has held a snapshot, and those of leases of runs that have ended. The test counts
// reads, not time.
func TestClaimLeavesDeadEntriesOut(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	old := begin(t, s)
	exec(t, old, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	exec(t, old, `SELECT count(*) FROM kagzi.workflow_runs`)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue', 'type', 'PENDING', now() - interval '1 minute' + g * interval '1 ms'
			FROM generate_series(1, 10000) AS g`)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING',
		available_at = available_at + interval '5 minutes'`)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL`)
	searched := claim(t, s, request(5))
	if len(searched.Runs) != 0 || len(searched.Reached) != 4 {
		t.Fatalf("INVALID: claimed %d runs, reached %v", len(searched.Runs), searched.Reached)
	}
	read := func(change ...func(*ClaimRequest)) int {
		tx := begin(t, s)
		defer rollback(t, tx)
		exec(t, tx, pg.Prologue, pg.Relaxed.PrologueArgs(t.Context())...)
		exec(t, tx, `SET LOCAL statement_timeout = 0`) // the machine may be slow
		return plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, claimRuns,
			s.Claims.claimArgs(request(5, change...))...).Buffers()
	}
	soon := func(r *ClaimRequest) { r.Ahead = 5 * time.Second }
	late := func(r *ClaimRequest) { r.Ahead = time.Hour }
	start(t, s, newRun())
	if n := read(since(searched), soon); n > 100 {
		t.Errorf("a claim with Since read %d buffers", n)
	}
	for name, change := range map[string][]func(*ClaimRequest){
		"without Since":        {soon},
		"that looks far ahead": {since(searched), late},
	} {
		if n := read(change...); n < 200 {
			t.Errorf("INVALID: a claim %s read %d buffers only", name, n)
		}
	}
}

// Reached is the place of the last row if a claim takes as many as it asked for, and about now if it has searched all.
// The next claim goes on from there, and misses only a run that appears before.
func TestClaimGoesOnFromWhereOneGotTo(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, many(5)...)
	at := func(id uuid.UUID, ago string) {
		t.Helper()
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - $2::interval WHERE run_id = $1`, id, ago)
	}
	for i, ago := range []string{"50 min", "40 min", "30 min", "20 min", "0 s"} {
		at(ids[i], ago)
	}
	high := start(t, s, newRun(withPriority(2)))
	take := func(n int, from Claim, want ...uuid.UUID) Claim {
		t.Helper()
		c := claim(t, s, request(n, since(from)))
		var got []uuid.UUID
		for _, r := range c.Runs {
			got = append(got, r.RunID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("claimed %v, want %v of %v", got, want, ids)
		}
		return c
	}
	reached := func(c Claim, want ...time.Duration) { // how long before now, by priority
		t.Helper()
		if len(c.Reached) != len(want) {
			t.Errorf("reached %v, want %d pairs", c.Reached, len(want))
		}
		for i, ago := range want {
			got := c.Now.Sub(c.Reached[Pair{"type", int16(i + 1)}])
			if got < ago || got > ago+time.Minute || ago == LateCommit && got != ago {
				t.Errorf("reached %v ago in priority %d, want %v", got, i+1, ago)
			}
		}
	}
	missed := func(c Claim, want map[Pair]uuid.UUID) {
		t.Helper()
		got, err := s.Claims.Missed(t.Context(), request(1, since(c)))
		if err != nil || len(got) != len(want) {
			t.Fatalf("missed %v, %v; want %v", got, err, want)
		}
		for pair, id := range want {
			if due := one[time.Time](t, s.pool, `SELECT available_at FROM kagzi.workflow_runs WHERE run_id = $1`,
				id); !got[pair].Equal(due) {
				t.Errorf("missed runs since %v in %v, want %v", got[pair], pair, due)
			}
		}
	}
	c := take(3, Claim{}, high[0], ids[0], ids[1])
	reached(c, LateCommit, LateCommit, 40*time.Minute)
	missed(c, nil)
	early := start(t, s, newRun())[0]
	at(early, "45 min")
	missed(c, map[Pair]uuid.UUID{{"type", 3}: early})
	c = take(1, c, ids[2])
	reached(c, LateCommit, LateCommit, 30*time.Minute)
	c = take(5, c, ids[3], ids[4])
	reached(c, LateCommit, LateCommit, LateCommit, LateCommit)
	take(5, c)
	if c = claim(t, s, request(5)); len(c.Runs) != 1 {
		t.Errorf("claimed %d runs without Since, want the one that was missed", len(c.Runs))
	}
}

// A claim that was filled by runs which it set back has not searched the rest.
func TestRunsSetBackCountAsReached(t *testing.T) {
	t.Parallel()
	s := open(t)
	running(t, s, 2)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = 2, recoveries_since = now(),
		available_at = now() - interval '1 hour'`)
	id := start(t, s, newRun())[0]
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 minute' WHERE run_id = $1`, id)
	c := claim(t, s, request(2))
	if got := claimIDs(t, s, request(2, since(c))); !slices.Equal(got, []uuid.UUID{id}) {
		t.Errorf("claimed %v, want %v", got, id)
	}
}

// The input of a run that may kill its workers is read later, when it alone is executed.
func TestClaimBringsNoInputOfASuspect(t *testing.T) {
	t.Parallel()
	s := open(t)
	running(t, s, 2)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', locked_by = NULL, recoveries_since = now(),
		available_at = now() - interval '1 minute'`)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = 2 + (run_id = (SELECT max(run_id::text)::uuid
		FROM kagzi.workflow_runs))::int`)
	c := claim(t, s, request(2))
	if len(c.Runs) != 2 {
		t.Fatalf("claimed %d runs, want 2", len(c.Runs))
	}
	for _, r := range c.Runs {
		if suspect := r.CrashLoopSuspect(); suspect != (r.Recoveries == 3) || suspect != (r.Input == nil) {
			t.Errorf("recoveries %d: suspect %t, input %q", r.Recoveries, suspect, r.Input)
		}
	}
}

// The runs of one call are due one after the other, in its order, whatever their IDs are, and none of them too early.
func TestRunsOfACallAreDueInItsOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := []NewRun{
		newRun(withID("z")), newRun(withID("m"), withTimeout(time.Hour)), newRun(withID("a")), newRun(),
		newRun(withID("b"), withDelay(time.Minute)),
	}
	ids := start(t, s, runs...)
	if got := claimIDs(t, s, request(10)); !slices.Equal(got, ids[:4]) {
		t.Errorf("claimed %v, want %v", got, ids[:4])
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1
		AND deadline_at = created_at + interval '1 hour 1 microsecond'`, ids[1]); n != 1 {
		t.Error("the deadline does not count from when the run was due")
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1
		AND available_at = created_at + interval '1 minute 4 microseconds'`, ids[4]); n != 1 {
		t.Error("the Delay does not count from when the others are due")
	}
}
