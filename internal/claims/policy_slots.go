package claims

import "time"

// Reserve keeps a free slot for a run of the queue that begins without a claim. It returns false as long as the worker
// is to claim: a run that is due already comes first.
func (p *Policy) Reserve(queue string, now time.Time) bool {
	q := p.queues.named(queue)
	if q == nil || q.keys.limited || !q.active() || !q.registered || p.slots.waiting > 0 || !p.Drained(now) ||
		!p.slots.borrowOne() {
		return false
	}
	p.slots.free--
	p.slots.busy++
	q.taken++
	return true
}

// Wait notes that n claimed runs of the queue wait for slots.
func (p *Policy) Wait(queue string, n int) {
	p.slots.waiting += n
	p.take(queue, n)
}

// Begin gives a slot to the first run that waits. It returns false if no slot is free, or no run waits.
func (p *Policy) Begin() bool {
	if p.slots.waiting == 0 || !p.slots.borrowOne() {
		return false
	}
	p.slots.waiting--
	p.slots.free--
	p.slots.busy++
	return true
}

// GiveBack notes that a run of the queue does not wait for a slot any more.
func (p *Policy) GiveBack(queue string) {
	p.slots.waiting--
	p.take(queue, -1)
	p.slots.giveBack() // a slot may have been freed for it
}

// Free notes that a run of the queue has given up its slot.
func (p *Policy) Free(queue string) {
	p.slots.free++
	p.slots.freed++
	p.slots.busy--
	p.take(queue, -1)
	p.slots.giveBack()
}

func (p *Policy) take(queue string, n int) {
	if q := p.queues.named(queue); q != nil {
		q.taken += n
	}
}

// FreeSlots returns how many slots are free.
func (p *Policy) FreeSlots() int { return p.slots.unused() }

// Busy returns how many slots runs hold.
func (p *Policy) Busy() int { return p.slots.busy }

// Waiting returns how many claimed runs wait for slots.
func (p *Policy) Waiting() int { return p.slots.waiting }

// LongestWait returns how long runs that are claimed ahead of free slots may wait. Then they are given back to other
// workers: the runs before them have become long.
func (p *Policy) LongestWait() time.Duration { return 4 * p.slots.window() }

// WantsRuns reports whether a claim may take runs now.
func (p *Policy) WantsRuns() bool {
	return p.slots.wanted() > 0 || p.slots.loan != nil && p.slots.unused() > 0
}

// Rest gives back the slots that were borrowed and are free: the policy claims nothing any more.
func (p *Policy) Rest(now time.Time) { p.slots.rest(now) }

// Close gives back all slots that were borrowed, also those that runs hold.
func (p *Policy) Close(now time.Time) { p.slots.end(now) }
