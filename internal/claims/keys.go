package claims

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// keys is what the policy knows of a queue's keys and limits, apart from its cursor. Claims from a queue that has
// neither only probe for keys at times. See store/doc_keys.go.
type keys struct {
	limited bool          // the queue has limits: every claim counts
	due     time.Time     // when the next key is due, by the database's clock; zero: none is
	seen    time.Time     // when a claim last found keys: for some time after that, every claim probes
	both    bool          // the last claim left runs with and without keys: the next one shares
	backoff time.Duration // the next pause while this worker cannot take what is due
	// the last claim that a hint caused found nothing but keys: the next such claim counts without a probe
	hinted    bool
	consumers bool // the last claim that counted looked at keys of consumers
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

// An ask is what a request for keys depends on, apart from the keys that the policy knows.
type ask struct {
	freed  []store.FreedKey // by runs of this worker
	full   bool             // the claim, or a rewind beside it, searches all due runs
	hinted bool             // a hint has caused the claim
	only   bool             // freed keys alone have caused it: nothing else is due, as far as is known
	free   int              // slots
	odd    int              // 0 or 1 at random: who gets the odd one of runs with and without keys
}

// counts reports whether the next claim takes runs with keys, or counts for limits.
func (k *keys) counts(a ask, database time.Time) bool {
	return k.limited || len(a.freed) > 0 || a.hinted && k.hinted || !k.due.IsZero() && !k.due.After(database)
}

// prepare adds to a claim what it needs for keys and limits.
func (k *keys) prepare(req *store.ClaimRequest, a ask, at Moment) {
	if !k.counts(a, at.Database) {
		req.Probe = a.full || at.Now.Sub(k.seen) < probeFor
		return
	}
	if k.limited {
		req.Limit = min(req.Limit, max(a.free, 0))
	}
	req.Keys = &store.KeysRequest{
		Plain: req.Limit, Keyed: req.Limit, Most: mostChanges, Freed: a.freed, Consumers: k.consumers,
	}
	if a.only {
		req.Keys.Only, req.Keys.Plain = true, 0
	} else if k.both {
		req.Keys.Plain = (req.Limit + a.odd) / 2
	}
}

// note takes from an answer when the next key is due. It reports whether one is.
func (k *keys) note(a answer) (isDue bool) {
	k.limited, k.due = a.claim.Limited, a.claim.Keys.Next
	if a.claim.Keys.Change > 0 {
		k.due = a.at.Database
	}
	if k.due.IsZero() {
		return false
	}
	k.seen = a.at.Now
	return !k.due.After(a.at.Database)
}

// probed judges the answer to a claim that has counted nothing.
func (k *keys) probed(a answer, isDue bool) (state, time.Duration) {
	k.hinted = isDue && len(a.claim.Runs) == 0
	if isDue || k.limited {
		return backlog, 0
	}
	return idle, k.untilDue(a)
}

// inVain reports whether the answer is that to a claim which a hint has caused, and which has counted without a probe
// for nothing: the hint was about something else, or about keys behind the cursor. A probe follows, which reads
// everything.
func (k *keys) inVain(a answer) bool {
	if !a.hinted || !k.hinted || a.claim.Keys.Read > 0 || a.claim.Keys.Looked > 0 {
		return false
	}
	k.hinted = false
	return true
}

// counted judges the answer to a claim that has counted. If foreign is true, this worker can execute no run of the keys
// that the claim looked at, perhaps of those behind them.
func (k *keys) counted(a answer, isDue bool) (s state, pause time.Duration, foreign bool) {
	answered := &a.claim.Keys
	plain := len(a.claim.Runs) - answered.Taken
	k.both = isDue && plain > 0 && plain >= a.Request.Keys.Plain
	switch {
	case k.limited && a.claim.Room <= 0:
		s, pause = k.noRoom(a, plain)
		return s, pause, false
	case answered.Read == mostChanges, isDue && answered.Taken > 0:
		k.backoff = 0
		return backlog, 0, false
	case isDue && lookedAtAll(a):
		return backlog, 0, true
	case moreWithoutKey(a, plain):
		return backlog, 0, false
	case isDue || len(answered.Busy) > 0:
		return blocked, k.backOff(a), false
	}
	k.backoff = 0
	return idle, k.untilDue(a), false
}

// lookedAtAll reports whether a claim looked at as many keys as it was to take runs of: there may be more.
func lookedAtAll(a answer) bool {
	looked := a.claim.Keys.Looked
	return looked > 0 && looked >= a.Request.Keys.Keyed
}

// moreWithoutKey reports whether a claim has taken as many runs without a key as it might, and left room for others.
func moreWithoutKey(a answer, plain int) bool {
	asked := a.Request.Keys
	return !asked.Only && plain >= asked.Plain && asked.Plain < a.Request.Limit
}

// noRoom judges the answer to a claim after which the limits of the queue allow no run.
func (k *keys) noRoom(a answer, plain int) (state, time.Duration) {
	if moreWithoutKey(a, plain) {
		return backlog, 0 // Room is at most what the claim asked for: there may be more
	}
	k.due = time.Time{}
	if at := a.claim.Keys.RateAt; at.After(a.claim.Now) { // there was no token for the claim; by now there may be one
		return blocked, min(a.wait, max(at.Sub(a.at.Database), 0))
	}
	return blocked, a.wait
}

// backOff returns the pause before the next try to take keys that are due.
func (k *keys) backOff(a answer) time.Duration {
	most := a.wait
	if a.claim.Keys.Looked == 0 {
		most = min(most, longestBackoff)
	}
	k.backoff = min(max(2*k.backoff, firstBackoff), most)
	k.due = a.at.Database.Add(k.backoff)
	return k.backoff + a.spread
}

// untilDue returns the time until the next key is due, at most that until the next claim without one.
func (k *keys) untilDue(a answer) time.Duration {
	if k.due.IsZero() {
		return a.wait
	}
	return min(a.wait, max(k.due.Sub(a.at.Database), 0)+a.spread)
}
