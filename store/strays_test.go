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
		found, until, err := s.LeasesGiven(t.Context(), g)
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
	found, _, err := s.LeasesGiven(t.Context(), g)
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
	if found, _, err := s.LeasesGiven(t.Context(), g); len(found) > 0 || err != nil {
		t.Errorf("of another worker: %v, %v", found, err)
	}
}

// A worker that lives extends its leases when half of them is left. A run whose lease it does not extend is one that it
// does not know.
func TestUnextendedRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, newRun(), newRun(), newRun(), newRun(withTimeout(time.Minute)))
	req := request(10)
	claim(t, s, req)
	register := func(change func(*Worker)) {
		t.Helper()
		w := Worker{
			ID: req.Worker, Queues: []string{"queue"}, Types: []string{"type"}, LeaseTimeout: 5 * time.Minute,
			StaleAfter: 10 * time.Second,
		}
		change(&w)
		exec(t, s.pool, `DELETE FROM kagzi.workers`)
		if err := s.RegisterWorker(t.Context(), s.pool, w); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() + CASE run_id WHEN $1 THEN interval '2 minutes'
		WHEN $2 THEN interval '145 seconds' ELSE interval '4 minutes' END
		WHERE deadline_at IS NULL`, ids[0], ids[1])
	want := func(name string, want ...uuid.UUID) {
		t.Helper()
		found, err := s.UnextendedRuns(t.Context(), s.pool, []string{"queue"}, []string{"type"}, 10)
		var got []uuid.UUID
		for _, r := range found {
			got = append(got, r.RunID)
			if r.Worker != req.Worker || r.Queue != "queue" || r.Type != "type" || time.Until(r.Ends) > 3*time.Minute {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: found %v, error %v, want %v", name, got, err, want)
		}
	}
	register(func(*Worker) {})
	want("Live", ids[0])
	register(func(w *Worker) { w.FixedLease = true })
	want("FixedLease")
	register(func(w *Worker) { w.ID = uuid.New() })
	want("Unknown")
	register(func(*Worker) {})
	exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '11 seconds'`)
	want("Silent")
}
