package claims

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// A queue is a queue from which a worker claims: which runs the next claim takes, and when it comes.
type queue struct {
	name  string
	share int // of the worker's slots, beside the shares of other queues with due runs
	taken int // slots that its runs hold, and runs that wait for a slot
	// the worker's row names the queue, so a coordinator would find its runs. Set by Registered, for good.
	registered bool
	// since when nothing is claimed from it; zero: the worker claims from it. Set by SetQueues, and by end if a claim
	// was under way.
	left time.Time

	state state
	// when the next claim comes if no hint comes before. Set by end, put off by untilClaim. No claim changes it that
	// comes for freed keys alone.
	next  time.Time
	polls bool // the claim at next would only look whether hints were lost
	// when a coordinator last said that the queue has nothing due for some time. Set by Idle.
	heardIdle time.Time
	// when the first of the runs is due that this process has suspended or started since the last claim began; zero:
	// none was. Set by DueAt, reset by begin.
	knownDue time.Time

	claims int // so far
	// bound of the runs of the next claim. It halves when a claim fails, and doubles when one takes runs.
	most  int
	got   float64 // the claimed runs for each unit of the share: see queueList.claimed
	empty bool    // the other due queues come first: see queueList.claimed

	keys   keys
	cursor cursor
}

// active reports whether the worker claims from q.
func (q *queue) active() bool { return q.left.IsZero() }

// untilClaim returns how long it takes until a claim from q is due. If that claim would only look whether hints were
// lost, and the leading coordinator has looked meanwhile, untilClaim puts it off. The coordinator may not have seen the
// runs of DueAt.
func (q *queue) untilClaim(now time.Time, pollInterval time.Duration) time.Duration {
	switch {
	case !q.active() || !q.registered:
		return time.Hour // a change of either wakes the worker
	case q.state == hinted || q.state == freed:
		return 0
	}
	led := q.beforeKnown(q.heardIdle.Add(pollInterval))
	if q.polls && !now.Before(q.next) && now.Before(led) {
		q.next = led
	}
	return max(0, q.next.Sub(now))
}

// beforeKnown returns t, or when the first run of DueAt is due, if that is sooner.
func (q *queue) beforeKnown(t time.Time) time.Time {
	if !q.knownDue.IsZero() && q.knownDue.Before(t) {
		return q.knownDue
	}
	return t
}

// begin notes that a claim begins. It answers the last hint. Unless it comes for freed keys alone, it finds the runs of
// DueAt.
func (q *queue) begin(keysOnly bool) {
	q.state = backlog
	if !keysOnly {
		q.knownDue = time.Time{}
	}
}

// answered returns when to claim again after the answer.
func (q *queue) answered(a answer, pollInterval time.Duration) outcome {
	polls := a.full && a.wait == pollInterval
	if a.claim.Keys.Only { // it knows no more than the claim before it
		a.wait, polls = max(q.next.Sub(a.at.Now), 0), q.polls
	}
	s, pause := q.answeredKeys(a)
	if len(a.claim.Runs) == a.Request.Limit {
		return outcome{state: backlog}
	}
	if pause == 0 {
		s = backlog
	}
	return outcome{s, pause, polls && pause == a.wait}
}

// answeredKeys takes from the answer what later claims need to know of keys, and returns the state and the pause before
// the next claim, at most a.wait.
func (q *queue) answeredKeys(a answer) (s state, pause time.Duration) {
	keys := &a.claim.Keys
	isDue := q.keys.note(a)
	if a.Request.Keys == nil {
		q.cursor.rewindKeys(keys)
		return q.keys.probed(a, isDue)
	}
	q.cursor.advanceKeys(keys, a.at.Database)
	q.keys.consumers = keys.Consumers
	if q.keys.inVain(a) {
		return backlog, 0
	}
	q.cursor.passes = lookedAtAll(a) && (q.cursor.passes || keys.Taken == 0)
	s, pause, foreign := q.keys.counted(a, isDue)
	if foreign {
		q.cursor.passBy(keys.Last)
	}
	return s, pause
}

// end sets when the next claim comes: after the outcome's pause, or when a run of DueAt is due.
func (q *queue) end(o outcome, now time.Time) {
	q.next, q.polls = q.beforeKnown(now.Add(o.pause)), o.polls
	if q.state == backlog { // else a hint or a freed key came meanwhile
		q.state = o.state
	}
	if !q.active() {
		q.left = now
	}
}

// hint makes the next claim come now, or once a slot is free. Until then no run begins without a claim.
func (q *queue) hint() { q.state = hinted }

// lowFirst reports whether the next claim takes the lowest priority first, so that none starves.
func (q *queue) lowFirst() bool { return q.claims%16 == 0 }

// failed makes the next claim smaller: the inputs may have been too much for the time.
func (q *queue) failed(req *store.ClaimRequest) { q.most = max(1, req.Limit/2) }
