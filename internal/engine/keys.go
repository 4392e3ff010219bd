package engine

import (
	"math/rand/v2"
	"time"

	"github.com/kagzi/kagzi/store"
)

// keys is what a session knows of a queue's keys and limits. Claims from a queue that has neither only probe for keys
// at times. The session's mutex guards it, and the methods are called with it held. See docs/architecture.md, Keys and
// slots.
type keys struct {
	limited bool          // the queue has limits: every claim counts
	due     time.Time     // when the next key is due, by the database's clock; zero: none is
	seen    time.Time     // when a claim last found keys: for some time after that, every claim probes
	full    time.Time     // when a claim last looked at the whole line
	line    time.Time     // the place from which claims look at the line
	passes  bool          // they are on their way past keys of which this worker can execute no run
	change  int64         // the ID from which they read changes
	both    bool          // the last claim left runs with and without keys: the next one shares
	backoff time.Duration // the next pause while this worker cannot take what is due
	// the last claim that something woke found nothing but keys: the next such claim counts without a probe
	wakes   bool
	unasked bool // the claim under way is such a claim
	consume bool // the last claim that counted looked at keys of consumers
}

const (
	// mostChanges bounds the changes of one claim.
	mostChanges = 500

	// probeFor is how long after the last key every claim probes for more.
	probeFor = 10 * time.Second

	// firstBackoff is the first pause while others have locked the keys that are due, or this worker cannot execute
	// their runs. It doubles up to longestBackoff, and in the second case up to the PollInterval.
	firstBackoff   = time.Millisecond
	longestBackoff = 64 * time.Millisecond
)

// counts reports whether the next claim takes runs with keys, or counts for limits. handed says that keys were handed
// to it, and woken that something has woken the session.
func (k *keys) counts(handed, woken bool, now time.Time) bool {
	return k.limited || handed || woken && k.wakes || !k.due.IsZero() && !k.due.After(now)
}

// prepare adds to a claim what it needs for keys and limits. full says that it searches all due runs, free is the
// number of free slots, and now the estimate of the database's time.
//
// woken says that something has woken the session. only says that the claim comes for the keys that were handed alone:
// nothing else is due, as far as is known.
func (k *keys) prepare(req *store.ClaimRequest, handed []store.Key, full, woken, only bool, free int, now time.Time,
	pollInterval time.Duration,
) {
	k.unasked = woken && k.wakes
	if !k.counts(len(handed) > 0, woken, now) {
		req.Probe = full || time.Since(k.seen) < probeFor
		return
	}
	if k.limited {
		req.Limit = min(req.Limit, max(free, 0))
	}
	r := &store.KeysRequest{Plain: req.Limit, Keyed: req.Limit, Most: mostChanges, Handed: handed, Consumers: k.consume}
	if only && !full && !k.limited && !k.both {
		r.Only, r.Plain = true, 0
	} else if k.both {
		r.Plain = (req.Limit + rand.IntN(2)) / 2
	}
	switch {
	case full && !k.passes || time.Since(k.full) > pollInterval:
		k.full = time.Now()
	case full: // else the way past many keys would never end
		r.Line = k.line
	default:
		r.Line, r.Change = k.line, k.change
	}
	req.Keys = r
}

// learn takes from the answer what the next claim needs to know, and returns the pause before it, at most the one
// given. now is the estimate of the database's time.
func (k *keys) learn(req *store.ClaimRequest, claim *store.Claim, now time.Time, pause time.Duration) time.Duration {
	a := &claim.Keys
	k.limited, k.due = claim.Limited, a.Next
	if a.Change > 0 {
		k.due = now
	}
	if !k.due.IsZero() {
		k.seen = time.Now()
	}
	isDue := !k.due.IsZero() && !k.due.After(now)
	if req.Keys == nil {
		k.wakes = isDue && len(claim.Runs) == 0
		k.moveBack(a)
		if isDue || k.limited {
			return 0
		}
		return k.untilDue(now, pause)
	}
	k.moveOn(req, a, now)
	k.consume = a.Consumers
	// what woke it is something else, or lies behind: a probe reads everything
	if k.unasked && a.Read == 0 && a.Looked == 0 {
		k.wakes = false
		return 0
	}
	plain := len(claim.Runs) - a.Taken
	k.passes = a.Looked > 0 && a.Looked >= req.Keys.Keyed && (k.passes || a.Taken == 0)
	k.both = isDue && plain > 0 && plain >= req.Keys.Plain
	switch {
	case k.limited && claim.Room <= 0 && plain >= req.Keys.Plain && req.Keys.Plain < req.Limit:
		return 0 // Room is at most what the claim asked for: there may be more
	case k.limited && claim.Room <= 0:
		if a.RateAt.After(claim.Now) { // there was no token for the claim; by now there may be one
			pause = min(pause, max(a.RateAt.Sub(now), 0))
		}
		k.due = time.Time{}
		return pause
	case a.Read == mostChanges, isDue && a.Taken > 0:
		k.backoff = 0
		return 0
	case isDue && a.Looked > 0 && a.Looked >= req.Keys.Keyed:
		// this worker can execute no run of these keys, perhaps of those behind them
		k.line = a.Last.Add(time.Microsecond)
		return 0
	case isDue || len(a.Busy) > 0:
		most := pause
		if a.Looked == 0 {
			most = min(pause, longestBackoff)
		}
		k.backoff = min(max(2*k.backoff, firstBackoff), most)
		k.due = now.Add(k.backoff)
		return k.backoff + rand.N(firstBackoff)
	}
	k.backoff = 0
	return k.untilDue(now, pause)
}

// moveOn sets from where the next claim looks at the line and reads changes: the dead entries before stay in the
// indexes while somebody holds an old snapshot.
func (k *keys) moveOn(req *store.ClaimRequest, a *store.Keys, now time.Time) {
	k.change = max(req.Keys.Change, a.LastChange+1)
	if a.Change > 0 {
		k.change = a.Change
	}
	k.line = now.Add(-store.LateCommit)
	if !a.Next.IsZero() && a.Next.Before(k.line) {
		k.line = a.Next
	}
}

// moveBack makes the next claim begin where a probe has found something before. A probe reads everything: IDs of
// changes are older than their commits, so a transaction that was open for long leaves changes behind the place that
// claims have reached.
func (k *keys) moveBack(a *store.Keys) {
	if a.Change > 0 {
		k.change = min(k.change, a.Change)
	}
	if !a.Next.IsZero() && a.Next.Before(k.line) {
		k.line = a.Next
	}
}

// untilDue returns the time until the next key is due, at most pause.
func (k *keys) untilDue(now time.Time, pause time.Duration) time.Duration {
	if !k.due.IsZero() {
		pause = min(pause, max(k.due.Sub(now), 0)+rand.N(firstBackoff))
	}
	return pause
}
