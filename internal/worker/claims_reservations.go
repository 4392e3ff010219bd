package worker

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/store"
)

// A reservation is a slot for a run that is being inserted as claimed by its session: see hints.Reservation. The
// session does not end before the slot is used or given up. See doc_reservations.go.
type reservation struct {
	c      *claimer
	queue  string
	held   store.HeldRun
	worker uuid.UUID
}

// Reserve keeps a free slot for a run that is about to be inserted: see hints.Worker. It returns nil as long as the
// session is to claim: a run that is due already comes first.
func (c *claimer) Reserve(run *store.NewRun) hints.Reservation {
	version := run.Version
	for _, t := range c.work.types {
		if version == 0 && t.Type == run.Type {
			version = t.Default
		}
	}
	if c.work.handlers[run.Type][version] == nil || run.Delay > 0 || !run.At.IsZero() || run.Parent != uuid.Nil ||
		run.Window != nil {
		return nil
	}
	p := &reservation{c: c, queue: run.Queue, held: store.HeldRun{RunID: run.RunID, Lease: store.NewLease(run.Version)}}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if run.Key.Name != "" || !c.openLocked() || c.Standing.PresumedDead(now) != "" ||
		!c.claims.Reserve(run.Queue, now) {
		return nil
	}
	c.roster.reserveLocked(run.RunID)
	c.orphans.sentLocked(now)
	c.unfinished.Add(1)
	p.worker = c.ID()
	run.Claim = &store.NewClaim{
		Worker: p.worker, Lease: p.held.Lease, LeaseTimeout: c.work.given.LeaseTimeout,
		Version: version,
	}
	return p
}

// Begin executes the run that was inserted, unless the session drains.
func (p *reservation) Begin(r *store.ClaimedRun) {
	c := p.c
	defer c.unfinished.Done()
	c.setClock(r.StartedAt, r.Term.Asked)
	c.Failpoint("after start", r.RunID)
	if h := c.adopt(p.worker, r); h != nil {
		c.start(h)
	} else {
		c.freeSlot(p.queue)
	}
}

// Free gives up the slot.
func (p *reservation) Free() {
	p.c.mu.Lock()
	p.c.roster.freeLocked(p.held.RunID)
	p.c.mu.Unlock()
	p.c.freeSlot(p.queue)
	p.c.unfinished.Done()
}

// GiveBack gives up the slot, and yields the run if it is there or comes.
func (p *reservation) GiveBack(sent time.Time) {
	p.c.orphans.disown(orphan{HeldRun: p.held, queue: p.queue, until: sent.Add(store.LateClaims), of: "start"})
	p.Free()
}
