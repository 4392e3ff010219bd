package starts

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// A start is one caller's run in a shared statement.
type start struct {
	run *store.NewRun
	// while the statement is under way: where the run begins; nil: nowhere. Only insert uses it.
	reservation hints.Reservation
	sent        time.Time // when the statement was sent
}

// An outcome is what a statement did for a start.
type outcome int

const (
	unstored outcome = iota // as far as is known: the caller starts the run by itself
	stored                  // the run is due, and its caller announces it
	begun                   // the run was stored as claimed, and a worker of this process executes it
)

// shares reports whether the run can be inserted together with others: whether it exists already can then be found out
// afterwards.
func (s *Starts) shares(r *store.NewRun) bool {
	return r.IfActive == "" && r.IfEnded == "" && len(r.Messages) == 0 && r.Window == nil && r.WhenFull == "" &&
		!s.held.has(r.ExternalID)
}

// insert inserts the runs with one statement. A run for which a worker of this process has a reservation is inserted as
// claimed, and begins there. If the statement fails, each caller starts its run by itself, as if there were no others:
// so every caller gets its own error, and a lost answer is looked for as ever. Only if the statement waited for a lock,
// the runs without an ID, which cannot have caused that, stay together.
func (s *Starts) insert(some []*batch.Part[*start, outcome]) {
	asked := time.Now()
	inserted, due, err := s.store.Starts.Together(context.WithoutCancel(some[0].Context()), func() []*store.NewRun {
		var runs []*store.NewRun
		for _, p := range some {
			if p.Send() {
				x := p.Item
				if x.reservation = s.hints.Reserve(x.run); x.reservation != nil {
					// the run begins with it, and a codec may have returned memory of the caller
					x.run.Input = bytes.Clone(x.run.Input)
				}
				runs = append(runs, x.run)
			}
		}
		asked = time.Now()
		return runs
	})
	outcomes := make([]outcome, len(some))
	for i, p := range some {
		outcomes[i] = p.Item.settle(inserted, err, asked)
	}
	if pg.Locked(err) {
		if rest := s.dissolve(some); rest != nil {
			s.insert(rest)
		}
		return
	}
	for i, p := range some {
		s.tell(p, outcomes[i])
	}
	_ = s.hints.Due(context.Background(), nil, due...) // fails only in a transaction
}

// settle gives up the reservation of the start, or begins the run there. sent is when the statement was sent.
func (p *start) settle(inserted map[uuid.UUID]*store.ClaimedRun, err error, sent time.Time) outcome {
	run, ok := inserted[p.run.RunID]
	ok = ok && err == nil
	reservation := p.reservation
	p.reservation, p.run.Claim, p.sent = nil, nil, sent
	switch {
	case reservation == nil:
	case ok && run != nil:
		reservation.Begin(run)
		return begun
	case err == nil || pg.Unsent(err) || pg.Answered(err) || pg.Repeatable(err):
		reservation.Free()
	default:
		reservation.GiveBack(sent)
	}
	if ok {
		return stored
	}
	return unstored
}

// dissolve lets the callers with an ID start their runs by themselves, because the statement for some waited for a
// lock. It returns the others.
func (s *Starts) dissolve(some []*batch.Part[*start, outcome]) (rest []*batch.Part[*start, outcome]) {
	for _, p := range some {
		if id := p.Item.run.ExternalID; id != "" {
			s.held.add(id)
			s.tell(p, unstored)
		} else {
			rest = append(rest, p)
		}
	}
	if len(rest) < len(some) {
		return rest
	}
	for _, p := range some { // something else is locked
		s.tell(p, unstored)
	}
	return nil
}

// tell tells the caller about its run. If the caller has given up meanwhile, a run that is due is announced
// here.
func (s *Starts) tell(p *batch.Part[*start, outcome], o outcome) {
	if !p.Tell(o) && o == stored {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // no caller waits for the notification
		s.due(ctx, p.Item.run, p.Item.sent)
	}
}
