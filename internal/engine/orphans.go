package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// An orphan is a run that is RUNNING under a lease of the session, or may become so, and that the session does not
// execute: the answer to its claim or start was lost, or it is a stray. Heartbeats do not extend its lease, and no
// failure detector releases it, because the worker lives. So the session yields it.
type orphan struct {
	store.HeldRun
	queue string
	key   store.Key
	until time.Time // the run may be inserted until then; zero: it is there
	of    string    // what has left it: "claim", "start" or "stray"
}

// suspension yields the run. A stray may have begun: then it keeps what the claim gave it.
func (o *orphan) suspension() *store.Suspension {
	return &store.Suspension{
		RunID: o.RunID, Lease: o.Lease, Status: store.Pending, WaitingOn: "worker", History: store.HistoryUntried,
		Unbegun: o.of != "stray",
	}
}

// disown makes the session yield the orphans, in another goroutine.
func (s *Session) disown(orphans ...orphan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disownLocked(orphans...)
}

func (s *Session) disownLocked(orphans ...orphan) {
	s.orphans = append(s.orphans, orphans...)
	if !s.yielding && len(orphans) > 0 {
		s.yielding = true
		s.unfinished.Go(s.yieldOrphans)
	}
}

// yieldOrphans yields orphans until none is left. One that is not there is looked for until its statement must have
// become visible. A drain is not held up: yieldOrphans looks once more, and a coordinator releases the runs of an even
// later commit, like those of a dead worker.
func (s *Session) yieldOrphans() {
	for pause, drains := time.Duration(0), false; ; pause = min(max(2*pause, outage.Pause), resolvePause) {
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
			n := min(len(orphans), claims.MostClaimed)
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

// yieldSome yields those of the orphans that are there, and returns those that may be there later, or that it could not
// yield.
func (s *Session) yieldSome(orphans []orphan) (left []orphan) {
	asked := time.Now()
	var yielded []orphan
	keep := func(o orphan, err error) {
		s.databaseTrouble(err)
		left = append(left, o)
	}
	err := store.Isolate(orphans, func(some []orphan) error {
		f := &store.Flush{}
		of := map[uuid.UUID]orphan{}
		for _, o := range some {
			of[o.RunID] = o
			f.Suspensions = append(f.Suspensions, o.suspension())
		}
		ctx, cancel := context.WithTimeout(s.background, s.claimTime())
		defer cancel()
		if err := s.store.Records.Flush(ctx, f); err != nil {
			return err
		}
		for _, p := range f.Suspensions {
			switch o := of[p.RunID]; {
			case p.Outcome == store.Done:
				yielded = append(yielded, o)
			case p.Outcome == store.Busy || asked.Before(o.until):
				left = append(left, o)
			}
		}
		return nil
	}, keep)
	if err != nil {
		s.databaseTrouble(err)
		return append(left, orphans...)
	}
	s.orphansYielded(yielded)
	return left
}

// orphansYielded logs what was yielded, and makes workers look at it: it is due, and has given up the slot of its key.
func (s *Session) orphansYielded(yielded []orphan) {
	runs, queues := map[string][]uuid.UUID{}, map[string]bool{}
	for _, o := range yielded {
		runs[o.of] = append(runs[o.of], o.RunID)
		queues[o.queue] = true
		s.keyFreed(&store.ClaimedRun{Queue: o.queue, Key: o.key})
	}
	for of, ids := range runs {
		log := s.logger(s.ID()).With("runs", len(ids))
		if of == "stray" {
			log.Error("kagzi: runs were RUNNING under this worker, which did not execute them: they are given back",
				"first", ids[0])
		} else {
			log.Info(fmt.Sprintf("kagzi: a %s without an answer left runs to this worker: they are given back", of))
		}
	}
	for q := range queues {
		_ = s.cfg.Hints.Due(s.noWait, nil, store.DueRun{Queue: q}) // fails only in a transaction
	}
}

// strays are what the session knows of the search for runs that the table says it holds, and that it does not execute.
// Such runs must not exist: the search is a check of everything that claims and ends runs. See doc_claims.go.
type strays struct {
	wake chan struct{} // of tests: a search is to begin now

	// The session's mutex guards these.
	age  time.Duration // store.LateClaims, but for tests
	sent time.Time     // when a claim or a start in place was last sent

	// Only the goroutine of strayLoop uses these.
	after    time.Time // by the database's clock: the leases that were given earlier have been searched
	searched time.Time // when the last search began

	// When a search first found runs whose leases end with their deadlines, by lease. The table does not say when such
	// a lease was given.
	cut map[uuid.UUID]time.Time
}

// strayLoop searches for strays after each heartbeat, until the session drains.
func (s *Session) strayLoop() {
	begun := time.Now()
	for {
		select {
		case <-s.drains:
			return
		case <-s.strays.wake:
		case <-time.After(max(s.cfg.Heartbeat, time.Second)):
		}
		if s.strays.after.IsZero() {
			s.strays.after = s.now().Add(-time.Since(begun) - time.Minute) // the worker is younger
		}
		s.searchStrays()
	}
}

// searchStrays searches the leases that were given since the last search, and yields the runs that are not executed. A
// run counts only if that is so again after a heartbeat: an execution may just have ended. It does not count while an
// old claim is under way, which may bring it.
func (s *Session) searchStrays() {
	begun := time.Now()
	s.mu.Lock()
	active, left := s.claims.Names()
	sent, age := s.strays.sent, s.strays.age
	s.mu.Unlock()
	if sent.IsZero() || sent.Before(s.strays.searched.Add(-age)) && len(s.strays.cut) == 0 || s.isFenced() {
		return // no lease is new since the last search
	}
	given := store.LeasesGiven{
		Worker: s.ID(), Queues: append(active, left...), LeaseTimeout: s.cfg.LeaseTimeout,
		After: s.strays.after, Age: age,
	}
	for _, t := range s.cfg.Types {
		given.Types = append(given.Types, t.Type)
	}
	found, until, err := s.store.Leases.Given(s.background, given)
	if err != nil {
		s.databaseTrouble(err)
		return
	}
	if found = s.strays.old(s.notExecuted(found), begun, age); len(found) > 0 {
		goroutine.Signal(s.heartbeats)
		select {
		case <-s.drains:
			return
		case <-time.After(s.cfg.Heartbeat):
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.claiming && s.claimed.Before(begun.Add(-age)) {
			return // its answer may have them: the next search finds them again
		}
		var orphans []orphan
		for _, r := range s.notExecutedLocked(found) {
			orphans = append(orphans, orphan{HeldRun: r.HeldRun, queue: r.Queue, key: r.Key, of: "stray"})
		}
		s.disownLocked(orphans...)
	}
	s.strays.after, s.strays.searched = until, begun
}

// old returns those of the runs whose leases were given longer ago than age. It notes the others: their leases do not
// say it.
func (s *strays) old(runs []store.LeasedRun, now time.Time, age time.Duration) (old []store.LeasedRun) {
	cut := map[uuid.UUID]time.Time{}
	for _, r := range runs {
		if r.Cut {
			first, known := s.cut[r.Lease]
			if !known {
				first = now
			}
			cut[r.Lease] = first
			if now.Sub(first) < age {
				continue
			}
		}
		old = append(old, r)
	}
	s.cut = cut
	return old
}

func (s *Session) notExecuted(runs []store.LeasedRun) []store.LeasedRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notExecutedLocked(runs)
}

// notExecutedLocked returns those of the runs that the session neither executes under their leases nor is inserting.
func (s *Session) notExecutedLocked(runs []store.LeasedRun) (out []store.LeasedRun) {
	for _, r := range runs {
		e := s.executing[r.RunID]
		if _, inserting := s.reserved[r.RunID]; !inserting && (e == nil || e.Lease != r.Lease) {
			out = append(out, r)
		}
	}
	return out
}

// claimRuns claims, and resolves the claim by its lease if its outcome is unknown. A claim whose answer is lost may
// have taken runs, or may yet take them, if the server has not executed it yet. No worker executes those runs. See
// store/doc_lostanswers.go.
//
// A result without Now is a claim that took nothing, as far as known. If an input may have failed the claim, claimRuns
// claims without inputs, and the loader reads them: so an unreadable input keeps no other run from being claimed. Runs
// that the database refuses to give are left out of this claim and the next ones.
func (s *Session) claimRuns(ctx context.Context, req store.ClaimRequest) store.Claim {
	sent := time.Now()
	s.leftOut.addTo(&req)
	claim, err := s.claimWithin(s.claimTime(), req, s.store.Claims.Claim)
	if store.MayBeRowError(err) && ctx.Err() == nil {
		req.NoInputs, sent = true, time.Now()
		claim, err = s.claimWithin(s.claimTime(), req, s.store.Claims.Claim)
	}
	for tries := 0; err != nil && tries < mostSearches && s.leaveOut(ctx, &req, err); tries++ {
		sent = time.Now()
		claim, err = s.claimWithin(s.claimTime(), req, s.store.Claims.Claim)
	}
	if err == nil {
		s.outage.End()
		s.failures.Over(s.logger(req.Worker), claiming)
		s.claimedAgain(claim.Runs)
		return claim
	}
	s.databaseTrouble(err)
	if pg.Unsent(err) || pg.Answered(err) || pg.Repeatable(err) {
		return store.Claim{}
	}
	for ctx.Err() == nil {
		claim, err = s.claimWithin(s.claimTime(), req, s.store.Claims.Resolve)
		if len(claim.Runs) > 0 {
			return claim // one transaction took all of them
		}
		if err == nil {
			break
		}
		s.databaseTrouble(err)
		if !pg.Unavailable(err) || !s.waitForDatabase(ctx) {
			break
		}
	}
	s.unfinished.Go(func() { s.resolve(ctx, req, sent) })
	return claim
}

// leaveOut searches what made the database refuse the claim with err, and makes req leave it out. It returns false if
// that is nothing in particular, or if the session drains.
func (s *Session) leaveOut(ctx context.Context, req *store.ClaimRequest, err error) (found bool) {
	within, cancel := context.WithTimeout(ctx, s.claimTime())
	defer cancel()
	for c, err := range s.store.Claims.FindRefused(within, *req, err) {
		if s.leftOut.add(c) {
			s.failures.Note(s.logger(s.ID()), claimOf(c), err)
			found = true
		}
	}
	s.leftOut.addTo(req)
	return found && ctx.Err() == nil
}

// claimedAgain notes what the database no longer refuses.
func (s *Session) claimedAgain(runs []*store.ClaimedRun) {
	for _, c := range s.leftOut.over(runs) {
		s.failures.Over(s.logger(s.ID()), claimOf(c))
	}
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

func (s *Session) claimWithin(d time.Duration, req store.ClaimRequest,
	f func(context.Context, store.ClaimRequest) (store.Claim, error),
) (store.Claim, error) {
	ctx, cancel := context.WithTimeout(s.background, d)
	defer cancel()
	return f(ctx, req)
}

// resolve yields the runs of a claim whose outcome is unknown. It queries for them until a query comes so long after
// sent that the claim must have become visible. After the end of ctx it queries once more. A coordinator releases the
// runs of an even later commit, like those of a dead worker.
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

// disownClaimed makes the session yield the runs of a claim that no worker executes. It reports whether there are any.
func (s *Session) disownClaimed(within time.Duration, req store.ClaimRequest) (found bool, err error) {
	claim, err := s.claimWithin(within, req, s.store.Claims.Resolve)
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
