package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/claims"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// An orphan is a run that is RUNNING under a lease of the session, or may become so, and that the session does not
// execute: the answer to its claim or start was lost, or it is a stray. Heartbeats do not extend its lease, and no
// failure detector releases it, because the worker lives. So the session yields it.
type orphan struct {
	store.HeldRun
	queue string
	key   store.Key
	until time.Time // the run may be inserted until then; zero: it is there
	of    string    // its origin: "claim", "start" or "stray"
}

// suspension yields the run. A stray may have begun: then it keeps what the claim gave it.
func (o *orphan) suspension() *store.Suspension {
	return &store.Suspension{
		RunID: o.RunID, Lease: o.Lease, Status: store.Pending, WaitingOn: waits.List{{Kind: waits.Worker}},
		History: store.HistoryUntried,
		Unbegun: o.of != "stray",
	}
}

// orphans are the runs that a session is to yield, and the search for strays.
type orphans struct {
	*standing.Worker
	hints      *hints.Hints
	by         owner
	roster     *roster
	gate       *gate
	unfinished *sync.WaitGroup // what the drain waits for
	within     time.Duration   // the timeout of a statement that yields
	strays     strays

	mu       *sync.Mutex // the session's. It guards the fields below.
	runs     []orphan    // to yield. Added by disown, taken by yieldOrphans.
	yielding bool        // yieldOrphans is running, or about to.
}

// An owner claims the runs: it is the claimer.
type owner interface {
	keyFreed(queue string, key store.FreedKey)
	names() (active, left []string) // of its queues
}

// belongTo says who claims the runs. It is called before anything is disowned.
func (o *orphans) belongTo(by owner) { o.by = by }

// disown makes the session yield the runs, in another goroutine.
func (o *orphans) disown(runs ...orphan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disownLocked(runs...)
}

func (o *orphans) disownLocked(runs ...orphan) {
	o.runs = append(o.runs, runs...)
	if !o.yielding && len(runs) > 0 {
		o.yielding = true
		o.unfinished.Go(o.yieldOrphans)
	}
}

// areOfLocked reports whether any of them are of the queue.
func (o *orphans) areOfLocked(queue string) bool {
	return slices.ContainsFunc(o.runs, func(x orphan) bool { return x.queue == queue })
}

// yieldOrphans yields orphans until none is left. One that is not there is looked for until its statement must have
// become visible. A drain is not held up: yieldOrphans looks once more, and a coordinator releases the runs of an even
// later commit, like those of a dead worker.
func (o *orphans) yieldOrphans() {
	for pause, drains := time.Duration(0), false; ; pause = min(max(2*pause, outage.Pause), resolvePause) {
		select {
		case <-o.gate.drainBegins():
			drains = true
		case <-time.After(pause):
		}
		o.mu.Lock()
		runs := o.runs
		o.runs = nil
		o.mu.Unlock()
		var left []orphan
		for len(runs) > 0 {
			n := min(len(runs), claims.MostClaimed)
			left = append(left, o.yieldSome(runs[:n])...)
			runs = runs[n:]
		}
		o.mu.Lock()
		o.runs = append(o.runs, left...)
		o.yielding = len(o.runs) > 0 && !drains
		again := o.yielding
		o.mu.Unlock()
		if !again {
			return
		}
	}
}

// yieldSome yields those of the runs that are there, and returns those that may be there later, or that it could not
// yield.
func (o *orphans) yieldSome(runs []orphan) (left []orphan) {
	asked := time.Now()
	var yielded []orphan
	keep := func(x orphan, err error) {
		o.Trouble(err)
		left = append(left, x)
	}
	err := store.Isolate(runs, func(some []orphan) error {
		f := &store.Flush{}
		of := map[uuid.UUID]orphan{}
		for _, x := range some {
			of[x.RunID] = x
			f.Suspensions = append(f.Suspensions, x.suspension())
		}
		ctx, cancel := context.WithTimeout(context.Background(), o.within)
		defer cancel()
		if err := o.Store.Records.Flush(ctx, f); err != nil {
			return err
		}
		for _, p := range f.Suspensions {
			switch x := of[p.RunID]; {
			case p.Outcome == store.Done:
				yielded = append(yielded, x)
			case p.Outcome == store.Busy || asked.Before(x.until):
				left = append(left, x)
			}
		}
		return nil
	}, keep)
	if err != nil {
		o.Trouble(err)
		return append(left, runs...)
	}
	o.areYielded(yielded)
	return left
}

// areYielded logs a run that was yielded, and makes workers look at it: it is due, and has given up the slot of its
// key.
func (o *orphans) areYielded(yielded []orphan) {
	runs, queues := map[string][]uuid.UUID{}, map[string]bool{}
	for _, x := range yielded {
		runs[x.of] = append(runs[x.of], x.RunID)
		queues[x.queue] = true
		o.by.keyFreed(x.queue, store.FreedKey{Key: x.key})
	}
	for of, ids := range runs {
		log := o.Logger(o.ID()).With("runs", len(ids))
		if of == "stray" {
			log.Error("kagzi: runs were RUNNING under this worker, which did not execute them: they are given back",
				"first", ids[0])
		} else {
			log.Info(fmt.Sprintf("kagzi: a %s without an answer left runs to this worker: they are given back", of))
		}
	}
	for q := range queues {
		_ = o.hints.Due(standing.NoWait, nil, store.DueRun{Queue: q}) // fails only in a transaction
	}
}

// strays are what the session knows of the search for runs that the table says it holds, and that it does not execute.
// Such runs must not exist: the search is a check of everything that claims and ends runs. See
// internal/worker/doc_claims.go.
type strays struct {
	wake      chan struct{}     // of tests: a search is to begin now
	heartbeat time.Duration     // the pause between two searches, as a rule
	given     store.LeasesGiven // for which it searches: the same in every search

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

// sentLocked notes that a claim or a start in place is being sent at that time.
func (o *orphans) sentLocked(at time.Time) { o.strays.sent = at }

// strayLoop searches for strays after each heartbeat, until the session drains.
func (o *orphans) strayLoop() {
	begun := time.Now()
	for {
		select {
		case <-o.gate.drainBegins():
			return
		case <-o.strays.wake:
		case <-time.After(max(o.strays.heartbeat, time.Second)):
		}
		if o.strays.after.IsZero() {
			o.strays.after = o.Now().Add(-time.Since(begun) - time.Minute) // the worker is younger
		}
		o.searchStrays()
	}
}

// searchStrays searches the leases that were given since the last search, and yields the runs that are not executed. A
// run counts only if that is so again after a heartbeat: an execution may just have ended. It does not count while an
// old claim is under way, which may bring it.
func (o *orphans) searchStrays() {
	begun := time.Now()
	active, left := o.by.names()
	o.mu.Lock()
	sent, age := o.strays.sent, o.strays.age
	o.mu.Unlock()
	if sent.IsZero() || sent.Before(o.strays.searched.Add(-age)) && len(o.strays.cut) == 0 || o.gate.isFenced() {
		return // no lease is new since the last search
	}
	given := o.strays.given
	given.Worker, given.Queues, given.After, given.Age = o.ID(), append(active, left...), o.strays.after, age
	found, until, err := o.Store.Leases.Given(context.Background(), given)
	if err != nil {
		o.Trouble(err)
		return
	}
	if found = o.strays.old(o.notExecuted(found), begun, age); len(found) > 0 {
		goroutine.Signal(o.Heartbeats)
		select {
		case <-o.gate.drainBegins():
			return
		case <-time.After(o.strays.heartbeat):
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.roster.claimedBeforeLocked(begun.Add(-age)) {
			return // its answer may have them: the next search finds them again
		}
		var strays []orphan
		for _, r := range o.roster.notExecutedLocked(found) {
			strays = append(strays, orphan{HeldRun: r.HeldRun, queue: r.Queue, key: r.Key, of: "stray"})
		}
		o.disownLocked(strays...)
	}
	o.strays.after, o.strays.searched = until, begun
}

func (o *orphans) notExecuted(runs []store.LeasedRun) []store.LeasedRun {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.roster.notExecutedLocked(runs)
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
