package engine_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// newSessionOf returns a session that polls once an hour, and its workflow, which returns 1.
func newSessionOf(t *testing.T, c *kagzi.Client) (*engine.HeldSession, kagzi.Workflow[int, int]) {
	t.Helper()
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: time.Hour})
	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) { return 1, nil })
	s, err := engine.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	return s, wf
}

// TestFullClaimFindsWhatOthersMiss makes a run due long ago, as if its start were committed only now: a claim that is
// no full claim misses it and comes again, and the next full claim finds it. A clock that is set back is found in the
// same way.
func TestFullClaimFindsWhatOthersMiss(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(*testing.T, *dbtest.DB, *engine.HeldSession){
		"a late commit": func(t *testing.T, db *dbtest.DB, _ *engine.HeldSession) {
			dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour'`)
		},
		"a clock set back": func(_ *testing.T, _ *dbtest.DB, s *engine.HeldSession) { s.Reached(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			s, wf := newSessionOf(t, c)
			if pause := s.Claim(t.Context(), 10); pause != time.Hour {
				t.Errorf("pause %v after a full claim, want the poll interval", pause)
			}
			runs := kit.StartRuns(t, c, wf, 1)
			happens(t, db, s)
			s.LastFullClaim(20*time.Millisecond, -time.Minute)
			if pause := s.Claim(t.Context(), 10); s.Executes() || pause > time.Minute+180*time.Millisecond {
				t.Fatalf("INVALID: executes %t, pause %v; want the next full claim 180 ms after the last, which is in "+
					"a minute", s.Executes(), pause)
			}
			s.LastFullClaim(0, 0)
			s.Claim(t.Context(), 10)
			s.Flush(await.Receive(t, s.Come))
			kit.CheckResults(t, runs, func(int) int { return 1 })
			s.LastFullClaim(20*time.Millisecond, -time.Minute)
			next := kit.StartRuns(t, c, wf, 1)
			s.Claim(t.Context(), 10) // from where the full claim got to
			s.Flush(await.Receive(t, s.Come))
			kit.CheckResults(t, next, func(int) int { return 1 })
		})
	}
}

// TestRewind: once full claims take long, no claim is full. A rewind finds the runs that they miss, in a
// session that has claimed before, and in a new one.
func TestRewind(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]bool{"Claimed": true, "New": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			s, wf := newSessionOf(t, c)
			if claims {
				s.Claim(t.Context(), 10)
			} else {
				s.Hear()
			}
			runs := kit.StartRuns(t, c, wf, 1)
			dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour'`)
			s.LastFullClaim(time.Minute, time.Hour)
			if pause := s.Claim(t.Context(), 10); s.Executes() || pause > time.Second {
				t.Fatalf("executes %t, pause %v; want a claim without the run, and the next in a second",
					s.Executes(), pause)
			}
			if !s.Rewinds() || !s.Woken() {
				t.Fatal("no rewind has woken the claim loop")
			}
			s.Claim(t.Context(), 10)
			s.Flush(await.Receive(t, s.Come))
			kit.CheckResults(t, runs, func(int) int { return 1 })
			if s.Claim(t.Context(), 10); s.Rewinds() {
				t.Error("a rewind follows at once, want a rest")
			}
		})
	}
}

// TestClaimAfterALostAnswer loses the answer to a claim. Resolve finds the run, but not when the next one is due,
// so the worker claims again at once.
func TestClaimAfterALostAnswer(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(4)))
	s, wf := newSessionOf(t, c)
	runs := kit.StartRuns(t, c, wf, 1)
	drop := proxy.DropAck(pgproxy.Contains("limits AS MATERIALIZED"))
	pause := s.Claim(t.Context(), 10)
	await.Receive(t, drop.Done())
	if pause != 0 {
		t.Errorf("pause %v after a claim whose answer was lost", pause)
	}
	s.Flush(await.Receive(t, s.Come))
	kit.CheckResults(t, runs, func(int) int { return 1 })
	if pause := s.Claim(t.Context(), 10); pause != time.Hour {
		t.Errorf("pause %v: the claim after it was no full claim", pause)
	}
}
