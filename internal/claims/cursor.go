package claims

import (
	"maps"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A cursor is where the claims from a queue begin to search: behind it lie only dead entries, as far as is known, which
// stay in the indexes while a transaction holds an old snapshot. Claims advance it to where they got to.
//
// It passes entries that were locked, or not yet committed. A full claim begins at the front, and finds them. Once full
// claims take long, a rewind finds runs instead: a query beside the claims, which do not wait for it. The next claim
// begins at the first run that it finds. Keys and changes are found by probes, which read everything and rewind the
// cursor. See the package's comment.
type cursor struct {
	runs   map[store.Pair]time.Time // by due time, for each pair
	line   time.Time                // by place
	change int64                    // by ID

	took   time.Duration // what the shorter of the last two full claims took: a single answer may have been late
	last   time.Duration // what the last full claim took
	ended  time.Time     // when it ended
	rewind *rewind       // under way, or answered since the last claim; else nil

	lineRead time.Time // when a claim last read the line from its front
	keysFull time.Time // when the next claim may read the changes from their front, and the line
	passes   bool      // the claims are on their way past keys of which this worker can execute no run
}

// A rewind is a search for runs behind the cursor.
type rewind struct {
	answered bool
	missed   map[store.Pair]time.Time // for each pair, when the first run became due that the claims have missed
	took     time.Duration
}

const (
	// perFullClaim bounds the time of the full claims from all queues to a tenth: if there is one queue, the next one
	// is due nine times as long after one of them as that took. After a PollInterval it is due in any case.
	perFullClaim = 10

	// longFullClaim is how long a full claim may take. Rewinds replace longer ones.
	longFullClaim = 20 * time.Millisecond

	// aheadBesideRewinds is how far claims look ahead for the next due run while full claims take long: leases that
	// ended early have left dead entries there, too.
	aheadBesideRewinds = time.Second
)

// A pace is what the time between two full claims depends on.
type pace struct {
	pollInterval time.Duration
	queues       int // of the worker
}

// after returns how long after a full claim that took so long the next one is due.
func (p pace) after(took time.Duration) time.Duration {
	return min((perFullClaim*time.Duration(p.queues)-1)*took, p.pollInterval)
}

// nextFull returns when the next full claim, or rewind, is due.
func (c *cursor) nextFull(p pace) time.Time { return c.ended.Add(p.after(c.took)) }

// searchesMore reports whether the next claim has to search more than the last ones: a full claim is due, or a rewind
// was answered.
func (c *cursor) searchesMore(now time.Time, p pace) bool {
	return !now.Before(c.nextFull(p)) || c.rewind != nil && c.rewind.answered
}

// fullEnded notes that a full claim or a rewind was answered, or failed.
func (c *cursor) fullEnded(took time.Duration, now time.Time) {
	c.ended = now
	c.took, c.last = min(c.last, took), took
}

// begin sets which due runs the claim is to search. It reports whether these are all, and whether a rewind begins.
func (c *cursor) begin(req *store.ClaimRequest, at Moment, p pace) (full, rewinds bool) {
	missed := c.missed(at.Now)
	untilNext := c.nextFull(p).Sub(at.Now)
	if c.took <= longFullClaim {
		if untilNext > 0 {
			req.Since, req.Ahead = c.runs, min(untilNext, p.pollInterval)
		}
		return untilNext <= 0, false
	}
	unsearched := c.addMissing(req.Pairs(), at.Database.Add(-store.LateCommit))
	req.Since, req.Ahead = maps.Clone(c.runs), min(aheadBesideRewinds, p.pollInterval)
	maps.Copy(req.Since, missed) // for this claim alone: if it takes too long, the next begins where others got to
	if c.rewind == nil && (untilNext <= 0 || unsearched) {
		c.rewind = &rewind{}
		return false, true
	}
	return false, false
}

// missed returns what the last rewind has found, once. One that has found something did not search everything, so the
// time that it took says nothing about the next.
func (c *cursor) missed(now time.Time) map[store.Pair]time.Time {
	found := c.rewind
	if found == nil || !found.answered {
		return nil
	}
	c.rewind = nil
	if len(found.missed) > 0 {
		c.ended = now
		return found.missed
	}
	c.fullEnded(found.took, now)
	return nil
}

// addMissing makes the claims begin at now for each pair in which none has got anywhere. It reports whether there is
// one.
func (c *cursor) addMissing(pairs []store.Pair, now time.Time) (added bool) {
	for _, p := range pairs {
		if _, ok := c.runs[p]; !ok {
			c.advance(map[store.Pair]time.Time{p: now})
			added = true
		}
	}
	return added
}

// advance makes the next claim that is not full begin where this one got to.
func (c *cursor) advance(reached map[store.Pair]time.Time) {
	if c.runs == nil {
		c.runs = map[store.Pair]time.Time{}
	}
	maps.Copy(c.runs, reached)
}

// beginKeys sets from where the claim reads the line and the changes of keys: from the front if it is full, and the
// last one that did so has paid for itself, or if no claim has read the whole line for a PollInterval. If a full one
// does not read the changes from the front, beginKeys returns how long it takes until the next one may.
func (c *cursor) beginKeys(req *store.KeysRequest, full bool, now time.Time, p pace) (wait time.Duration) {
	wait = c.keysFull.Sub(now)
	switch {
	case full && wait <= 0 && !c.passes || now.Sub(c.lineRead) > p.pollInterval:
		c.lineRead = now
	case full && wait <= 0: // else the way past many keys would never end
		req.Line = c.line
	default:
		req.Line, req.Change = c.line, c.change
		if full {
			return wait
		}
	}
	return 0
}

// keysEnded notes what a claim of keys took. Those that read from the front take a tenth of the time, as full claims
// do: a rewind, which says how long a full claim would take, reads nothing of keys.
func (c *cursor) keysEnded(req *store.KeysRequest, took time.Duration, now time.Time, p pace) {
	if req.Change == 0 {
		c.keysFull = now.Add(p.after(took))
	}
}

// advanceKeys makes the next claim of keys begin where this one got to, or an earlier one if this began at the front.
func (c *cursor) advanceKeys(a *store.Keys, database time.Time) {
	c.change = max(c.change, a.LastChange+1)
	if a.Change > 0 {
		c.change = a.Change
	}
	c.line = database.Add(-store.LateCommit)
	if !a.Next.IsZero() && a.Next.Before(c.line) {
		c.line = a.Next
	}
}

// passBy makes the next claim of keys begin behind the place last.
func (c *cursor) passBy(last time.Time) { c.line = last.Add(time.Microsecond) }

// rewindKeys makes the next claim of keys begin where a probe has found something before. IDs of changes are older than
// their commits, so a transaction that was open for long leaves changes behind the place that claims have reached.
func (c *cursor) rewindKeys(a *store.Keys) {
	if a.Change > 0 {
		c.change = min(c.change, a.Change)
	}
	if !a.Next.IsZero() && a.Next.Before(c.line) {
		c.line = a.Next
	}
}
