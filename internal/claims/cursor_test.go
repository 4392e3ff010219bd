package claims

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A claim begins where the last one got to, unless a full claim is due. Once full claims take long, no claim is full,
// and a rewind is due instead.
func TestWhereClaimsBegin(t *testing.T) {
	t.Parallel()
	const long = time.Minute
	for name, tt := range map[string]struct {
		took, ago     time.Duration // of the last full claim
		rewind        *rewind
		new           bool // no claim has got anywhere
		full, rewinds bool
		ahead         time.Duration
		begins        time.Duration // after start
	}{
		"the first":               {new: true, full: true, ahead: poll},
		"a full claim is due":     {took: time.Millisecond, ago: 9 * time.Millisecond, full: true, ahead: poll},
		"a full claim is not due": {took: time.Millisecond, ago: 8 * time.Millisecond, ahead: time.Millisecond},
		"a rewind is due":         {took: long, ago: poll, rewinds: true, ahead: aheadBesideRewinds},
		"a rewind is not due":     {took: long, ago: time.Second, ahead: aheadBesideRewinds},
		"a rewind is under way":   {took: long, ago: poll, rewind: &rewind{}, ahead: aheadBesideRewinds},
		"a rewind found nothing": {
			took: long, ago: poll, rewind: &rewind{answered: true, took: long}, ahead: aheadBesideRewinds,
		},
		"a rewind found a run": {
			took: long, ago: poll, rewind: &rewind{answered: true, missed: reached(start.Add(-time.Hour)), took: long},
			ahead: aheadBesideRewinds, begins: -time.Hour,
		},
		"no claim got anywhere": {
			took: long, ago: time.Second, new: true, rewinds: true, ahead: aheadBesideRewinds,
			begins: -store.LateCommit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cursor{took: tt.took, last: tt.took, ended: start.Add(-tt.ago), rewind: tt.rewind}
			if !tt.new {
				c.advance(reached(start))
			}
			if name == "the first" {
				c.ended = time.Time{}
			}
			req := store.ClaimRequest{Types: types, Ahead: poll}
			full, rewinds := c.begin(&req, at(0), pace{poll, 1})
			if full != tt.full || rewinds != tt.rewinds || req.Ahead != tt.ahead {
				t.Errorf("full %t, rewinds %t, ahead %v", full, rewinds, req.Ahead)
			}
			for _, pair := range pairs {
				if since := req.Since[pair]; full != since.IsZero() || !full && !since.Equal(start.Add(tt.begins)) {
					t.Errorf("begins at %v", since)
				}
			}
			if answered := tt.rewind != nil && tt.rewind.answered; answered && c.rewind != nil {
				t.Error("the answer of the rewind is used twice")
			}
		})
	}
}

// A rewind's answer makes the next claim come at once if it has found anything. The claim after that begins where the
// others got to.
func TestRewound(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{true, false} {
		p := settled(t)
		q := p.queues[0]
		q.cursor.took, q.cursor.last = time.Minute, time.Minute
		claim := plan(t, p, poll)
		if !claim.Rewind {
			t.Fatal("no rewind")
		}
		end(p, claim, nothing(poll), 0, poll)
		missed := map[store.Pair]time.Time{}
		if found {
			missed[pairs[0]] = start.Add(-time.Hour)
		}
		p.Rewound("q", missed, time.Minute)
		if hinted := q.state == hinted; hinted != found {
			t.Errorf("a rewind found a run %t, and has made a claim due %t", found, hinted)
		}
		p.Hint("q")
		claim = plan(t, p, poll)
		if back := claim.Request.Since[pairs[0]].Before(start); back != found || claim.Rewind {
			t.Errorf("the next claim begins at %v, and rewinds %t", claim.Request.Since[pairs[0]], claim.Rewind)
		}
		end(p, claim, store.Claim{}, 0, poll)
		p.Hint("q")
		if claim = plan(t, p, poll); claim.Request.Since[pairs[0]].Before(start) || claim.Rewind {
			t.Error("the claim after it begins there, too, or rewinds at once")
		}
	}
	p := settled(t)
	p.Rewound("q", reached(start), 0)
	if p.Rewound("forgotten", reached(start), 0); p.queues[0].state != idle {
		t.Error("a rewind that is not under way has made a claim due")
	}
}

// One full claim that takes long, as if its answer had been late, does not put off the next one. A second one does.
func TestRestAfterFullClaims(t *testing.T) {
	t.Parallel()
	const short, long = 0, 10 * time.Minute
	rest := func(p pace, took ...time.Duration) time.Duration {
		var c cursor
		for _, d := range took {
			c.fullEnded(d, start)
		}
		return c.nextFull(p).Sub(start)
	}
	for _, tt := range []struct {
		took []time.Duration
		long bool
	}{
		{[]time.Duration{long}, false},
		{[]time.Duration{short, long}, false},
		{[]time.Duration{short, long, long}, true},
		{[]time.Duration{long, long, short}, false},
	} {
		if got := rest(pace{24 * time.Hour, 1}, tt.took...); got > long != tt.long {
			t.Errorf("after full claims of %v the next is due in %v", tt.took, got)
		}
	}
	if got := rest(pace{time.Minute, 1}, long, long); got != time.Minute {
		t.Errorf("the next full claim is due in %v, want no later than in a PollInterval", got)
	}
	if got := rest(pace{24 * time.Hour, 3}, time.Minute, time.Minute); got != 29*time.Minute {
		t.Errorf("with three queues the next full claim is due in %v, want 29 minutes: all of them together take a "+
			"tenth of the time", got)
	}
}

// What full claims take is counted also if they fail, but not if their answers were lost.
func TestFullClaimsThatFail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claim store.Claim
		want  bool
	}{
		"answered": {nothing(0), true}, "failed": {store.Claim{}, true}, "lost": {store.Claim{Now: start}, false},
		"no room": {store.Claim{Now: start, Limited: true, Reached: map[store.Pair]time.Time{}}, false},
	} {
		p := newPolicy("q")
		end(p, plan(t, p, 0), tt.claim, time.Hour, 0)
		if counted := p.queues[0].cursor.last == time.Hour; counted != tt.want {
			t.Errorf("%s: counted is %t", name, counted)
		}
	}
}

// A claim of keys begins at the place that the last one got to, unless it is to search everything, or none has for a
// PollInterval.
func TestWhereClaimsOfKeysBegin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		full, passes bool
		read         time.Duration // how long ago the whole line was read
		line, change bool          // does it begin at the cursor?
	}{
		"goes on":              {line: true, change: true},
		"a full claim":         {full: true},
		"after a PollInterval": {read: 2 * poll},
		"past foreign keys":    {full: true, passes: true, line: true},
		"past them for long":   {full: true, passes: true, read: 2 * poll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cursor{line: start, change: 7, lineRead: start.Add(-tt.read), passes: tt.passes}
			var req store.KeysRequest
			c.beginKeys(&req, tt.full, start, pace{poll, 1})
			if req.Line.IsZero() == tt.line || req.Change == 0 == tt.change {
				t.Errorf("line %v, change %d", req.Line, req.Change)
			}
			if whole := c.lineRead.Equal(start) && tt.read > 0 || tt.full && !tt.passes; whole != (!tt.line) {
				t.Errorf("the whole line counts as read: %t", whole)
			}
		})
	}
}

// Of claims that read the keys from their front, the next one waits nine times as long as the last one took, whatever a
// rewind took.
func TestPaceOfKeys(t *testing.T) {
	t.Parallel()
	c, p := cursor{line: start, change: 7, lineRead: start}, pace{time.Second, 1}
	for _, tt := range []struct {
		after time.Duration // since start
		took  time.Duration
		front bool
	}{
		{0, 50 * time.Millisecond, true},
		{449 * time.Millisecond, time.Millisecond, false},
		{450 * time.Millisecond, 500 * time.Millisecond, true},
		{1449 * time.Millisecond, time.Millisecond, false},
		{1450 * time.Millisecond, time.Millisecond, true}, // after a PollInterval
	} {
		var req store.KeysRequest
		now := start.Add(tt.after)
		c.beginKeys(&req, true, now, p)
		if front := req.Change == 0 && req.Line.IsZero(); front != tt.front {
			t.Errorf("after %v: from the front: %t, want %t", tt.after, front, tt.front)
		}
		c.keysEnded(&req, tt.took, now, p)
	}
}

// A full claim that may not read the changes from their front has missed those that were committed late. The claim that
// may follows as soon as it may, not after a PollInterval.
func TestClaimOfAllKeysFollows(t *testing.T) {
	t.Parallel()
	p := newPolicy("q")
	due, read := nothing(0), nothing(0)
	due.Keys.Change, read.Keys = 7, store.Keys{Read: 1, LastChange: 7}
	end(p, plan(t, p, 0), due, 0, 0)
	end(p, plan(t, p, 0), read, 50*time.Millisecond, 0)
	p.Hint("q")
	p.queues[0].keys.hinted = true
	claim := plan(t, p, 10*time.Millisecond)
	if !claim.full || claim.Request.Keys == nil || claim.Request.Keys.Change != 8 {
		t.Fatalf("full %t, keys %+v: want a full claim that begins at 8", claim.full, claim.Request.Keys)
	}
	read.Keys.LastChange = 9
	end(p, claim, read, time.Millisecond, 10*time.Millisecond)
	if wait := p.Plan(at(10*time.Millisecond), false).Wait; wait != 440*time.Millisecond {
		t.Errorf("the next claim comes in %v, want 440ms", wait)
	}
	if claim := plan(t, p, 450*time.Millisecond); claim.Request.Keys != nil && claim.Request.Keys.Change != 0 ||
		claim.Request.Keys == nil && !claim.Request.Probe {
		t.Errorf("the next claim does not read all changes: keys %+v", claim.Request.Keys)
	}
}

// Claims of keys advance the cursor to what they have left, and probes rewind it to what they find before.
func TestWhereKeysAreReached(t *testing.T) {
	t.Parallel()
	early, late := start.Add(-time.Minute), start.Add(-store.LateCommit)
	for name, tt := range map[string]struct {
		probe  bool
		keys   store.Keys
		line   time.Time
		change int64
	}{
		"nothing left":                 {false, store.Keys{}, late, 7},
		"changes read":                 {false, store.Keys{LastChange: 20}, late, 21},
		"changes read before":          {false, store.Keys{LastChange: 3}, late, 7},
		"a change left":                {false, store.Keys{LastChange: 20, Change: 12}, late, 12},
		"a key left":                   {false, store.Keys{Next: early}, early, 7},
		"the next key is not due":      {false, store.Keys{Next: start.Add(time.Hour)}, late, 7},
		"probe finds nothing":          {true, store.Keys{}, start, 7},
		"probe finds what was passed":  {true, store.Keys{Change: 3, Next: early}, early, 3},
		"probe finds what was not yet": {true, store.Keys{Change: 30, Next: start.Add(time.Hour)}, start, 7},
	} {
		c := cursor{line: start, change: 7}
		if tt.probe {
			c.rewindKeys(&tt.keys)
		} else {
			c.advanceKeys(&tt.keys, start)
		}
		if !c.line.Equal(tt.line) || c.change != tt.change {
			t.Errorf("%s: line %v, change %d", name, c.line, c.change)
		}
	}
}
