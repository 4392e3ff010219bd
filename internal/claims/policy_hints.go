package claims

import (
	"slices"
	"time"
)

// longestLedPoll is the longest PollInterval of a worker that lets the leading coordinator poll for it. That
// coordinator says of a queue that nothing is due for ten seconds, so a worker with a longer interval could learn too
// late of the next run.
const longestLedPoll = 8 * time.Second

// Hint makes the next claim from the queue come now, or once a slot is free.
func (p *Policy) Hint(queue string) {
	if q := p.queues.named(queue); q != nil {
		q.hint()
	}
}

// HintAll is Hint for all queues.
func (p *Policy) HintAll() {
	for _, q := range p.queues {
		q.hint()
	}
}

// DueAt notes that a run of the queue is due then: this process has suspended or started it, so the claims do not know
// it yet. claims reports whether the worker claims from the queue, and sooner whether the next claim comes sooner
// because of the run.
func (p *Policy) DueAt(queue string, due time.Time) (claims, sooner bool) {
	q := p.queues.named(queue)
	if q == nil || !q.active() {
		return false, false
	}
	q.knownDue = q.beforeKnown(due)
	if !due.Before(q.next) {
		return true, false
	}
	q.next, q.polls = due, false
	return true, true
}

// Idle notes that the leading coordinator has looked for work of all queues, and found nothing that is due soon, except
// in those that are busy. It does so every few seconds. Then the worker does not poll. If it has not heard that for
// PollInterval, it polls.
func (p *Policy) Idle(busy []string, now time.Time) {
	if p.cfg.PollInterval > longestLedPoll {
		return
	}
	for _, q := range p.queues {
		if !slices.Contains(busy, q.name) {
			q.heardIdle = now
		}
	}
}

// Drained reports whether no due run waits for a slot, as far as is known, and no claim is due.
func (p *Policy) Drained(now time.Time) bool { return p.queues.drained(now) }
