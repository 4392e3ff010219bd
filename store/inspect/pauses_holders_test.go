package inspect

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// Obstacle names the pause of the key that stops a run which holds its slot.
func TestObstacleOfASlotHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	limitKeys(t, s, 1, true)
	ids := start(t, s, newRun(ofKey("a")))
	r := claim(t, s, keyedRequest(1)).Runs[0]
	flush(t, s,
		&store.Flush{Suspensions: []*store.Suspension{{
			RunID: r.RunID, Lease: r.Lease, Status: store.Pending,
			WaitingOn: waits.List{{Kind: waits.Retry}},
		}}})
	pause(t, s, store.Pause{Queue: "queue", Key: store.Key{Name: "a"}})
	if got := claim(t, s, keyedRequest(1)); len(got.Runs) > 0 {
		t.Errorf("claimed %v", runIDs(got.Runs))
	}
	if o, err := s.Obstacle(t.Context(), ids[0]); err != nil || !o.Paused || o.Pause.Key.Name != "a" {
		t.Errorf("obstacle %+v, %v", o, err)
	}
}

// A run that keeps its slot of a paused key is no due run that workers overlook.
func TestDueWorkOfAPausedKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of    func(*store.NewRun)
		pause store.Pause
	}{
		"Key":   {ofKey("a"), store.Pause{Queue: "queue", Key: store.Key{Name: "a"}, Parks: true}},
		"Group": {inGroup("a"), store.Pause{Key: store.Key{Name: "a", Group: true}, Parks: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			limitKeys(t, s, 1, true)
			start(t, s, newRun(c.of))
			r := claim(t, s, keyedRequest(1)).Runs[0]
			flush(t, s,
				&store.Flush{Suspensions: []*store.Suspension{{
					RunID: r.RunID, Lease: r.Lease, Status: store.Sleeping,
					WaitingOn: waits.List{{Kind: waits.Limit}},
				}}})
			exec(t, s.pool, `INSERT INTO kagzi.limits (limit_name, namespace_id, max_running, next_at)
				VALUES ('limit', $1, 1, now())`, s.namespace)
			exec(t, s.pool, `INSERT INTO kagzi.limit_places (run_id, step_id, namespace_id, limit_name, state,
				asked_at, due_at) VALUES ($2, 'a#1', $1, 'limit', 'CALLED', now() - interval '1 hour',
				now() - interval '1 hour')`, s.namespace, r.RunID)
			for _, paused := range []bool{false, true} {
				if paused {
					pause(t, s, c.pause)
				}
				due, err := s.DueWork(t.Context(), s.pool)
				if err != nil || (len(due) == 0) != paused {
					t.Errorf("paused %t: due work %+v, %v", paused, due, err)
				}
				stuck, err := s.StuckLimits(t.Context(), s.pool, time.Minute)
				if err != nil || (len(stuck) == 0) != paused {
					t.Errorf("paused %t: stuck limits %+v, %v", paused, stuck, err)
				}
				want := "due 1/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 0"
				if paused {
					want = "due 0/false keyed 0 running 0 sleeping 0 delayed 0 more false paused 1"
				}
				if got := countsOf(readStats(t, s), "queue", "type"); got != want {
					t.Errorf("paused %t: %s, want %s", paused, got, want)
				}
			}
		})
	}
}

// A step that no worker takes is seen behind many steps of paused runs.
func TestStuckLimitBehindPausedRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := make([]store.NewRun, 22)
	for i := range runs {
		runs[i] = newRun()
	}
	start(t, s, runs...)
	exec(t, s.pool, `INSERT INTO kagzi.limits (limit_name, namespace_id, max_running, next_at)
		VALUES ('limit', $1, 1, now())`, s.namespace)
	exec(t, s.pool, `INSERT INTO kagzi.limit_places (run_id, step_id, namespace_id, limit_name, state, asked_at, due_at)
		SELECT run_id, 'a#1', $1, 'limit', 'CALLED', now() - interval '1 hour', CASE WHEN run_id = $2
			THEN now() - interval '1 hour' ELSE now() - interval '2 hours' END FROM kagzi.workflow_runs`,
		s.namespace, runs[21].RunID)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'SLEEPING',
		paused_at = CASE WHEN run_id <> $1 THEN now() END`, runs[21].RunID)
	stuck, err := s.StuckLimits(t.Context(), s.pool, time.Minute)
	if err != nil || len(stuck) != 1 || stuck[0].RunID != runs[21].RunID {
		t.Errorf("stuck limits %+v, %v: want the one of run %v", stuck, err, runs[21].RunID)
	}
}
