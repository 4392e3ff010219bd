package starts

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/store"
)

// Starts are the starts of one client. They are safe for concurrent use.
type Starts struct {
	store  *store.Store
	hints  *hints.Hints
	shared *batch.Shared[*start, outcome]
	held   heldIDs
}

// New returns the Starts of a client. It starts nothing.
func New(s *store.Store, h *hints.Hints) *Starts {
	starts := &Starts{store: s, hints: h}
	starts.shared = batch.NewShared(batch.SharedConfig[*start, outcome]{
		What: "the run", Done: "started", Send: starts.insert,
		Size: func(x *start) int { return len(x.run.Input) },
	})
	return starts
}

// Start is store.Starts.Start. It also announces what it has started, ended and signalled.
func (s *Starts) Start(ctx context.Context, tx pgx.Tx, runs []store.NewRun) ([]store.StartedRun, error) {
	if tx == nil && len(runs) == 1 && s.shares(&runs[0]) {
		x := &start{run: &runs[0]}
		o, err := s.shared.Do(ctx, x)
		if err != nil {
			return nil, err
		}
		if o == stored {
			s.due(ctx, &runs[0], x.sent)
		}
		if o != unstored {
			return []store.StartedRun{{RunID: runs[0].RunID}}, nil
		}
	}
	sent := time.Now()
	started, err := s.store.Starts.Start(ctx, tx, runs)
	if err != nil {
		return nil, err
	}
	return started, s.announce(ctx, tx, runs, started, sent)
}

func (s *Starts) announce(ctx context.Context, tx pgx.Tx, runs []store.NewRun, started []store.StartedRun,
	sent time.Time,
) error {
	var due []store.DueRun
	var signalled []store.Signalled
	for i, r := range started {
		// Claims may skip the run of a window while the caller's transaction holds it.
		switch {
		case tx == nil && !r.Existed && delayed(&runs[i]):
			s.due(ctx, &runs[i], sent)
		case !r.Existed, r.Due, tx != nil && runs[i].Window != nil:
			due = append(due, dueRun(&runs[i]))
		}
		if r.Existed && r.Signalled != nil {
			signalled = append(signalled, *r.Signalled)
		}
		if r.Ended != nil {
			if err := s.hints.Cancelled(ctx, tx, r.Ended); err != nil {
				return err
			}
		}
	}
	if err := s.hints.Due(ctx, tx, due...); err != nil {
		return err
	}
	return s.hints.Signalled(ctx, tx, signalled...)
}

// due announces a run that was started by a statement sent then. A delay begins about then: a claim that comes too
// early finds out how much.
func (s *Starts) due(ctx context.Context, r *store.NewRun, sent time.Time) {
	if delayed(r) {
		s.hints.Delayed(ctx, dueRun(r), r.Delay-time.Since(sent))
	} else {
		_ = s.hints.Due(ctx, nil, dueRun(r)) // fails only in a transaction
	}
}

// delayed reports whether workers need not claim before the run is due. The claims learn when a key is due only by a
// claim. The delay of a window is not the run's.
func delayed(r *store.NewRun) bool { return r.Delay > 0 && r.Key.Name == "" && r.Window == nil }

func dueRun(r *store.NewRun) store.DueRun {
	return store.DueRun{Queue: r.Queue, Type: r.Type, Version: r.Version}
}
