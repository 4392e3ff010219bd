package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/internal/hints"
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
				s, q := sessionWithClock(tt.interval)
				q.claimed(nextClaim{polls: true})
				s.hearLead(tt.lead)
				if got := q.untilClaim(time.Now()); got != tt.left {
					t.Errorf("the poll is put off by %v, want %v", got, tt.left)
				}
				time.Sleep(tt.left)
				if got := q.untilClaim(time.Now()); got != 0 {
					t.Errorf("the worker has heard nothing since, and does not poll for %v", got)
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
		s, q := sessionWithClock(poll)
		q.claimed(nextClaim{pause: poll, polls: true})
		time.Sleep(poll - time.Second)
		s.suspended("queue", &store.Suspension{AvailableAt: time.Now().Add(sleep)})
		s.hearLead(hints.Lead{Queues: true})
		time.Sleep(time.Second)
		if left := q.untilClaim(time.Now()); left != sleep-time.Second {
			t.Errorf("the worker claims in %v, want %v", left, sleep-time.Second)
		}
	})
}

// A run that is suspended while a claim is under way may not be in the claim's answer.
func TestClaimAfterASuspensionDuringAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, q := sessionWithClock(5 * time.Second)
		q.claimed(nextClaim{pause: time.Second})
		time.Sleep(time.Second) // the claim begins
		s.suspended("queue", &store.Suspension{AvailableAt: time.Now().Add(300 * time.Millisecond)})
		q.wanted = false // as a claim that began before
		q.claimed(nextClaim{pause: 5 * time.Second})
		if pause := q.untilClaim(time.Now()); pause != 300*time.Millisecond {
			t.Errorf("the worker claims in %v, want 300ms", pause)
		}
	})
}

// sessionWithClock returns a session that knows the database's time, and serves the queue named queue.
func sessionWithClock(poll time.Duration) (*Session, *queue) {
	s := &Session{cfg: Config{PollInterval: poll}, environment: &environment{}, wake: make(chan struct{}, 1)}
	s.cfg.Queues = map[string]int{"queue": 1}
	s.changeQueues(s.cfg.Queues)
	s.queuesRegistered([]string{"queue"})
	s.clock.set(time.Now(), time.Now(), time.Now())
	return s, s.queues[0]
}
