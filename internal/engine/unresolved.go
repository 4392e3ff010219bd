package engine

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// A claim whose answer is lost may have taken runs, and may yet take them: the server need not have come to it. Nobody
// executes those runs, so the session resolves the claim, by its lease, until even a late one must have taken its runs.

// claimRuns claims, and resolves the claim if its outcome is not known. A Claim without Now is one that took
// nothing, as far as is known. If an input may be what the claim failed with, it claims without: inputs are read as histories
// are then, so that one that cannot be read keeps no other run from being claimed.
func (s *Session) claimRuns(ctx context.Context, req store.ClaimRequest) store.Claim {
	sent := time.Now()
	claim, err := s.claimWithin(s.claimTime(), req, s.store.Claim)
	if store.MayBeRowError(err) && ctx.Err() == nil {
		req.NoInputs, sent = true, time.Now()
		claim, err = s.claimWithin(s.claimTime(), req, s.store.Claim)
	}
	if err == nil {
		s.outage.End()
		s.failures.Over(s.logger(req.Worker), claiming)
		return claim
	}
	s.databaseTrouble(err)
	if store.Unsent(err) || store.Answered(err) || store.Repeatable(err) {
		return store.Claim{}
	}
	for ctx.Err() == nil {
		claim, err = s.claimWithin(s.claimTime(), req, s.store.ResolveClaim)
		if len(claim.Runs) > 0 {
			return claim // one transaction took them all
		}
		if err == nil {
			break
		}
		s.databaseTrouble(err)
		if !store.Unavailable(err) || !s.waitForDatabase(ctx) {
			break
		}
	}
	s.unfinished.Go(func() { s.resolve(ctx, req, sent) })
	return claim
}

const (
	claiming     = "claim runs"    // as the store says it
	lastResolve  = 2 * time.Second // bounds the last look, of a worker that drains
	resolvePause = 5 * time.Second // at the most
)

// claimTime bounds a claim: an answer that comes late may find the lease over.
func (s *Session) claimTime() time.Duration {
	return max(min(s.cfg.LeaseTimeout, s.cfg.StaleAfter)/3, time.Second)
}

func (s *Session) claimWithin(d time.Duration, req store.ClaimRequest, f func(context.Context, store.ClaimRequest) (store.Claim, error)) (store.Claim, error) {
	ctx, cancel := context.WithTimeout(s.background, d)
	defer cancel()
	return f(ctx, req)
}

// resolve yields the runs of a claim that was sent then, and whose outcome is not known. It repeats that until a query has come
// so late that the claim must have shown; once ctx has ended, only once more. What is taken after that a coordinator frees,
// as what a dead worker holds.
func (s *Session) resolve(ctx context.Context, req store.ClaimRequest, sent time.Time) {
	for pause := outage.Pause; ; pause = min(2*pause, resolvePause) {
		select {
		case <-ctx.Done():
			_, _ = s.yieldClaimed(lastResolve, req)
			return
		case <-time.After(pause):
		}
		asked := time.Now()
		locked, err := s.yieldClaimed(s.claimTime(), req)
		if err != nil {
			s.databaseTrouble(err)
		} else if !locked && asked.Sub(sent) > store.LateClaims {
			return
		}
	}
}

// yieldClaimed makes due what a claim took that nobody executes. It reports whether there are runs that it could not yield because somebody has
// locked them.
func (s *Session) yieldClaimed(within time.Duration, req store.ClaimRequest) (locked bool, err error) {
	claim, err := s.claimWithin(within, req, s.store.ResolveClaim)
	if err != nil || len(claim.Runs) == 0 {
		return false, err
	}
	f := &store.Flush{}
	for _, r := range claim.Runs {
		f.Suspensions = append(f.Suspensions, &store.Suspension{RunID: r.RunID, Lease: r.Lease, Status: store.Pending, WaitingOn: "worker", History: store.HistoryUntried})
	}
	if err := s.store.Flush(s.background, f); err != nil {
		return true, err
	}
	given := 0
	for _, p := range f.Suspensions {
		if p.Outcome == store.Done {
			given++
		}
		locked = locked || p.Outcome == store.Busy
	}
	s.logger(req.Worker).Info("kagzi: a claim without an answer took runs: they are given back", "runs", given)
	_ = s.cfg.Hints.Due(s.noWait, nil, store.DueRun{Queue: req.Queue}) // fails only in a transaction
	return locked, nil
}

// waitForDatabase waits a little for a database that is away; it returns false if the session cannot go on waiting.
func (s *Session) waitForDatabase(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(outage.Pause):
		return !s.isFenced()
	}
}
