package model

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// suspectFrom is from which recovery on a run is a crash-loop suspect.
const suspectFrom = 3

// A Claimed is what a claim has done.
type Claimed struct {
	Taken []*store.ClaimedRun
	Back  []uuid.UUID // set back
	// it may have taken fewer: another call was under way and had locked some, or its answer was lost
	Beside bool
}

// Claimable returns the runs that a claim may take without a slot of a key: they are due, not paused, and of a version
// that the worker has.
func (m *Model) Claimable(req store.ClaimRequest) (runs []*Run) {
	for _, r := range m.all() {
		if r.Active() && r.At == Due && !r.waits() && !m.stopped(r) && executes(req, r) {
			runs = append(runs, r)
		}
	}
	return runs
}

// SetsBack reports whether a claim lets the run wait instead of taking it, because it may kill its workers.
func (r *Run) SetsBack() bool { return r.Status == store.Running && r.Recoveries+1 >= suspectFrom }

// Claim checks what a claim has done, and does the same.
func (m *Model) Claim(req store.ClaimRequest, c Claimed) error {
	plain, keyed, err := m.sort(req, c)
	if err != nil {
		return err
	}
	if err := m.claimPlain(req, plain, keyed, c.Beside); err != nil {
		return err
	}
	for _, id := range c.Back {
		m.Runs[id].setBack()
	}
	m.take(req, c.Taken, plain)
	if req.Keys == nil && len(keyed) > 0 {
		return fmt.Errorf("the claim took %d runs with keys", len(keyed))
	}
	if err := m.claimKeys(req, keyed, !c.Beside && req.Keys != nil && req.Limit >= unbounded && !m.Queue.Limited(),
		c.Beside); err != nil {
		return err
	}
	m.take(req, c.Taken, keyed)
	return nil
}

// sort returns the runs that a claim has taken, or set back, without a slot of a key, and those that it took with one.
func (t *table) sort(req store.ClaimRequest, c Claimed) (plain, keyed []*Run, err error) {
	touched := map[uuid.UUID]bool{}
	for _, id := range c.Back {
		r := t.Runs[id]
		if r == nil || !r.SetsBack() {
			return nil, nil, fmt.Errorf("the claim set back run %v, which is %+v", id, r)
		}
		plain, touched[id] = append(plain, r), true
	}
	for _, k := range c.Taken {
		r := t.Runs[k.RunID]
		switch {
		case r == nil || touched[k.RunID] || !slices.Contains(c.Back, k.RunID) && r.SetsBack():
			return nil, nil, fmt.Errorf("the claim took run %v, which is %+v", k.RunID, r)
		case r.waits():
			keyed = append(keyed, r)
		default:
			plain = append(plain, r)
		}
		touched[k.RunID] = true
		if err := r.checkClaimed(req, k); err != nil {
			return nil, nil, err
		}
	}
	return plain, keyed, nil
}

// unbounded is a limit of a claim for more runs than there are.
const unbounded = 100

// choice returns the runs of which a claim takes some without a slot of a key, and how many. If the queue is full,
// these are runs that hold their slots already.
func (m *Model) choice(req store.ClaimRequest) (may []*Run, want int, full bool) {
	may = m.Claimable(req)
	switch {
	case req.Keys == nil && m.Queue.Limited() || req.Keys != nil && req.Keys.Only:
		return may, 0, false
	case m.Queue.Limited() && m.room() == 0:
		may = slices.DeleteFunc(may, func(r *Run) bool { return !r.holdsSlot() })
		return may, min(req.Limit, len(may)), true
	}
	return may, min(req.Limit, len(may), m.room()), false
}

// claimPlain checks which runs a claim has taken, or set back, without a slot of a key. Which of the runs of one
// priority it takes is not the model's concern. keyed are those that it took with such a slot.
func (m *Model) claimPlain(req store.ClaimRequest, taken, keyed []*Run, beside bool) error {
	may, want, full := m.choice(req)
	if len(taken) > want || len(taken) < want && !beside {
		return fmt.Errorf("the claim took %d runs without a slot of a key, want %d, of %s; queue %+v with tokens %+v "+
			"and room for %d", len(taken), want, describe(may), m.Queue, m.bucket, m.room())
	}
	lowest, tokens := 0, 0
	for _, r := range taken {
		if !slices.Contains(may, r) {
			return fmt.Errorf("the claim took run %+v", r)
		}
		lowest = max(lowest, r.Priority)
		if r.Status != store.Running && r.Slot != 2 {
			tokens++
		}
	}
	for _, r := range may {
		left := !slices.Contains(taken, r) && !slices.Contains(keyed, r)
		if want > 0 && left && r.Priority < lowest && !beside && !full {
			return fmt.Errorf("the claim took a run of priority %d and left %v of priority %d", lowest, r.ID,
				r.Priority)
		}
	}
	m.bucket = m.bucket.take(tokens, m.Queue.Burst)
	return nil
}

// take makes those of the runs RUNNING that the claim has taken.
func (m *Model) take(req store.ClaimRequest, taken []*store.ClaimedRun, runs []*Run) {
	for _, c := range taken {
		r := m.Runs[c.RunID]
		if !slices.Contains(runs, r) {
			continue
		}
		switch {
		case r.Slot == 2: // until it ends
		case r.waits() && r.Key.Group:
			r.Slot = 2
		case req.Keys != nil:
			r.Slot = m.Queue.slot()
		case r.Status != store.Running:
			r.Slot = 0
		}
		r.recover()
		r.Status, r.At, r.Lease, r.Worker, r.Started, r.Version = store.Running, r.leaseEnd(), c.Lease, req.Worker,
			true, c.Version
	}
}

// setBack lets the run wait. It keeps a slot that it holds until it ends.
func (r *Run) setBack() {
	r.recover()
	r.Status, r.At, r.Lease, r.Worker = store.Pending, Later, uuid.Nil, uuid.Nil
	if r.Slot == 1 {
		r.Slot = 0
	}
}

// recover counts a claim from a dead worker.
func (r *Run) recover() {
	if r.Status == store.Running && (r.Recoveries < suspectFrom || r.Suspect == r.Lease) {
		r.Recoveries++
	}
}

// checkClaimed compares what the claim says of the run with the model before the claim.
func (r *Run) checkClaimed(req store.ClaimRequest, c *store.ClaimedRun) error {
	want := *r
	want.recover()
	version := r.Version
	if version == 0 {
		version = 1
	}
	switch {
	case c.Wakeups != want.Wakeups, c.Attempts != want.Attempts, c.Recoveries != want.Recoveries,
		c.CancelRequested != want.Cancelling:
		return fmt.Errorf("claimed as %+v, want %+v", c, want)
	case c.Version != version, c.Fresh == want.Started, c.ParentRunID != want.Parent, c.ExternalID != want.External:
		return fmt.Errorf("claimed as %+v, want %+v", c, want)
	case !slices.Equal(c.Lease[:15], req.Lease[:15]):
		return fmt.Errorf("claimed under lease %v, asked for %v", c.Lease, req.Lease)
	}
	return nil
}

// Extend extends a lease, and reports whether it has: if it is held, and past half of its timeout.
func (t *table) Extend(h store.HeldRun) bool {
	r := t.Runs[h.RunID]
	if !r.Holds(h.Lease) || r.At == Later {
		return false
	}
	r.At = r.leaseEnd()
	return true
}

// leaseEnd returns when a lease ends that begins now: soon after the run's deadline, unless that has passed.
func (r *Run) leaseEnd() When {
	if r.Deadline == Soon {
		return Soon
	}
	return Later
}

// BeginSuspect notes that a crash-loop suspect begins.
func (t *table) BeginSuspect(h store.HeldRun) {
	if r := t.Runs[h.RunID]; r.Holds(h.Lease) {
		r.Suspect = h.Lease
	}
}

// Release declares a worker dead, and returns how many runs it has made due.
func (t *table) Release(worker uuid.UUID) (released int) {
	t.Offline[worker] = true
	for _, r := range t.all() {
		if r.Status == store.Running && r.Worker == worker && !r.Paused && r.At != Due {
			r.At = Due
			released++
		}
	}
	return released
}

func describe(runs []*Run) (text string) {
	for _, r := range runs {
		text += fmt.Sprintf("\n\t%+v", *r)
	}
	return text
}
