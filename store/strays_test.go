package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestLeasesGiven(t *testing.T) {
	t.Parallel()
	s := open(t)
	start(t, s, newRun(), newRun(ofKey("a")), newRun(inGroup("g")), newRun(ofType("other")), newRun())
	req := keyedRequest(4)
	mine := claim(t, s, req).Runs
	if len(mine) != 4 {
		t.Fatalf("claimed %d runs", len(mine))
	}
	flush(t, s, &Flush{Finishes: []*Finish{finish(mine[3])}})
	claim(t, s, request(10)) // of another worker
	given := func(change func(*LeasesGiven)) (ids []uuid.UUID, keys []Key) {
		t.Helper()
		g := LeasesGiven{
			Worker: req.Worker, Queues: []string{"queue"}, Types: []string{"type"},
			LeaseTimeout: req.LeaseTimeout,
		}
		change(&g)
		found, until, err := s.Leases.Given(t.Context(), g)
		if err != nil || until.Add(g.Age).Before(mine[0].StartedAt) {
			t.Fatalf("searched until %v, error %v", until, err)
		}
		for _, r := range found {
			ids, keys = append(ids, r.RunID), append(keys, r.Key)
			if !slices.ContainsFunc(mine, func(m *ClaimedRun) bool {
				return held(m) == r.HeldRun && m.Key == r.Key && m.Queue == r.Queue
			}) {
				t.Errorf("found %+v, claimed %+v", r, mine)
			}
		}
		return sorted(ids), keys
	}
	if got, keys := given(func(*LeasesGiven) {}); !slices.Equal(got, sorted(runIDs(mine[:3]))) || len(keys) != 3 {
		t.Errorf("found %v, claimed %v", got, runIDs(mine))
	}
	for name, change := range map[string]func(*LeasesGiven){
		"TooYoung":    func(g *LeasesGiven) { g.Age = time.Second * 30 },
		"Searched":    func(g *LeasesGiven) { g.After = mine[0].StartedAt },
		"OfAnother":   func(g *LeasesGiven) { g.Worker = uuid.New() },
		"OtherQueue":  func(g *LeasesGiven) { g.Queues = []string{"another"} },
		"OtherTypes":  func(g *LeasesGiven) { g.Types = []string{"other"} },
		"LongerLease": func(g *LeasesGiven) { g.After, g.LeaseTimeout = mine[0].StartedAt, 2*req.LeaseTimeout },
	} {
		if got, _ := given(change); len(got) > 0 {
			t.Errorf("%s: found %v", name, got)
		}
	}
}

// The end of a lease that its run's deadline cuts short does not tell when it was given: such runs are found at any
// age.
func TestLeasesThatEndWithDeadlines(t *testing.T) {
	t.Parallel()
	s := open(t)
	cut := start(t, s, newRun(withTimeout(30*time.Second)), newRun(ofKey("a"), withTimeout(40*time.Second)))
	start(t, s, newRun(withTimeout(time.Hour)), newRun())
	req := keyedRequest(4)
	if mine := claim(t, s, req).Runs; len(mine) != 4 {
		t.Fatalf("claimed %d runs", len(mine))
	}
	start(t, s, newRun(withTimeout(30*time.Second))) // of no worker
	g := LeasesGiven{
		Worker: req.Worker, Queues: []string{"queue"}, Types: []string{"type"},
		LeaseTimeout: req.LeaseTimeout, Age: time.Second * 30,
	}
	found, _, err := s.Leases.Given(t.Context(), g)
	var got []uuid.UUID
	for _, r := range found {
		got = append(got, r.RunID)
		if !r.Cut || r.Queue != "queue" || (r.Key.Name == "a") != (r.RunID == cut[1]) {
			t.Errorf("%+v", r)
		}
	}
	if err != nil || !slices.Equal(sorted(got), sorted(cut)) {
		t.Errorf("found %v, %v; want %v", got, err, cut)
	}
	g.Worker = uuid.New()
	if found, _, err := s.Leases.Given(t.Context(), g); len(found) > 0 || err != nil {
		t.Errorf("of another worker: %v, %v", found, err)
	}
}
