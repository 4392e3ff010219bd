package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// A claim that finds nothing says when the next run is due, also if that was after the claim began.
func TestRunThatBecomesDueDuringAClaim(t *testing.T) {
	t.Parallel()
	s := open(t)
	c := claim(t, s, request(5))
	if len(c.Runs) != 0 || c.Now.IsZero() || !c.Next.IsZero() {
		t.Fatalf("INVALID: claimed %d runs at %v, next at %v", len(c.Runs), c.Now, c.Next)
	}
	id := start(t, s, newRun())[0]
	due := one[time.Time](t, s.pool, `SELECT available_at FROM kagzi.workflow_runs WHERE run_id = $1`, id)
	for _, tt := range []struct {
		began time.Duration // after the run was due
		next  time.Time
	}{{-time.Microsecond, due}, {0, time.Time{}}} {
		c := Claim{Now: due.Add(tt.began)}
		if err := s.Claims.readNext(t.Context(), request(5), &c); err != nil || !c.Next.Equal(tt.next) {
			t.Errorf("began %v after the run was due: next at %v, %v; want %v", tt.began, c.Next, err, tt.next)
		}
		for pair, reached := range c.Reached {
			if !reached.Equal(c.Now.Add(-LateCommit)) {
				t.Errorf("reached %v in %v, want %v before %v", reached, pair, LateCommit, c.Now)
			}
		}
	}
}

// refusedSuspect returns a run that may kill its workers. The database refuses to give it the status.
func refusedSuspect(t *testing.T, s *Store, status string) *ClaimedRun {
	t.Helper()
	held := running(t, s, 1)[0]
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = 2, recoveries_since = now(),
		available_at = now() - interval '1 hour'`)
	exec(t, s.pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
	exec(t, s.pool, fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW
		WHEN (NEW.run_id = '%s' AND NEW.status = '%s') EXECUTE FUNCTION refuse()`, held.RunID, status))
	return held
}

// A run that has to wait, and cannot be set back, keeps no other run from being claimed. It stays as it is.
func TestRunThatCannotBeSetBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	held := refusedSuspect(t, s, "PENDING")
	other := start(t, s, newRun())[0]
	row := func() string {
		return one[string](t, s.pool, `SELECT (status, lease, locked_by, available_at, recoveries)::text
			FROM kagzi.workflow_runs WHERE run_id = $1`, held.RunID)
	}
	before := row()
	c := claim(t, s, request(5))
	if !slices.Equal(runIDs(c.Runs), []uuid.UUID{other}) || !c.Next.Equal(c.Now) {
		t.Errorf("claimed %v, next at %v; want %v, and the next claim at once, at %v", runIDs(c.Runs), c.Next, other,
			c.Now)
	}
	if c, err := s.Claims.Claim(t.Context(), request(5)); err == nil {
		t.Errorf("claimed %v without an error", runIDs(c.Runs))
	}
	if after := row(); after != before {
		t.Errorf("the run was %s, and is %s", before, after)
	}
	exec(t, s.pool, `ALTER TABLE kagzi.workflow_runs DISABLE TRIGGER refuse`)
	claim(t, s, request(5, func(r *ClaimRequest) { r.Since = c.Reached }))
	if got := readRow(t, s.pool, held.RunID).Status; got != "PENDING" {
		t.Errorf("the run is %s, want it to be set back by the next claim", got)
	}
}

// The database refuses what the claim writes to such a run, which is found and left out.
func TestRefusedSuspectIsFound(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"RUNNING", "PENDING"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			held := refusedSuspect(t, s, status)
			req := request(5)
			_, err := s.Claims.Claim(t.Context(), req)
			if err == nil {
				t.Fatal("the claim is not refused")
			}
			found := s.Claims.FindRefused(t.Context(), req, err)
			if len(found) != 1 || found[Claimable{RunID: held.RunID}] == nil {
				t.Errorf("found %v, want the run", found)
			}
			other := start(t, s, newRun())[0]
			req.Without.Runs = []uuid.UUID{held.RunID}
			if c := claim(t, s, req); !slices.Equal(runIDs(c.Runs), []uuid.UUID{other}) {
				t.Errorf("claimed %v, want %v", runIDs(c.Runs), other)
			}
		})
	}
}

// A claim that leaves out suspects takes those that join the group under way: of the runs with as many recoveries those
// whose IDs end in its bits. A search for missed runs finds them, too.
func TestClaimTakesSuspectsThatJoinTheirGroup(t *testing.T) {
	t.Parallel()
	const n, steps = 24, 3
	for name, tt := range map[string]struct {
		request func(n int) ClaimRequest
		limits  QueueLimits
		change  []func(*NewRun)
		strict  bool // the runs are claimed one after the other
	}{
		"plain":   {request: func(n int) ClaimRequest { return request(n) }},
		"limited": {request: keyedRequest, limits: QueueLimits{MaxRunning: n, Held: true}},
		"keys":    {request: keyedRequest, change: []func(*NewRun){ofKey("a")}},
		"groups":  {request: keyedRequest, change: []func(*NewRun){inGroup("a")}, strict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if tt.limits.MaxRunning > 0 {
				mustSetQueue(t, s, tt.limits)
			}
			var runs []NewRun
			for range n {
				runs = append(runs, newRun(tt.change...))
			}
			ids := start(t, s, runs...)
			recoveries := func(i int) int { return SuspectRecoveries + i%steps }
			for i, id := range ids {
				exec(t, s.pool, `UPDATE kagzi.workflow_runs SET recoveries = $1, recoveries_since = now()
					WHERE run_id = $2`, recoveries(i), id)
			}
			for first := range steps {
				req := tt.request(n)
				group := GroupOf(ids[first], recoveries(first))
				req.Suspects = Suspects{SuspectRecoveries, group}
				var want []uuid.UUID
				for i, id := range ids {
					if GroupOf(id, recoveries(i)) == group && (!tt.strict || i == 0) {
						want = append(want, id)
					}
				}
				if name == "plain" {
					req.Since = map[Pair]time.Time{}
					for _, p := range req.Pairs() {
						req.Since[p] = time.Now().Add(time.Hour)
					}
					if missed, err := s.Claims.Missed(t.Context(), req); err != nil || len(missed) != 1 {
						t.Errorf("missed %v, %v; want the runs of the group", missed, err)
					}
					req.Since = nil
				}
				if got := sorted(runIDs(claim(t, s, req).Runs)); !slices.Equal(got, sorted(want)) {
					t.Errorf("%d recoveries: claimed %v, want %v", recoveries(first), got, want)
				}
				if missed, err := s.Claims.Missed(t.Context(), req); err != nil || len(missed) != 0 {
					t.Errorf("missed %v, %v; want none", missed, err)
				}
			}
		})
	}
}
