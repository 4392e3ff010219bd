package claims

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A queue's claims count as long as it may have keys or limits, and otherwise only probe.
func TestClaimsCountOnlyWhereKeysAreDue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		k      keys
		ask    ask
		counts bool
		probes bool
	}{
		"nothing":             {keys{}, ask{}, false, false},
		"full":                {keys{}, ask{full: true}, false, true},
		"keys not long ago":   {keys{seen: start.Add(1 - probeFor)}, ask{}, false, true},
		"keys long ago":       {keys{seen: start.Add(-probeFor)}, ask{}, false, false},
		"limits":              {keys{limited: true}, ask{}, true, false},
		"a key is due":        {keys{due: start}, ask{}, true, false},
		"one will be":         {keys{due: start.Add(1)}, ask{full: true}, false, true},
		"a slot":              {keys{}, ask{freed: []store.FreedKey{a}}, true, false},
		"a hint":              {keys{}, ask{hinted: true, full: true}, false, true},
		"a hint for keys":     {keys{hinted: true}, ask{hinted: true}, true, false},
		"hints were for keys": {keys{hinted: true}, ask{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := store.ClaimRequest{Limit: 10}
			tt.ask.free = 7
			tt.k.prepare(&req, tt.ask, at(0))
			if (req.Keys != nil) != tt.counts || req.Probe != tt.probes {
				t.Errorf("keys %+v, probe %t", req.Keys, req.Probe)
			}
			want := 10
			if tt.k.limited { // nothing ahead of free slots
				want = 7
			}
			if req.Limit != want {
				t.Errorf("limit %d, want %d", req.Limit, want)
			}
			if k := req.Keys; tt.counts && (k.Keyed != want || k.Plain != want || len(k.Freed) != len(tt.ask.freed)) {
				t.Errorf("keys %+v, want %d", k, want)
			}
		})
	}
}

// A claim that shares, and finds no runs with keys, does not leave runs without a key to the next poll.
func TestSharedClaimWithoutKeysLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plain, limit, runs int
		only               bool
		due                bool // runs without a key may be
	}{
		"all of half":  {plain: 2, limit: 4, runs: 2, due: true},
		"part of half": {plain: 2, limit: 4, runs: 1},
		"nothing":      {plain: 2, limit: 4},
		"none allowed": {limit: 1, due: true},
		"all":          {plain: 4, limit: 4, runs: 3},
		"only keys":    {limit: 4, only: true},
	} {
		p := settled(t)
		plan := p.PlanFrom("q", tt.limit, at(0))
		plan.Request.Keys = &store.KeysRequest{Plain: tt.plain, Keyed: tt.limit, Only: tt.only}
		answer := nothing(0)
		answer.Runs, answer.Keys.Only = runs(tt.runs), tt.only
		p.Answered(&plan, &answer, 0, at(0))
		if due := plan.outcome == (outcome{state: backlog}); due != tt.due {
			t.Errorf("%s: outcome %+v", name, plan.outcome)
		}
	}
}

// Runs with and without keys share a claim if the last one left both.
func TestRunsWithAndWithoutKeysShareAClaim(t *testing.T) {
	t.Parallel()
	for odd, want := range []int{3, 4} {
		k, req := keys{due: start, both: true}, store.ClaimRequest{Limit: 7}
		k.prepare(&req, ask{odd: odd}, at(0))
		if req.Keys.Plain != want || req.Keys.Keyed != 7 {
			t.Errorf("keys %+v, want %d runs without a key at most", req.Keys, want)
		}
	}
}

func TestPauseAfterAClaimOfKeys(t *testing.T) {
	t.Parallel()
	past, soon := start.Add(-time.Second), start.Add(time.Second)
	asked := start.Add(-time.Minute)
	keyed := store.ClaimRequest{Limit: 10, Keys: &store.KeysRequest{Plain: 10, Keyed: 10, Most: mostChanges}}
	shared := store.ClaimRequest{Limit: 1, Keys: &store.KeysRequest{Keyed: 1, Most: mostChanges}}
	plain := store.ClaimRequest{Limit: 10, Probe: true}
	for name, tt := range map[string]struct {
		req   store.ClaimRequest
		claim store.Claim
		state state
		pause time.Duration
	}{
		"nothing there":       {keyed, store.Claim{}, idle, poll},
		"the next key is due": {keyed, store.Claim{Keys: store.Keys{Next: soon}}, idle, time.Second + spread},
		"some taken, more due": {
			keyed, store.Claim{Runs: runs(3), Keys: store.Keys{Taken: 3, Next: past}}, backlog, 0,
		},
		"some taken":           {keyed, store.Claim{Runs: runs(3), Keys: store.Keys{Taken: 3}}, idle, poll},
		"more changes to read": {keyed, store.Claim{Keys: store.Keys{Read: mostChanges}}, backlog, 0},
		"none of the first keys is mine": {
			keyed, store.Claim{Keys: store.Keys{Looked: 10, Last: past, Next: past}}, backlog, 0,
		},
		"none of the keys is mine": {
			keyed, store.Claim{Keys: store.Keys{Looked: 9, Last: past, Next: past}}, blocked, firstBackoff + spread,
		},
		"others have locked them": {
			keyed, store.Claim{Keys: store.Keys{Next: past}}, blocked, firstBackoff + spread,
		},
		"others have locked a change": {
			keyed, store.Claim{Keys: store.Keys{Change: 7}}, blocked, firstBackoff + spread,
		},
		"others have locked a freed key": {
			keyed, store.Claim{Keys: store.Keys{Busy: []store.FreedKey{a}}}, blocked, firstBackoff + spread,
		},
		"the queue is full": {keyed, store.Claim{Limited: true, Keys: store.Keys{Next: past}}, blocked, poll},
		"the queue is full, with tokens": {
			keyed, store.Claim{Now: start, Limited: true, Keys: store.Keys{RateAt: past}}, blocked, poll,
		},
		"the queue has no token": {
			keyed,
			store.Claim{Now: start, Limited: true, Keys: store.Keys{Next: past, RateAt: soon}},
			blocked, time.Second,
		},
		"the queue has no token for long": {
			keyed,
			store.Claim{Now: start, Limited: true, Keys: store.Keys{RateAt: start.Add(time.Hour)}},
			blocked, poll,
		},
		"the queue has had none": {
			keyed, store.Claim{Now: asked, Limited: true, Keys: store.Keys{Next: past, RateAt: past}}, backlog, 0,
		},
		"no room was asked for": {
			shared, store.Claim{Now: start, Limited: true, Keys: store.Keys{Next: past}}, backlog, 0,
		},
		"a probe finds a change":     {plain, store.Claim{Keys: store.Keys{Change: 7}}, backlog, 0},
		"a probe finds a limit":      {plain, store.Claim{Limited: true}, backlog, 0},
		"a probe finds the next key": {plain, store.Claim{Keys: store.Keys{Next: soon}}, idle, time.Second + spread},
		"a probe finds nothing":      {plain, store.Claim{}, idle, poll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var q queue
			got := q.answered(answer{
				Plan: &Plan{Request: tt.req}, claim: &tt.claim, at: at(0), wait: poll, spread: spread,
			}, poll)
			if want := (outcome{state: tt.state, pause: tt.pause}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if full := tt.claim.Limited && tt.state == blocked; full && !q.keys.due.IsZero() {
				t.Error("a key is due, although the queue has no room")
			}
			found := !tt.claim.Keys.Next.IsZero() || tt.claim.Keys.Change > 0
			if seen := q.keys.seen.Equal(start); seen != found {
				t.Errorf("the claim has found keys: %t, want %t", seen, found)
			}
		})
	}
}

// A worker that cannot execute what is due claims less and less often, but at once after a hint.
func TestBackoffBeforeForeignKeys(t *testing.T) {
	t.Parallel()
	for looked, most := range map[int]time.Duration{1: poll, 0: longestBackoff} {
		p := settled(t)
		q := p.queues[0]
		q.keys.due = start
		foreign := nothing(0)
		foreign.Keys = store.Keys{Looked: looked, Last: start, Next: start.Add(-time.Second)}
		var pauses []time.Duration
		for range 20 {
			claim := p.PlanFrom("q", 10, Moment{Now: start, Database: q.keys.due})
			p.Answered(&claim, &foreign, 0, at(0))
			pauses = append(pauses, p.Ended(&claim, 0, start))
		}
		if pauses[0] < firstBackoff || pauses[0] > 2*firstBackoff || pauses[1] <= pauses[0] || pauses[19] < most ||
			pauses[19] > most+time.Millisecond {
			t.Errorf("pauses %v, want up to %v", pauses, most)
		}
		if q.state != blocked || q.keys.counts(ask{hinted: true}, start) {
			t.Error("the next claim counts, although nothing that this worker can execute is due")
		}
		p.Hint("q")
		if plan(t, p, 0); q.keys.backoff != 0 {
			t.Errorf("the backoff is %v after a hint", q.keys.backoff)
		}
	}
}

// A probe finds the changes of a transaction that was open while claims read later ones. The next claim begins there.
func TestProbeFindsWhatClaimsHavePassed(t *testing.T) {
	t.Parallel()
	p := settled(t)
	q := p.queues[0]
	q.cursor.change, q.cursor.line, q.cursor.lineRead, q.keys.seen = 10, start, start, start
	probe := p.PlanFrom("q", 10, at(0))
	answer := nothing(0)
	answer.Keys = store.Keys{Change: 3, Next: start.Add(-time.Hour)}
	if end(p, &probe, answer, time.Second, 0); !probe.Request.Probe || q.state != backlog {
		t.Errorf("after %+v the state is %d", probe.Request, q.state)
	}
	q.cursor.ended, q.cursor.took = start, time.Second // no full claim
	next := plan(t, p, 0)
	if k := next.Request.Keys; k == nil || k.Change != 3 || !k.Line.Equal(start.Add(-time.Hour)) {
		t.Errorf("the next claim reads %+v", k)
	}
}

// A claim that a hint has caused counts without a probe if the last such probe found nothing but keys. If it then finds
// none, a probe follows, which reads everything.
func TestHintedClaimsCountWithoutAProbe(t *testing.T) {
	t.Parallel()
	p := settled(t)
	q := p.queues[0]
	q.keys.seen = start
	for i, tt := range []struct {
		keys    store.Keys // of the answer
		runs    int
		counts  bool // want
		change  int64
		backlog bool
	}{
		{store.Keys{Change: 5}, 0, false, 0, true},
		{store.Keys{Read: 1, LastChange: 5, Consumers: true}, 0, true, 0, false},
		{store.Keys{Read: 1, LastChange: 6}, 0, true, 6, false},
		{store.Keys{}, 0, true, 7, true}, // in vain
		{store.Keys{Change: 2}, 1, false, 0, true},
	} {
		q.cursor.ended, q.cursor.took = start, 10*time.Millisecond // no full claim
		p.Hint("q")
		claim := plan(t, p, 0)
		k := claim.Request.Keys
		if (k != nil) != tt.counts || claim.Request.Probe == tt.counts || tt.counts && k.Change != tt.change {
			t.Fatalf("claim %d: %+v, keys %+v", i, claim.Request, k)
		}
		if tt.counts && k.Consumers != (i == 2) {
			t.Errorf("claim %d expects consumers: %t", i, k.Consumers)
		}
		answer := nothing(0)
		answer.Keys, answer.Runs = tt.keys, runs(tt.runs)
		end(p, claim, answer, 0, 0)
		if got := q.state == backlog; got != tt.backlog {
			t.Fatalf("claim %d: the state is %d", i, q.state)
		}
		q.cursor.lineRead = start
	}
	if q.keys.hinted {
		t.Error("the next claim counts without a probe, although the last one found a run without a key")
	}
	q.keys.due = time.Time{}
	p.Hint("q")
	if claim := plan(t, p, 0); claim.Request.Keys != nil {
		t.Errorf("the next claim is %+v", claim.Request.Keys)
	}
}

// Claims that are on their way past keys which this worker cannot take go on, even if they are full. After a
// PollInterval, or at the end of the line, claims begin at the front again.
func TestClaimsPassKeysThatTheyCannotTake(t *testing.T) {
	t.Parallel()
	p := settled(t)
	q := p.queues[0]
	q.cursor.lineRead = start
	now := time.Duration(0)
	look := func(full bool, looked, taken int) *store.KeysRequest {
		t.Helper()
		q.keys.due = start
		q.cursor.took, q.cursor.ended = 10*time.Millisecond, at(now).Now
		if full {
			q.cursor.took = 0
		}
		claim := p.PlanFrom("q", 2, at(now))
		if claim.full != full {
			t.Fatalf("the claim is full: %t", claim.full)
		}
		answer := nothing(now)
		answer.Keys = store.Keys{
			Looked: looked, Taken: taken, Last: start.Add(-time.Second), Next: start.Add(-time.Minute),
		}
		end(p, &claim, answer, 0, now)
		return claim.Request.Keys
	}
	look(true, 2, 1)
	if keys := look(true, 2, 0); !keys.Line.IsZero() {
		t.Errorf("after a claim that took a run, the next one began at %v", keys.Line)
	}
	if keys := look(true, 1, 0); !keys.Line.After(start.Add(-time.Second)) || keys.Change != 0 {
		t.Errorf("a full claim on its way past keys read %+v", keys)
	}
	if keys := look(true, 2, 0); !keys.Line.IsZero() {
		t.Errorf("after the end of the line, the next claim began at %v", keys.Line)
	}
	now = 2 * poll
	if keys := look(false, 2, 0); !keys.Line.IsZero() {
		t.Errorf("after a PollInterval, the next claim began at %v", keys.Line)
	}
}
