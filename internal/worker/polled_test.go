package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A worker does not poll while it hears that its queue is idle, and polls PollInterval after it last heard so.
func TestLeaderPollsForTheWorker(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		interval time.Duration
		lead     hints.Lead
		left     time.Duration
	}{
		"Idle":            {5 * time.Second, hints.Lead{Queues: true, Busy: []string{"other"}}, 5 * time.Second},
		"Busy":            {5 * time.Second, hints.Lead{Queues: true, Busy: []string{"other", "queue"}}, 0},
		"QueuesUnknown":   {5 * time.Second, hints.Lead{}, 0},
		"TooLongInterval": {time.Minute, hints.Lead{Queues: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := sessionWithClock(tt.interval)
				claimNothing(s)
				time.Sleep(tt.interval)
				s.hearLead(tt.lead)
				if plan, _ := s.plan(); plan.Wait != tt.left || plan.Claims != (tt.left == 0) {
					t.Fatalf("the poll is put off by %v, want %v", plan.Wait, tt.left)
				}
				time.Sleep(tt.left)
				if plan, _ := s.plan(); tt.left > 0 && !plan.Claims {
					t.Errorf("the worker has heard nothing since, and does not poll for %v", plan.Wait)
				}
			})
		})
	}
}

// A run that the worker suspends after the leader's look is claimed when it is due: the leader may say that the queue
// is idle although it has not seen that run.
func TestPollIsNotPutOffBeyondASuspendedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poll, sleep = 5 * time.Second, 2 * time.Second
		s := sessionWithClock(poll)
		claimNothing(s)
		time.Sleep(poll - time.Second)
		s.suspended("queue", false, &store.Suspension{AvailableAt: time.Now().Add(sleep)})
		s.hearLead(hints.Lead{Queues: true})
		time.Sleep(time.Second)
		if plan, _ := s.plan(); plan.Wait != sleep-time.Second {
			t.Errorf("the worker claims in %v, want %v", plan.Wait, sleep-time.Second)
		}
	})
}

// A run that is suspended while a claim is under way may not be in the claim's answer.
func TestClaimAfterASuspensionDuringAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sessionWithClock(5 * time.Second)
		claimNothing(s)
		time.Sleep(5 * time.Second)
		plan, _ := s.plan()
		s.suspended("queue", false, &store.Suspension{AvailableAt: time.Now().Add(300 * time.Millisecond)})
		answerNothing(s, &plan)
		if plan, _ := s.plan(); plan.Wait != 300*time.Millisecond {
			t.Errorf("the worker claims in %v, want 300ms", plan.Wait)
		}
	})
}

// A delayed start makes the worker claim when the run is due, and not before: also if that is before a poll, and the
// leader has looked before.
func TestClaimOfADelayedStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sessionWithClock(5 * time.Second)
		claimNothing(s)
		s.Offer("queue", "", 0, 3*time.Second)
		s.Offer("queue", "", 0, time.Second)
		s.Offer("queue", "", 0, time.Minute)
		s.hearLead(hints.Lead{Queues: true})
		if plan, _ := s.plan(); plan.Claims || plan.Wait != time.Second {
			t.Errorf("the worker claims now %t, or in %v, want in a second", plan.Claims, plan.Wait)
		}
		s.Offer("queue", "", 0, 0)
		if plan, _ := s.plan(); !plan.Claims {
			t.Error("the worker does not claim at once for a run that is due")
		}
	})
}

// sessionWithClock returns a session that knows the database's time, and serves the queue named queue.
func sessionWithClock(poll time.Duration) *Session {
	s := &Session{cfg: Config{PollInterval: poll, MaxConcurrent: 1}, Worker: &standing.Worker{}}
	s.roster = newRoster(&s.mu)
	s.claimer = s.newClaimer(nil, newGate(&s.mu))
	s.changeQueues(map[string]int{"queue": 1})
	s.queuesRegistered([]string{"queue"})
	s.Clock.Set(time.Now(), time.Now(), time.Now())
	return s
}

// claimNothing makes the session claim. The claim finds that no run is due.
func claimNothing(s *Session) {
	plan, _ := s.plan()
	answerNothing(s, &plan)
}

// answerNothing ends the plan's claim, which has found that no run is due.
func answerNothing(s *Session, plan *claims.Plan) {
	answer := store.Claim{Now: s.Now(), Reached: map[store.Pair]time.Time{}}
	s.claims.Answered(plan, &answer, 0, s.moment())
	s.claims.Ended(plan, 0, time.Now())
}
