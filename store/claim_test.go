package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
	"github.com/kagzi/kagzi/waits"
)

func lowFirst(r *ClaimRequest) { r.LowFirst = true }

func noSuspect(r *ClaimRequest) { r.Suspects.Below = SuspectRecoveries }

func types(h ...WorkflowVersions) func(*ClaimRequest) { return func(r *ClaimRequest) { r.Types = h } }

func TestClaim(t *testing.T) {
	t.Parallel()

	t.Run("OnlyDueRuns", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun(withDelay(time.Hour)),
			newRun(func(r *NewRun) { r.At = time.Now().Add(2 * time.Hour) }),
			newRun(func(r *NewRun) { r.At = time.Now().Add(-time.Hour) }),
			newRun(func(r *NewRun) { r.Queue = "other" }), newRun(ofType("other")))
		got := claimIDs(t, s, request(10))
		slices.SortFunc(got, compareIDs)
		if want := []uuid.UUID{ids[0], ids[3]}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v of %v", got, want, ids)
		}
		if got := claimIDs(t, s, request(10)); got != nil {
			t.Errorf("claimed %v again", got)
		}
	})

	t.Run("RowOfAClaimedRun", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parent := uuid.Must(uuid.NewV7())
		ids := start(t, s, newRun(withID("id"), withParent(parent), withTimeout(time.Hour), func(r *NewRun) {
			r.RetryPolicy = json.RawMessage(`{"a": 1}`)
		}))
		req := request(1)
		before := time.Now()
		r := claim(t, s, req).Runs[0]
		checkTerm(t, r.Term, before, time.Minute)
		r.Term = Term{}
		r.DueAt = time.Time{}
		want := ClaimedRun{
			Spec: Spec{
				Queue: req.Queue, Type: "type", Version: 1, RetryPolicy: json.RawMessage(`{"a": 1}`),
			},
			RunID: ids[0], Lease: leaseOf(req.Lease, leaseStarts|leaseVersions),
			ExternalID: "id", ParentRunID: parent, Fresh: true,
			Input: []byte("input"), DeadlineAt: r.DeadlineAt,
			CreatedAt: r.CreatedAt, StartedAt: r.StartedAt,
		}
		if fmt.Sprintf("%+v", *r) != fmt.Sprintf("%+v", want) || r.CreatedAt.IsZero() ||
			r.StartedAt.Before(r.CreatedAt) || r.DeadlineAt.IsZero() {
			t.Errorf("claimed %+v, want %+v", *r, want)
		}
		row := readRow(t, s.pool, ids[0])
		if row.Status != Running || *row.Lease != r.Lease || *row.LockedBy != req.Worker || *row.Version != 1 ||
			row.In < 50 || row.In > 60 {
			t.Errorf("row %+v", row)
		}
	})

	t.Run("LeavesInputsOut", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun())
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET load_failures = 1 WHERE run_id = $1`, ids[0])
		brought := func(c Claim) map[uuid.UUID]string {
			out := map[uuid.UUID]string{}
			for _, r := range c.Runs {
				out[r.RunID] = string(r.Input)
			}
			return out
		}
		req := request(5)
		if got, want := brought(claim(t, s, req)),
			(map[uuid.UUID]string{ids[0]: "", ids[1]: "input"}); !maps.Equal(got, want) {
			t.Errorf("claimed %v, want %v: the input of a run that could not be read before is left out", got, want)
		}
		none := map[uuid.UUID]string{ids[0]: "", ids[1]: ""}
		if under, err := s.Claims.Resolve(t.Context(), req); err != nil || !maps.Equal(brought(under), none) {
			t.Errorf("found %v, %v, want none of the inputs", brought(under), err)
		}
		expire(t, s, ids[0])
		expire(t, s, ids[1])
		if got := brought(claim(t, s, request(5, func(r *ClaimRequest) { r.NoInputs = true }))); !maps.Equal(got,
			none) {
			t.Errorf("claimed %v, want none of the inputs", got)
		}
		for most, want := range map[int64]string{NoLimit: "input", 5: "input", 4: ""} {
			got, err := s.Histories.Load(t.Context(),
				LoadRequest{Runs: ids, Inputs: ids[1:], Most: most, Timeout: time.Minute})
			if err != nil || len(got.Inputs) != 1 || string(got.Inputs[ids[1]]) != want ||
				got.More[ids[1]] != (want == "") {
				t.Errorf("up to %d bytes: %q, more %v, error %v", most, got.Inputs, got.More, err)
			}
		}
	})

	t.Run("PriorityOrder", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		var ids []uuid.UUID // by priority 1 to 4
		for p := 4; p >= 1; p-- {
			for _, typ := range []string{"a", "b"} {
				ids = slices.Concat(start(t, s, newRun(ofType(typ), withPriority(p))), ids)
			}
		}
		a, b := WorkflowVersions{"a", []int{1}, 1}, WorkflowVersions{"b", []int{1}, 1}
		for i, req := range []ClaimRequest{
			request(2, types(a, b)), request(2, types(b, a)),
			request(2, types(a, b), lowFirst), request(2, types(b, a), lowFirst),
		} {
			want := [][]uuid.UUID{ids[0:2], ids[2:4], ids[6:8], ids[4:6]}[i]
			got := claimIDs(t, s, req)
			slices.SortFunc(got, compareIDs)
			slices.SortFunc(want, compareIDs)
			if !slices.Equal(got, want) {
				t.Errorf("claim %d took %v, want %v of %v", i, got, want, ids)
			}
		}
	})

	t.Run("OldestFirstWithinAPriority", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun(), newRun())
		for i, hours := range []int{1, 3, 2} {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - $2 * interval '1 hour'
				WHERE run_id = $1`, ids[i], hours)
		}
		for i, want := range []int{1, 2, 0} {
			if got := claimIDs(t, s, request(1)); !slices.Equal(got, ids[want:want+1]) {
				t.Errorf("claim %d took %v, want %v", i, got, ids[want])
			}
		}
	})

	t.Run("Versions", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun(ofVersion(1)), newRun(ofVersion(2)), newRun(ofVersion(3)))
		got := map[uuid.UUID]int{}
		for _, r := range claim(t, s, request(10, types(WorkflowVersions{"type", []int{1, 3}, 3}))).Runs {
			got[r.RunID] = r.Version
		}
		if want := map[uuid.UUID]int{ids[0]: 3, ids[1]: 1, ids[3]: 3}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		if row := readRow(t, s.pool, ids[2]); row.Status != Pending || row.Lease != nil {
			t.Errorf("the run of a version without a handler: %+v", row)
		}
		// A run keeps its version: a newer worker that takes it over does not change it.
		expire(t, s, ids[0])
		if r := claim(t, s, request(10, types(WorkflowVersions{"type", []int{3, 4}, 4}))).Runs; len(r) != 1 ||
			r[0].Version != 3 {
			t.Errorf("taken over as %+v, want version 3", r)
		}
	})

	t.Run("Next", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		if c := claim(t, s, request(1)); !c.Next.IsZero() || c.Now.IsZero() {
			t.Errorf("an empty queue: %+v", c)
		}
		ids := start(t, s, newRun(withDelay(time.Hour)), newRun(withDelay(2*time.Hour), withPriority(1)), newRun())
		running := claim(t, s, request(1))
		if len(running.Runs) != 1 || running.Runs[0].RunID != ids[2] || !running.Next.IsZero() {
			t.Errorf("as many as asked: %+v", running)
		}
		c := claim(t, s, request(1)) // the end of the running run's lease comes next
		if d := c.Next.Sub(c.Now); d <= 0 || d > time.Minute {
			t.Errorf("next in %v, want the end of the lease within a minute", d)
		}
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(running.Runs[0], -1)}}) // waits for no time
		c = claim(t, s, request(1))
		if d := c.Next.Sub(c.Now); d < 59*time.Minute || d > time.Hour {
			t.Errorf("next in %v, want an hour", d)
		}
		exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE available_at < 'infinity'`)
		if c := claim(t, s, request(1)); !c.Next.IsZero() {
			t.Errorf("next at %v for a run that waits for no time", c.Next)
		}
	})

	t.Run("NeverMoreThanAskedAndOnce", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		const runs, workers = 400, 8
		start(t, s, many(runs/2)...)
		start(t, s, many(runs/2, withPriority(1), ofType("other"))...)
		var mu sync.Mutex
		taken := map[uuid.UUID]int{}
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				misses := 0
				for misses < 3 { // a claim skips a row that another claim has locked
					c, err := s.Claims.Claim(t.Context(), request(7, types(WorkflowVersions{"type", []int{1}, 1},
						WorkflowVersions{"other", []int{1}, 1})))
					if pg.Locked(err) { // it took nothing; a server that is slow to commit keeps others waiting
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if len(c.Runs) > 7 {
						t.Errorf("%d runs, asked for 7", len(c.Runs))
					}
					if len(c.Runs) == 0 {
						misses++
					}
					mu.Lock()
					for _, r := range c.Runs {
						taken[r.RunID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(taken) != runs {
			t.Errorf("%d runs claimed, want %d", len(taken), runs)
		}
		for id, n := range taken {
			if n != 1 {
				t.Errorf("run %v claimed %d times", id, n)
			}
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE recoveries > 0`); n > 0 {
			t.Errorf("%d runs count a recovery", n)
		}
	})

	t.Run("Namespaces", func(t *testing.T) {
		t.Parallel()
		a := open(t)
		b := New(a.pool, "other")
		ids := start(t, a, newRun(withID("id"), withDelay(time.Hour)))
		start(t, b, newRun(withID("id")))
		if c := claim(t, a, request(5)); len(c.Runs) != 0 || c.Next.IsZero() {
			t.Errorf("claimed %v of another namespace", c.Runs)
		}
		if c := claim(t, b, request(5)); len(c.Runs) != 1 || c.Runs[0].RunID == ids[0] {
			t.Errorf("claimed %v", c.Runs)
		}
		if c := claim(t, a, request(5)); c.Next.Sub(c.Now) < 59*time.Minute {
			t.Errorf("next in %v, the end of a lease of another namespace", c.Next.Sub(c.Now))
		}
	})

	t.Run("WokenBeforeTheFirstClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun())
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET wakeups = wakeups + 1 WHERE run_id = $1`, ids[0])
		r := claim(t, s, request(1)).Runs[0]
		if !r.Fresh || r.Wakeups != 1 {
			t.Errorf("fresh %t with %d wake-ups, want true with 1: its history must be read", r.Fresh, r.Wakeups)
		}
	})
}

func TestClaimDeadline(t *testing.T) {
	t.Parallel()

	t.Run("BoundsEveryWait", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(withTimeout(30*time.Second)))
		r := claim(t, s, request(1, func(r *ClaimRequest) { r.LeaseTimeout = time.Hour })).Runs[0]
		within := func(what string) {
			t.Helper()
			if row := readRow(t, s.pool, ids[0]); row.In > 30 || row.In < 10 {
				t.Errorf("%s: available in %v s, the deadline is in 30 s", what, row.In)
			}
		}
		lease := func(what string) { // its holder has three seconds to end the run
			t.Helper()
			if after := one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - deadline_at)::float8
				FROM kagzi.workflow_runs`); after != 3 {
				t.Errorf("%s: available %v s after the deadline, want 3", what, after)
			}
		}
		lease("claim")
		extend(t, s, time.Hour, r)
		lease("extend")
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, time.Hour)}})
		within("sleep")
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = lease, available_at = now()
			WHERE run_id = $1`, ids[0])
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, -1)}})
		within("sleep without end")
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = lease, available_at = now(),
			recoveries = 19 WHERE run_id = $1`, ids[0])
		claim(t, s, request(1))
		if row := readRow(t, s.pool, ids[0]); row.Status != Pending {
			t.Errorf("a suspect is %s", row.Status)
		}
		within("set back")
	})

	// A worker claims a run past its deadline to end it. If its lease, too, ended at the deadline, the run would be due
	// again while its holder is ending it, and pass from worker to worker.
	t.Run("LeaseAfterTheDeadline", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(withTimeout(time.Hour)))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '2 hours',
			deadline_at = now() - interval '1 hour'`)
		req := request(1)
		c := claim(t, s, req)
		if len(c.Runs) != 1 {
			t.Fatal("a run past its deadline is not claimed")
		}
		if again := claim(t, s, request(1)); len(again.Runs) > 0 {
			t.Error("claimed twice at once")
		}
		before := time.Now()
		under, err := s.Claims.Resolve(t.Context(), req)
		if err != nil || len(under.Runs) != 1 {
			t.Fatalf("found %d runs under the lease, error %v", len(under.Runs), err)
		}
		checkTerm(t, under.Runs[0].Term, before, req.LeaseTimeout)
		// As if the database's clock had been set back.
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = available_at + interval '50 s'`)
		if under, err := s.Claims.Resolve(t.Context(), req); err != nil || len(under.Runs) != 1 {
			t.Errorf("found %d runs under the lease, error %v", len(under.Runs), err)
		}
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() + interval '1 s'`)
		extend(t, s, time.Minute, c.Runs[0])
		if row := readRow(t, s.pool, ids[0]); row.Due || row.In < 50 {
			t.Errorf("extended to %v s from now", row.In)
		}
	})
}

func TestClaimRecoveries(t *testing.T) {
	t.Parallel()

	t.Run("CountFromDeadWorkersOnly", func(t *testing.T) {
		t.Parallel()
		dbtest.NotOnCitus(t, "the test compares the times of two servers")
		s := open(t)
		r := running(t, s, 1)[0]
		if r.Recoveries != 0 {
			t.Errorf("recoveries %d of a fresh run", r.Recoveries)
		}
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, 0)}})
		r = claim(t, s, request(1)).Runs[0]
		if r.Recoveries != 0 || r.Fresh {
			t.Errorf("a run that slept: recoveries %d, fresh %t", r.Recoveries, r.Fresh)
		}
		expire(t, s, r.RunID)
		c := claim(t, s, request(1))
		if len(c.Runs) != 1 || c.Runs[0].Recoveries != 1 || c.Runs[0].CrashLoopSuspect() ||
			!c.Runs[0].RecoveriesSince.Equal(c.Now) || c.Runs[0].Lease == r.Lease {
			t.Fatalf("first recovery: %+v", c.Runs)
		}
		since := c.Runs[0].RecoveriesSince
		r = supersede(t, s, r)
		if r.Recoveries != 2 || !r.RecoveriesSince.Equal(since) {
			t.Errorf("second recovery: %+v, counted since %v", r, since)
		}
		if err := s.Leases.ResetRecoveries(t.Context(), HeldRun{r.RunID, uuid.New()}); err != nil ||
			readRow(t, s.pool, r.RunID).Recoveries != 2 {
			t.Errorf("reset without the lease: %v", err)
		}
		if err := s.Leases.ResetRecoveries(t.Context(), held(r)); err != nil ||
			readRow(t, s.pool, r.RunID).Recoveries != 0 {
			t.Errorf("reset: %v", err)
		}
	})

	t.Run("TheThirdRecoveryWaits", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		dbtest.Audit(t, s.pool)
		r := running(t, s, 1)[0]
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = 2, recoveries_since = now()`)
		expire(t, s, r.RunID)
		c := claim(t, s, request(5))
		row := readRow(t, s.pool, r.RunID)
		if len(c.Runs) != 0 || row.Status != Pending || row.LockedBy != nil || row.Recoveries != 3 ||
			*row.WaitingOn != "recovery" {
			t.Errorf("claimed %v; row %+v", c.Runs, row)
		}
		if d := c.Next.Sub(c.Now); d < 700*time.Millisecond || d > 1250*time.Millisecond {
			t.Errorf("next in %v: the run that was set back is due in about a second", d)
		}
		// The former holder's writes come too late.
		f := &Flush{Finishes: []*Finish{finish(r)}}
		flush(t, s, f)
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Lost)
		f = &Flush{Suspensions: []*Suspension{{
			RunID: r.RunID, Lease: r.Lease, Status: Pending,
			WaitingOn: waits.List{{Kind: waits.Worker}},
		}}}
		flush(t, s, f)
		wantOutcome(t, "suspend", f.Suspensions[0].Outcome, Lost)

		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
		if got := claim(t, s, request(5, noSuspect)).Runs; len(got) != 0 {
			t.Errorf("claimed %v, a suspect", got)
		}
		for _, begins := range []bool{false, true} { // that it was only claimed does not count
			got := claim(t, s, request(5)).Runs
			if len(got) != 1 || got[0].Recoveries != 3 || !got[0].CrashLoopSuspect() {
				t.Fatalf("claimed %v, want a suspect with 3 recoveries", got)
			}
			if err := s.Leases.BeginSuspect(t.Context(), HeldRun{r.RunID, uuid.New()}); err != nil {
				t.Error(err)
			}
			want := 3
			if begins {
				if err := s.Leases.BeginSuspect(t.Context(), held(got[0])); err != nil {
					t.Error(err)
				}
				want = 4
			}
			expire(t, s, r.RunID)
			claim(t, s, request(5))
			if row := readRow(t, s.pool, r.RunID); row.Status != Pending || row.Recoveries != want {
				t.Errorf("begun %t: %d recoveries, %s", begins, row.Recoveries, row.Status)
			}
			expire(t, s, r.RunID)
		}
		claim(t, s, request(5))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now(), recoveries = 7`)
		waits := func(c Claim) time.Duration {
			return one[time.Time](t, s.pool, `SELECT available_at FROM kagzi.workflow_runs WHERE run_id = $1`,
				r.RunID).Sub(c.Now)
		}
		if got := waits(claim(t, s, request(5))); got < 22*time.Second || got > 40*time.Second {
			t.Errorf("the eighth recovery waits %v, want about 32 s", got)
		}
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = lease, available_at = now(),
			recoveries = 1000, suspect_lease = lease`)
		if got := waits(claim(t, s, request(5))); got < 210*time.Second || got > 375*time.Second {
			t.Errorf("the thousandth recovery waits %v, want about 300 s", got)
		}
	})

	// Runs that the claim set back count toward its limit. That must not delay the next claim.
	t.Run("OthersAreStillDue", func(t *testing.T) {
		t.Parallel()
		dbtest.NotOnCitus(t, "the test compares the times of two servers")
		s := open(t)
		running(t, s, 2)
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = 2, recoveries_since = now(),
			available_at = now() - interval '1 hour'`)
		start(t, s, newRun())
		c := claim(t, s, request(2))
		if len(c.Runs) != 0 || c.Next.IsZero() || c.Next.After(c.Now) {
			t.Errorf("claimed %d, next %v after %v: a run is due now", len(c.Runs), c.Next, c.Now)
		}
	})
}

// Claims take each run once even while an old snapshot keeps all dead rows.
func TestClaimBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	s := open(t)
	old := begin(t, s)
	exec(t, old, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	exec(t, old, `SELECT count(*) FROM kagzi.workflow_runs`)
	for range 20 {
		ids := start(t, s, many(20)...)
		c := claim(t, s, request(30))
		if len(c.Runs) != len(ids) {
			t.Fatalf("claimed %d of %d", len(c.Runs), len(ids))
		}
		f := &Flush{}
		for _, r := range c.Runs {
			f.Records = append(f.Records, record(r, "step", "x"))
			f.Finishes = append(f.Finishes, finish(r))
		}
		flush(t, s, f)
		for i := range f.Finishes {
			wantOutcome(t, "record", f.Records[i].Outcome, Done)
			wantOutcome(t, "finish", f.Finishes[i].Outcome, Done)
		}
	}
	if n := one[int](t, old, `SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("the old snapshot shows %d runs", n)
	}
}

// A claim does not read through a backlog for which the worker has no handler. The test counts reads, not time.
func TestClaimBesideAForeignBacklog(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	plans.AsNew(t, s.pool, `kagzi.workflow_runs`)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue', 'foreign', 'PENDING', now() - interval '1 hour'
			FROM generate_series(1, 50000)`)
	start(t, s, many(10)...)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, s.pool, `ANALYZE kagzi.workflow_runs`)
		}
		tx := begin(t, s)
		exec(t, tx, pg.Prologue, pg.Relaxed.PrologueArgs(t.Context())...)
		exec(t, tx, `SET LOCAL statement_timeout = 0`) // the machine may be slow
		plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, claimRuns,
			s.Claims.claimArgs(request(5))...)
		if n := plan.Buffers(); n > 300 {
			t.Errorf("statistics %t: the claim read %d buffers\n%s", analyzed, n, plan.Text)
		}
		if n := plan.MaxRows("workflow_runs"); n > 10 {
			t.Errorf("statistics %t: the claim read %v rows at once\n%s", analyzed, n, plan.Text)
		}
		_ = tx.Rollback(t.Context())
	}
}
