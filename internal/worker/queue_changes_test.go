package worker_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/store"
)

// A session leaves a queue: before the runs of a claim begin, or while some of them wait for a slot. Those that have
// not begun are given back and keep their places, and no run is started in place. The one that has begun goes on, and
// the worker's row names the queue until it has ended.
func TestLeaveAQueue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		duringClaim bool
		begun       int
	}{"DuringTheClaim": {true, 0}, "WhileRunsWait": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 4
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 1})
			wf, begun, open := holding(w)
			var s *worker.HeldSession
			leave := func() { s.SetQueues(map[string]int{"other": 1}) }
			kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
				if tt.duringClaim && point == "after claim" {
					leave()
				}
			})
			s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
			if err != nil {
				t.Fatal(err)
			}
			pending := func() []string { // in the order of the queue
				return dbtest.QueryOne[[]string](t, db.Pool,
					`SELECT coalesce(array_agg(concat_ws(' ', run_id, available_at, version) ORDER BY available_at),
						'{}') FROM kagzi.workflow_runs WHERE status = 'PENDING'`)
			}
			kit.StartRuns(t, c, wf, n)
			queue := pending()
			s.Claim(t.Context(), n)
			if !tt.duringClaim {
				await.Receive(t, begun)
				if taken := s.Taken(); taken != n {
					t.Errorf("the queue's runs have %d slots and places, want %d", taken, n)
				}
				leave()
			}
			for range n - tt.begun {
				s.Flush(await.Receive(t, s.Come))
			}
			if back := pending(); !slices.Equal(back, queue[tt.begun:]) {
				t.Errorf("given back %q, want %q", back, queue[tt.begun:])
			}
			if s.PlaceInAFreedSlot(&store.NewRun{
				Spec: store.Spec{Queue: "default", Type: "wf", Priority: 3}, RunID: uuid.New(),
			}) {
				t.Error("a run is started in place in a queue that the session has left")
			}
			if active, left := s.Register(); !slices.Equal(active, []string{"other"}) ||
				!slices.Equal(left, []string{"default"}) {
				t.Errorf("the row names %q, and %q as left", active, left)
			}
			s.PassLateClaims()
			if _, left := s.Register(); len(left) != tt.begun {
				t.Errorf("when no claim can bring runs any more, the row names %q as left", left)
			}
			close(open)
			if tt.begun > 0 {
				last := await.Receive(t, s.Come)
				if _, left := s.Register(); s.Taken() != 0 || len(left) != 1 {
					t.Errorf("before the end of the last run is written, the row names %q as left", left)
				}
				s.Flush(last)
			}
			if _, left := s.Register(); len(left) > 0 {
				t.Errorf("when all runs have ended, the row names %q as left", left)
			}
			if waiting, free := s.Waiting(); waiting != 0 || free != 1 || s.Executes() {
				t.Errorf("%d runs wait, %d slots are free, runs under way %t", waiting, free, s.Executes())
			}
		})
	}
}

// A session comes back to a queue that it has left: its runs are claimed again, and those under way go on.
func TestReturnToAQueue(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 2})
	wf, begun, open := holding(w)
	s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	runs := kit.StartRuns(t, c, wf, 2)
	s.Claim(t.Context(), 1)
	await.Receive(t, begun)
	s.SetQueues(map[string]int{"other": 1})
	s.SetQueues(map[string]int{"default": 1})
	s.PassLateClaims()
	if active, left := s.Register(); !slices.Equal(active, []string{"default"}) || len(left) > 0 {
		t.Errorf("the row names %q, and %q as left; want the queue that was never registered forgotten", active, left)
	}
	s.Claim(t.Context(), 1)
	await.Receive(t, begun)
	close(open)
	for range runs {
		s.Flush(await.Receive(t, s.Come))
	}
	kit.CheckResults(t, runs, func(i int) int { return i })
}
