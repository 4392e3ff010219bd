package engine

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// A reservation is a slot for a run that is being inserted as claimed by its session: see hints.Reservation. The session does
// not end before the slot is used or given up. See docs/architecture.md, Claim.
type reservation struct {
	s      *Session
	queue  *queue
	held   store.HeldRun
	worker uuid.UUID
}

// An orphan is a run that may have been inserted as claimed by the session, which does not execute it.
type orphan struct {
	store.HeldRun
	sent time.Time // when the statement was sent
}

// Reserve keeps a free slot for a run that is about to be inserted: see hints.Worker. It returns nil as long as the session is to
// claim: a run that is due already comes first.
func (s *Session) Reserve(run *store.NewRun) hints.Reservation {
	version := run.Version
	for _, t := range s.cfg.Types {
		if version == 0 && t.Type == run.Type {
			version = t.Default
		}
	}
	if s.cfg.Handlers[run.Type][version] == nil || run.Delay > 0 || !run.At.IsZero() || run.Parent != uuid.Nil || run.Window != nil {
		return nil
	}
	p := &reservation{s: s, held: store.HeldRun{RunID: run.RunID, Lease: store.NewLease(run.Version)}}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, now := s.queues.named(run.Queue), time.Now()
	if q == nil || run.Key != "" || q.keys.limited || !q.active() || !q.registered || s.draining || s.fenced || s.slots.free <= 0 || len(s.slots.waiting) > 0 || !s.queues.calm(now) || s.standing.presumedDead(now) != "" {
		return nil
	}
	s.slots.free--
	q.taken++
	p.queue = q
	s.reserved[run.RunID] = false
	s.unfinished.Add(1)
	p.worker = s.ID()
	run.Claim = &store.NewClaim{Worker: p.worker, Lease: p.held.Lease, LeaseTimeout: s.cfg.LeaseTimeout, Version: version}
	return p
}

// Begin executes the run that was inserted, unless the session drains.
func (p *reservation) Begin(r *store.ClaimedRun) {
	s := p.s
	defer s.unfinished.Done()
	s.setClock(r.StartedAt, r.Term.Asked)
	s.failpoint("after start", r.RunID)
	if e := s.adopt(p.queue, p.worker, r); e != nil {
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
	s := p.s
	s.mu.Lock()
	s.orphans = append(s.orphans, orphan{p.held, sent})
	first := !s.yielding
	s.yielding = true
	s.mu.Unlock()
	if first {
		s.unfinished.Go(s.yieldOrphans)
	}
	p.Free()
}

// yieldOrphans yields orphans until none is left. An orphan is looked for until that happens so long after its statement was
// sent that the statement must have become visible. A drain is not held up: yieldOrphans looks once more, and a coordinator
// releases the runs of an even later commit, like those of a dead worker.
func (s *Session) yieldOrphans() {
	for pause, drains := outage.Pause, false; ; pause = min(2*pause, resolvePause) {
		select {
		case <-s.drains:
			drains = true
		case <-time.After(pause):
		}
		s.mu.Lock()
		orphans := s.orphans
		s.orphans = nil
		s.mu.Unlock()
		var left []orphan
		for len(orphans) > 0 {
			n := min(len(orphans), mostClaimed)
			left = append(left, s.yieldSome(orphans[:n])...)
			orphans = orphans[n:]
		}
		s.mu.Lock()
		s.orphans = append(s.orphans, left...)
		s.yielding = len(s.orphans) > 0 && !drains
		again := s.yielding
		s.mu.Unlock()
		if !again {
			return
		}
	}
}

// yieldSome yields those of the orphans that are there, and returns those that may be there later, or that it could not yield.
func (s *Session) yieldSome(orphans []orphan) (left []orphan) {
	asked, yielded := time.Now(), 0
	keep := func(o orphan, err error) {
		s.databaseTrouble(err)
		left = append(left, o)
	}
	err := store.Isolate(orphans, func(some []orphan) error {
		f := &store.Flush{}
		of := map[uuid.UUID]orphan{}
		for _, o := range some {
			of[o.RunID] = o
			f.Suspensions = append(f.Suspensions, yieldOf(o.HeldRun))
		}
		ctx, cancel := context.WithTimeout(s.background, s.claimTime())
		defer cancel()
		if err := s.store.Flush(ctx, f); err != nil {
			return err
		}
		for _, p := range f.Suspensions {
			switch o := of[p.RunID]; {
			case p.Outcome == store.Done:
				yielded++
			case p.Outcome == store.Busy || asked.Sub(o.sent) <= store.LateClaims:
				left = append(left, o)
			}
		}
		return nil
	}, keep)
	if err != nil {
		s.databaseTrouble(err)
		return orphans
	}
	if yielded > 0 {
		s.logger(s.ID()).Info("kagzi: a start without an answer stored runs for this worker: they are given back", "runs", yielded)
		for _, q := range s.Queues() {
			_ = s.cfg.Hints.Due(s.noWait, nil, store.DueRun{Queue: q}) // fails only in a transaction
		}
	}
	return left
}
