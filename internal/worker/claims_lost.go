package worker

import (
	"context"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A sender sends claims to the database, and finds what those have taken whose answers are lost.
type sender struct {
	*standing.Worker
	*gate
	orphans    *orphans
	unfinished *sync.WaitGroup // what the drain waits for
	within     time.Duration   // the timeout of a claim: when a late answer arrives, the lease may be over
	leftOut    leftOut         // of the claims
}

// send returns the answer to the request. After the end of ctx it does not wait for one: answered is false, and
// the runs that the claim takes are given back.
func (s *sender) send(ctx context.Context, req store.ClaimRequest) (claim store.Claim, answered bool) {
	sent := time.Now()
	answer := make(chan store.Claim, 1)
	s.unfinished.Go(func() { answer <- s.claimRuns(ctx, req) })
	select {
	case claim = <-answer:
		return claim, true
	case <-ctx.Done(): // the drain does not wait for the answer
		s.unfinished.Go(func() {
			s.resolve(ctx, req, sent)
			if late := <-answer; len(late.Runs) > 0 {
				s.resolve(ctx, req, sent)
			}
		})
		return store.Claim{}, false
	}
}

// claimRuns claims, and resolves the claim by its lease if its outcome is unknown. A claim whose answer is lost may
// have taken runs, or may yet take them, if the server has not executed it yet. No worker executes those runs. See
// doc_lostanswers.go.
//
// A result without Now is a claim that took nothing, as far as known. If an input may have failed the claim, claimRuns
// claims without inputs, and the loader reads them: so an unreadable input keeps no other run from being claimed. Runs
// that the database refuses to give are left out of this claim and the next ones.
func (s *sender) claimRuns(ctx context.Context, req store.ClaimRequest) store.Claim {
	sent := time.Now()
	s.leftOut.addTo(&req)
	claim, err := s.claimWithin(s.within, req, s.Store.Claims.Claim)
	if store.MayBeRowError(err) && ctx.Err() == nil {
		req.NoInputs, sent = true, time.Now()
		claim, err = s.claimWithin(s.within, req, s.Store.Claims.Claim)
	}
	for tries := 0; err != nil && tries < mostSearches && s.leaveOut(ctx, &req, err); tries++ {
		sent = time.Now()
		claim, err = s.claimWithin(s.within, req, s.Store.Claims.Claim)
	}
	if err == nil {
		s.Away.End()
		s.Failing.Over(s.Logger(req.Worker), claiming)
		s.claimedAgain(claim.Runs)
		return claim
	}
	s.Trouble(err)
	if pg.Unsent(err) || pg.Answered(err) || pg.Repeatable(err) {
		return store.Claim{}
	}
	for ctx.Err() == nil {
		claim, err = s.claimWithin(s.within, req, s.Store.Claims.Resolve)
		if len(claim.Runs) > 0 {
			return claim // one transaction took all of them
		}
		if err == nil {
			break
		}
		s.Trouble(err)
		if !pg.Unavailable(err) || !s.waitForDatabase(ctx) {
			break
		}
	}
	s.unfinished.Go(func() { s.resolve(ctx, req, sent) })
	return claim
}

// leaveOut searches the rows that made the database refuse the claim with err, and makes req leave them out. It returns
// false if there are none in particular, or if the session drains.
func (s *sender) leaveOut(ctx context.Context, req *store.ClaimRequest, err error) (found bool) {
	within, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	for refused, err := range s.Store.Claims.FindRefused(within, *req, err) {
		if s.leftOut.add(refused) {
			s.Failing.Note(s.Logger(s.ID()), claimOf(refused), err)
			found = true
		}
	}
	s.leftOut.addTo(req)
	return found && ctx.Err() == nil
}

// claimedAgain notes what the database no longer refuses.
func (s *sender) claimedAgain(runs []*store.ClaimedRun) {
	for _, over := range s.leftOut.over(runs) {
		s.Failing.Over(s.Logger(s.ID()), claimOf(over))
	}
}

const (
	claiming     = "claim runs"    // the operation's name in the store's errors
	lastResolve  = 2 * time.Second // bounds the last query of a worker that drains
	resolvePause = 5 * time.Second // the longest pause between two queries
)

func (s *sender) claimWithin(d time.Duration, req store.ClaimRequest,
	f func(context.Context, store.ClaimRequest) (store.Claim, error),
) (store.Claim, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx, req)
}

// resolve yields the runs of a claim whose outcome is unknown. It queries for them until a query comes so long after
// sent that the claim must have become visible. After the end of ctx it queries once more. A coordinator releases the
// runs of an even later commit, like those of a dead worker.
func (s *sender) resolve(ctx context.Context, req store.ClaimRequest, sent time.Time) {
	for pause := outage.Pause; ; pause = min(2*pause, resolvePause) {
		select {
		case <-ctx.Done():
			_, _ = s.disownClaimed(lastResolve, req)
			return
		case <-time.After(pause):
		}
		asked := time.Now()
		found, err := s.disownClaimed(s.within, req)
		if err != nil {
			s.Trouble(err)
		} else if found || asked.Sub(sent) > store.LateClaims {
			return // one transaction took all of them
		}
	}
}

// disownClaimed makes the session yield the runs of a claim that no worker executes. It reports whether there are any.
func (s *sender) disownClaimed(within time.Duration, req store.ClaimRequest) (found bool, err error) {
	claim, err := s.claimWithin(within, req, s.Store.Claims.Resolve)
	if err != nil || len(claim.Runs) == 0 {
		return false, err
	}
	orphans := make([]orphan, len(claim.Runs))
	for i, r := range claim.Runs {
		orphans[i] = orphan{
			HeldRun: store.HeldRun{RunID: r.RunID, Lease: r.Lease}, queue: r.Queue, key: r.Key,
			of: "claim",
		}
	}
	s.orphans.disown(orphans...)
	return true, nil
}

// waitForDatabase pauses for an outage of the database. It returns false if ctx has ended or the session is fenced.
func (s *sender) waitForDatabase(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(outage.Pause):
		return !s.isFenced()
	}
}
