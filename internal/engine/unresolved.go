package engine

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// claimRuns claims, and resolves the claim by its lease if its outcome is unknown. A claim whose answer is lost may have taken
// runs, or may yet take them, if the server has not executed it yet. Nobody executes those runs. See
// docs/architecture.md, Lost acknowledgements.
//
// A result without Now is a claim that took nothing, as far as known. If an input may have failed the claim, claimRuns claims
// without inputs, and the loader reads them: so an unreadable input keeps no other run from being claimed.
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
			return claim // one transaction took all of them
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
	claiming     = "claim runs"    // the operation's name in the store's errors
	lastResolve  = 2 * time.Second // bounds the last query of a worker that drains
	resolvePause = 5 * time.Second // the longest pause between two queries
)

// claimTime returns the timeout of a claim: when a late answer arrives, the lease may be over.
func (s *Session) claimTime() time.Duration {
	return max(min(s.cfg.LeaseTimeout, s.cfg.StaleAfter)/3, time.Second)
}

func (s *Session) claimWithin(d time.Duration, req store.ClaimRequest, f func(context.Context, store.ClaimRequest) (store.Claim, error)) (store.Claim, error) {
	ctx, cancel := context.WithTimeout(s.background, d)
	defer cancel()
	return f(ctx, req)
}

// resolve yields the runs of a claim whose outcome is unknown. It queries for them until a query comes so long after sent that
// the claim must have become visible. After the end of ctx it queries once more. A coordinator releases the runs of an even
// later commit, like those of a dead worker.
func (s *Session) resolve(ctx context.Context, req store.ClaimRequest, sent time.Time) {
	for pause := outage.Pause; ; pause = min(2*pause, resolvePause) {
		select {
		case <-ctx.Done():
			_, _ = s.disownClaimed(lastResolve, req)
			return
		case <-time.After(pause):
		}
		asked := time.Now()
		found, err := s.disownClaimed(s.claimTime(), req)
		if err != nil {
			s.databaseTrouble(err)
		} else if found || asked.Sub(sent) > store.LateClaims {
			return // one transaction took all of them
		}
	}
}

// disownClaimed makes the session yield the runs of a claim that nobody executes. It reports whether there are any.
func (s *Session) disownClaimed(within time.Duration, req store.ClaimRequest) (found bool, err error) {
	claim, err := s.claimWithin(within, req, s.store.ResolveClaim)
	if err != nil || len(claim.Runs) == 0 {
		return false, err
	}
	orphans := make([]orphan, len(claim.Runs))
	for i, r := range claim.Runs {
		orphans[i] = orphan{HeldRun: store.HeldRun{RunID: r.RunID, Lease: r.Lease}, queue: r.Queue, key: r.Key, of: "claim"}
	}
	s.disown(orphans...)
	return true, nil
}

// waitForDatabase pauses for an outage of the database. It returns false if ctx has ended or the session is fenced.
func (s *Session) waitForDatabase(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(outage.Pause):
		return !s.isFenced()
	}
}
