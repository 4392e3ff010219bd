package engine

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/store"
)

// A reservation is a slot for a run that is being inserted as claimed by its session: see hints.Reservation. The
// session does not end before the slot is used or given up. See doc_reservations.go.
type reservation struct {
	s      *Session
	queue  string
	held   store.HeldRun
	worker uuid.UUID
}

// Reserve keeps a free slot for a run that is about to be inserted: see hints.Worker. It returns nil as long as the
// session is to claim: a run that is due already comes first.
func (s *Session) Reserve(run *store.NewRun) hints.Reservation {
	version := run.Version
	for _, t := range s.cfg.Types {
		if version == 0 && t.Type == run.Type {
			version = t.Default
		}
	}
	if s.cfg.Handlers[run.Type][version] == nil || run.Delay > 0 || !run.At.IsZero() || run.Parent != uuid.Nil ||
		run.Window != nil {
		return nil
	}
	p := &reservation{s: s, queue: run.Queue, held: store.HeldRun{RunID: run.RunID, Lease: store.NewLease(run.Version)}}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if run.Key != "" || s.draining || s.fenced || s.standing.presumedDead(now) != "" ||
		!s.claims.Reserve(run.Queue, now) {
		return nil
	}
	s.reserved[run.RunID] = false
	s.strays.sent = now
	s.unfinished.Add(1)
	p.worker = s.ID()
	run.Claim = &store.NewClaim{
		Worker: p.worker, Lease: p.held.Lease, LeaseTimeout: s.cfg.LeaseTimeout,
		Version: version,
	}
	return p
}

// Begin executes the run that was inserted, unless the session drains.
func (p *reservation) Begin(r *store.ClaimedRun) {
	s := p.s
	defer s.unfinished.Done()
	s.setClock(r.StartedAt, r.Term.Asked)
	s.failpoint("after start", r.RunID)
	if e := s.adopt(p.worker, r); e != nil {
		s.start(e)
	} else {
		s.freeSlot(p.queue)
	}
}

// Free gives up the slot.
func (p *reservation) Free() {
	p.s.mu.Lock()
	delete(p.s.reserved, p.held.RunID)
	p.s.mu.Unlock()
	p.s.freeSlot(p.queue)
	p.s.unfinished.Done()
}

// GiveBack gives up the slot, and yields the run if it is there or comes.
func (p *reservation) GiveBack(sent time.Time) {
	p.s.disown(orphan{HeldRun: p.held, queue: p.queue, until: sent.Add(store.LateClaims), of: "start"})
	p.Free()
}
