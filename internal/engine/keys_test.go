package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A queue's claims count as long as it may have keys or limits, and otherwise only probe.
func TestClaimsCountOnlyWhereKeysAreDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		k      keys
		handed []store.Key
		counts bool
	}{
		"nothing":      {keys{}, nil, false},
		"limits":       {keys{limited: true}, nil, true},
		"a key is due": {keys{due: now.Add(-time.Second)}, nil, true},
		"one will be":  {keys{due: now.Add(time.Second)}, nil, false},
		"a slot":       {keys{}, []store.Key{{Name: "a"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := store.ClaimRequest{Limit: 10, Ahead: time.Second}
			tt.k.prepare(&req, tt.handed, true, false, false, 7, now, time.Second)
			if (req.Keys != nil) != tt.counts || req.Probe == tt.counts {
				t.Errorf("keys %+v, probe %t", req.Keys, req.Probe)
			}
			want := 10
			if tt.k.limited { // nothing ahead of free slots
				want = 7
			}
			if tt.counts && (req.Limit != want || req.Keys.Keyed != want || len(req.Keys.Handed) != len(tt.handed)) {
				t.Errorf("limit %d, keys %+v, want %d", req.Limit, req.Keys, want)
			}
		})
	}
}

func TestPauseAfterAClaimOfKeys(t *testing.T) {
	t.Parallel()
	now := time.Now()
	past, soon := now.Add(-time.Second), now.Add(time.Second)
	asked := now.Add(-time.Minute)
	keyed := store.ClaimRequest{Limit: 10, Ahead: time.Minute, Keys: &store.KeysRequest{
		Plain: 10, Keyed: 10,
		Most: mostChanges,
	}}
	shared := store.ClaimRequest{Limit: 1, Ahead: time.Minute, Keys: &store.KeysRequest{Keyed: 1, Most: mostChanges}}
	plain := store.ClaimRequest{Limit: 10, Ahead: time.Minute, Probe: true}
	runs := make([]*store.ClaimedRun, 3)
	for name, tt := range map[string]struct {
		req      store.ClaimRequest
		claim    store.Claim
		from, to time.Duration
	}{
		"nothing there": {keyed, store.Claim{}, time.Minute, time.Minute},
		"the next key is due": {keyed, store.Claim{Keys: store.Keys{Next: soon}}, time.Second, time.Second +
			2*firstBackoff},
		"some taken, more due": {
			keyed,
			store.Claim{Runs: runs, Keys: store.Keys{Taken: 3, Next: past}},
			0,
			0,
		},
		"more changes to read": {keyed, store.Claim{Keys: store.Keys{Read: mostChanges}}, 0, 0},
		"none of the first keys is mine": {
			keyed,
			store.Claim{Keys: store.Keys{Looked: 10, Last: past, Next: past}},
			0,
			0,
		},
		"others have locked them": {
			keyed,
			store.Claim{Keys: store.Keys{Next: past}},
			firstBackoff,
			2 * firstBackoff,
		},
		"others have locked a change": {
			keyed,
			store.Claim{Keys: store.Keys{Change: 7}},
			firstBackoff,
			2 * firstBackoff,
		},
		"others have locked a handed key": {
			keyed,
			store.Claim{Keys: store.Keys{Busy: []store.Key{{Name: "a"}}}},
			firstBackoff, 2 * firstBackoff,
		},
		"the queue is full": {
			keyed,
			store.Claim{Limited: true, Keys: store.Keys{Next: past}},
			time.Minute,
			time.Minute,
		},
		"the queue is full, with tokens": {
			keyed,
			store.Claim{Now: now, Limited: true, Keys: store.Keys{RateAt: past}},
			time.Minute, time.Minute,
		},
		"the queue has no token": {keyed, store.Claim{
			Now: now, Limited: true,
			Keys: store.Keys{Next: past, RateAt: soon},
		}, time.Second, time.Second},
		"the queue has had none": {
			keyed,
			store.Claim{Now: asked, Limited: true, Keys: store.Keys{Next: past, RateAt: past}},
			0, 0,
		},
		"no room was asked for": {
			shared,
			store.Claim{Now: now, Limited: true, Keys: store.Keys{Next: past}},
			0,
			0,
		},
		"a probe finds a change": {plain, store.Claim{Keys: store.Keys{Change: 7}}, 0, 0},
		"a probe finds a limit":  {plain, store.Claim{Limited: true}, 0, 0},
		"a probe finds the next key": {plain, store.Claim{Keys: store.Keys{Next: soon}}, time.Second, time.Second +
			2*firstBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var k keys
			if pause := k.learn(&tt.req, &tt.claim, now, time.Minute); pause < tt.from || pause > tt.to {
				t.Errorf("pause %v, want from %v to %v", pause, tt.from, tt.to)
			}
		})
	}
}

// A worker that cannot execute what is due looks less and less often, but at once after a hint.
func TestBackoffBeforeForeignKeys(t *testing.T) {
	t.Parallel()
	var k keys
	now := time.Now()
	req := store.ClaimRequest{Limit: 10, Keys: &store.KeysRequest{Keyed: 10, Most: mostChanges}}
	foreign := store.Claim{Keys: store.Keys{Looked: 1, Last: now, Next: now.Add(-time.Second)}}
	for range 20 {
		k.learn(&req, &foreign, now, time.Second)
	}
	if pause := k.learn(&req, &foreign, now, time.Second); pause < time.Second {
		t.Errorf("pause %v after many looks in vain", pause)
	}
	if k.counts(false, true, now) {
		t.Error("the next claim counts, although nothing that this worker can execute is due")
	}
}

// What a session has not handed on to a claim, it leaves to other workers, and after a failed claim to the next.
func TestHandover(t *testing.T) {
	t.Parallel()
	h := &handover{keys: map[string]map[store.Key]bool{}, since: map[string]time.Time{}}
	a, b := store.Key{Name: "a"}, store.Key{Name: "a", Group: true}
	h.add("q", a, b, a)
	h.add("other", a)
	if got := h.take("q"); len(got) != 2 || h.has("q") || !h.has("other") {
		t.Errorf("took %v", got)
	}
	if h.take("q") != nil {
		t.Error("took keys twice")
	}
	if h.overdue() {
		t.Error("the keys of the other queue are overdue at once")
	}
	h.since["other"] = time.Now().Add(-2 * longestHandover)
	if h.add("other", b); !h.overdue() {
		t.Error("keys that no claim has looked at for long are not overdue")
	}
	h.take("other")
	if h.add("other", a); h.overdue() {
		t.Error("keys are overdue, although a claim has taken the old ones")
	}
	s := &Session{environment: &environment{}, handover: h}
	s.notLooked(&store.ClaimRequest{Queue: "q", Lease: uuid.New(), Keys: &store.KeysRequest{Handed: []store.Key{a}}})
	if !h.has("q") || h.wait() {
		t.Error("keys of a failed claim are lost")
	}
	h.take("q")
	s.lookedAtKeys(&store.ClaimRequest{Queue: "q", Keys: &store.KeysRequest{Handed: []store.Key{a, b}}},
		&store.Keys{Busy: []store.Key{b}})
	if got := h.take("q"); len(got) != 1 || got[0] != b {
		t.Errorf("%v are left of keys of which somebody had locked one", got)
	}
}

// A claim begins at the place that the last one got to, unless it is to search everything, or has not for a
// PollInterval.
func TestClaimsGoOnInTheLine(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		full  bool
		since time.Duration
		whole bool
	}{
		"goes on": {false, 0, false}, "a full look": {true, 0, true},
		"after a PollInterval": {false, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := keys{due: now, line: now, change: 7, full: time.Now().Add(-tt.since)}
			req := store.ClaimRequest{Limit: 1, Ahead: time.Microsecond}
			k.prepare(&req, nil, tt.full, false, false, 1, now, 30*time.Second)
			if whole := req.Keys.Line.IsZero() && req.Keys.Change == 0; whole != tt.whole {
				t.Errorf("keys %+v", req.Keys)
			}
		})
	}
}

// A probe finds the changes of a transaction that was open while claims read later ones. The next claim begins there.
func TestProbeFindsWhatClaimsHavePassed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := keys{change: 10, line: now, full: now, seen: now}
	probe := store.ClaimRequest{Limit: 10, Probe: true}
	if pause := k.learn(&probe, &store.Claim{Keys: store.Keys{Change: 3, Next: now.Add(-time.Minute)}}, now,
		time.Minute); pause > 0 {
		t.Errorf("paused for %v", pause)
	}
	req := store.ClaimRequest{Limit: 10}
	k.prepare(&req, nil, false, false, false, 10, now, time.Hour)
	if req.Keys == nil || req.Keys.Change != 3 || !req.Keys.Line.Equal(now.Add(-time.Minute)) {
		t.Errorf("the next claim reads %+v", req.Keys)
	}
}

// A claim that something has woken counts without a probe if the last such probe found nothing but keys. If it then
// finds none, a probe follows, which reads everything.
func TestWokenClaimsCountWithoutAProbe(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var k keys
	woken := func(answer store.Claim) (req store.ClaimRequest, pause time.Duration) {
		req = store.ClaimRequest{Limit: 10}
		k.prepare(&req, nil, false, true, false, 10, now, time.Hour)
		return req, k.learn(&req, &answer, now, time.Minute)
	}
	k.seen = now
	req, _ := woken(store.Claim{Keys: store.Keys{Change: 5}})
	if !req.Probe || req.Keys != nil {
		t.Fatalf("the first claim is %+v", req)
	}
	if req, _ := woken(store.Claim{Keys: store.Keys{Read: 1, LastChange: 5, Consumers: true}}); req.Keys == nil ||
		req.Keys.Consumers {
		t.Fatalf("the second claim is %+v", req)
	}
	if req, pause := woken(store.Claim{Keys: store.Keys{Read: 1, LastChange: 6}}); req.Keys == nil ||
		!req.Keys.Consumers || req.Keys.Change != 6 || pause == 0 {
		t.Fatalf("the third claim is %+v, and the pause %v", req.Keys, pause)
	}
	if req, pause := woken(store.Claim{}); req.Keys == nil || pause != 0 {
		t.Fatalf("the fourth claim is %+v, and the pause %v", req, pause)
	}
	if req, pause := woken(store.Claim{Runs: make([]*store.ClaimedRun, 1), Keys: store.Keys{Change: 2}}); !req.Probe ||
		pause != 0 {
		t.Fatalf("after a claim that found nothing comes %+v, and the pause %v", req, pause)
	}
	if k.wakes {
		t.Error("the next claim counts without a probe, although the last one found a run without a key")
	}
	k.due = time.Time{}
	if req, _ := woken(store.Claim{}); req.Keys != nil {
		t.Errorf("the next claim is %+v", req.Keys)
	}
}

// A claim that is on its way past keys which this worker cannot take goes on, even if it is a full look. After a
// PollInterval, or at the end of the line, claims begin at the front again.
func TestClaimsPassKeysThatTheyCannotTake(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := keys{due: now, full: now}
	var req store.ClaimRequest
	look := func(full bool, looked int) (line time.Time) {
		t.Helper()
		req = store.ClaimRequest{Limit: 2, Ahead: time.Microsecond}
		k.prepare(&req, nil, full, false, false, 2, now, time.Hour)
		line = req.Keys.Line
		k.learn(&req, &store.Claim{Keys: store.Keys{
			Looked: looked, Last: now.Add(-time.Second),
			Next: now.Add(-time.Minute),
		}}, now, time.Hour)
		k.due = now
		return line
	}
	look(true, 2)
	if line := look(true, 1); line.IsZero() {
		t.Error("a full look began at the front")
	}
	if req.Keys.Change != 0 {
		t.Errorf("a full look read changes from %d", req.Keys.Change)
	}
	if line := look(true, 2); !line.IsZero() {
		t.Errorf("after the end of the line, the next look began at %v", line)
	}
	k.full = now.Add(-2 * time.Hour)
	if line := look(false, 2); !line.IsZero() {
		t.Errorf("after a PollInterval, the next look began at %v", line)
	}
}

// A claim for handed keys alone leaves out the rest, unless it has to count for the queue, or something else is due.
func TestClaimForHandedKeysOnly(t *testing.T) {
	t.Parallel()
	now := time.Now()
	handed := []store.Key{{Name: "a"}}
	for name, tt := range map[string]struct {
		k      keys
		handed []store.Key
		full   bool
		only   bool // want
	}{
		"handed":          {keys{}, handed, false, true},
		"a look":          {keys{}, handed, true, false},
		"a limited queue": {keys{limited: true}, handed, false, false},
		"both wait":       {keys{both: true}, handed, false, false},
	} {
		req := store.ClaimRequest{Limit: 10}
		tt.k.prepare(&req, tt.handed, tt.full, false, true, 10, now, time.Hour)
		if req.Keys == nil || req.Keys.Only != tt.only || tt.only && req.Keys.Plain != 0 {
			t.Errorf("%s: %+v", name, req.Keys)
		}
	}
	q := &queue{wake: make(chan struct{}, 1), registered: true, nextClaim: now.Add(time.Hour)}
	q.wantKeys()
	if !q.onlyHanded() || q.untilClaim(now) != 0 {
		t.Error("no claim comes for the handed keys alone")
	}
	q.wantClaim()
	if q.onlyHanded() {
		t.Error("a claim for handed keys alone would serve a hint")
	}
	q.begins()
	q.wantKeys()
	q.nextClaim = now.Add(-time.Second)
	if q.onlyHanded() {
		t.Error("a claim for handed keys alone would serve the next claim")
	}
}
