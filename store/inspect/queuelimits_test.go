package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

func TestLimitsOfAQueue(t *testing.T) {
	t.Parallel()

	t.Run("TheyHoldFromTheNextClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, many(5)...)
		mustSetQueue(t, s, store.QueueLimits{MaxRunning: 2})
		if got := claimIDs(t, s, request(10)); len(got) != 0 {
			t.Errorf("the plain claim took %d runs of a queue with limits", len(got))
		}
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 2 {
			t.Errorf("claimed %d runs", len(got.Runs))
		}
		mustSetQueue(t, s, store.QueueLimits{MaxRunning: 3})
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 1 {
			t.Errorf("claimed %d more runs", len(got.Runs))
		}
		mustSetQueue(t, s, store.QueueLimits{})
		if got := claimIDs(t, s, request(10)); len(got) != 2 {
			t.Errorf("claimed %d of the rest of %v", len(got), ids)
		}
	})

	t.Run("RunsThatRunAlreadyCount", func(t *testing.T) {
		t.Parallel()
		for _, hold := range []bool{false, true} {
			s := open(t)
			register(t, s)
			running(t, s, 3)
			start(t, s, many(3)...)
			if n := slotsHeld(t, s); n != 0 {
				t.Fatalf("%d slots without limits", n)
			}
			mustSetQueue(t, s, store.QueueLimits{MaxRunning: 4, Held: hold})
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'
				AND slot = $1`, map[bool]int{false: 1, true: 2}[hold]); n != 3 {
				t.Errorf("hold %v: %d runs have slots", hold, n)
			}
			if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 1 {
				t.Errorf("hold %v: claimed %d runs", hold, len(got.Runs))
			}
		}
	})

	t.Run("AQueueWithoutLimitsLosesItsRow", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rows := func() int { return one[int](t, s.pool, `SELECT count(*) FROM kagzi.queues`) }
		mustSetQueue(t, s, store.QueueLimits{Held: true, EachKey: store.KeyLimits{MaxRunning: 1}})
		settleAll(t, s)
		if rows() != 1 {
			t.Error("the limits are gone")
		}
		mustSetQueue(t, s, store.QueueLimits{})
		if got, err := s.QueueStates(t.Context(), nil); err != nil || len(got) != 0 || rows() != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		settleAll(t, s)
		if rows() != 0 {
			t.Error("the row is still there")
		}
	})

	t.Run("AllWaitingKeysAreLookedAt", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		mustSetQueue(t, s, store.QueueLimits{EachKey: store.KeyLimits{MaxRunning: 1}})
		var runs []store.NewRun
		for i := range 2500 { // more than two batches
			runs = append(runs, newRun(ofKey(fmt.Sprint("key-", i))), newRun(ofKey(fmt.Sprint("key-", i))))
		}
		start(t, s, runs...)
		req := keyedRequest(5000)
		// on a slow machine the test takes longer than a minute, and runs whose lease has ended are claimed again
		req.LeaseTimeout = time.Hour
		for taken, n := 0, 1; n > 0; taken += n {
			n = len(claim(t, s, req).Runs)
			if n == 0 && taken != 2500 {
				t.Fatalf("claimed %d runs", taken)
			}
		}
		exec(t, s.pool, `DELETE FROM kagzi.key_changes`)
		mustSetQueue(t, s, store.QueueLimits{EachKey: store.KeyLimits{MaxRunning: 2}})
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.key_changes`); n != 2500 {
			t.Errorf("%d changes", n)
		}
		more := 0
		for n := 1; n > 0; more += n {
			n = len(claim(t, s, req).Runs)
		}
		if more != 2500 {
			t.Errorf("claimed %d more runs", more)
		}
	})
}

func TestLimitsOfAKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, store.QueueLimits{EachKey: store.KeyLimits{MaxRunning: 1}})
	for range 5 {
		start(t, s, newRun(ofKey("a")), newRun(ofKey("b")))
	}
	if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 2 {
		t.Fatalf("claimed %d runs", len(got.Runs))
	}
	mustSetKey(t, s, "a", store.KeyLimits{MaxRunning: 3, Weight: 2})
	mustSetKey(t, s, "new", store.KeyLimits{Weight: 7})
	more := len(claim(t, s, keyedRequest(10)).Runs) + len(claim(t, s, keyedRequest(10)).Runs)
	if more != 2 {
		t.Errorf("claimed %d more runs", more)
	}
	got, err := s.Keys(t.Context(), nil, KeyFilter{Queue: "queue", Limit: 10})
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.Key != "a" || a.Running != 3 || a.Waiting != 2 || a.Since.IsZero() || !a.Next.IsZero() ||
		a.Limits != (store.KeyLimits{MaxRunning: 3, Weight: 2}) {
		t.Errorf("%+v", a)
	}
	if b := got[1]; b.Key != "b" || b.Running != 1 || b.Waiting != 4 || b.Limits != (store.KeyLimits{}) {
		t.Errorf("%+v", b)
	}
	if n := got[2]; n.Key != "new" || n.Running+n.Waiting != 0 || n.Limits.Weight != 7 || !n.Since.IsZero() {
		t.Errorf("%+v", n)
	}
	mustSetKey(t, s, "a", store.KeyLimits{})
	if got, err := s.Keys(t.Context(), nil, KeyFilter{Queue: "queue", Prefix: "a", Limit: 10}); err != nil ||
		len(got) != 1 || got[0].Limits != (store.KeyLimits{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestKeysInOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, store.QueueLimits{EachKey: store.KeyLimits{MaxRunning: 1}})
	mustSetKey(t, s, "b", store.KeyLimits{MaxRunning: 2})
	at := time.Now()
	starts := func(key string, n int, ago time.Duration) {
		start(t, s, many(n, ofKey(key))...)
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = to_timestamp($2::float8 / 1000)
			WHERE run_key = $1`, key, float64(at.Add(-ago).UnixMilli()))
	}
	starts("a1", 3, time.Minute)
	starts("a2", 1, 4*time.Minute)
	starts("b", 3, 2*time.Minute)
	start(t, s, newRun(inGroup("g")), newRun(inGroup("g")), newRun(inGroup("h"), withDelay(time.Hour)))
	for range 3 {
		claim(t, s, keyedRequest(20))
	}
	starts("late", 2, time.Hour) // no claim has looked at it
	for name, tt := range map[string]struct {
		f    KeyFilter
		want []string
	}{
		"ByName":         {KeyFilter{Queue: "queue", Limit: 10}, []string{"a1", "a2", "b"}},
		"AfterAName":     {KeyFilter{Queue: "queue", After: "a1", Limit: 10}, []string{"a2", "b"}},
		"Limit":          {KeyFilter{Queue: "queue", Limit: 2}, []string{"a1", "a2"}},
		"Prefix":         {KeyFilter{Queue: "queue", Prefix: "a", Limit: 10}, []string{"a1", "a2"}},
		"Fullest":        {KeyFilter{Queue: "queue", Order: Fullest, Limit: 2}, []string{"b", "a1"}},
		"LongestWaiting": {KeyFilter{Queue: "queue", Order: LongestWaiting, Limit: 10}, []string{"b", "a1"}},
		"WaitingPrefix":  {KeyFilter{Queue: "queue", Order: LongestWaiting, Prefix: "a", Limit: 10}, []string{"a1"}},
		"Groups":         {KeyFilter{Limit: 10}, []string{"g", "h"}},
		"FullGroups":     {KeyFilter{Order: Fullest, Limit: 10}, []string{"g"}},
		"WaitingGroups":  {KeyFilter{Order: LongestWaiting, Limit: 10}, []string{"g"}},
		"OtherQueue":     {KeyFilter{Queue: "other", Order: LongestWaiting, Limit: 10}, nil},
	} {
		got, err := s.Keys(t.Context(), nil, tt.f)
		var names []string
		for _, k := range got {
			names = append(names, k.Key)
		}
		if err != nil || !slices.Equal(names, tt.want) {
			t.Errorf("%s: %v, %v; want %v", name, names, err, tt.want)
		}
	}
	groups, _ := s.Keys(t.Context(), nil, KeyFilter{Limit: 1})
	if g := groups[0]; g.Running != 1 || g.Waiting != 1 {
		t.Errorf("%+v", g)
	}
}

func TestAfterPrefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"a": "b", "tenant-9": "tenant-:", "é": "ê", "x\ud7ff": "x\ue000"} {
		if got := afterPrefix(prefix); got != want {
			t.Errorf("%q: %q", prefix, got)
		}
	}
}

func TestQueueStates(t *testing.T) {
	t.Parallel()
	s := open(t)
	if got, err := s.QueueStates(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	limits := store.QueueLimits{
		Queue: "queue", MaxRunning: 3, Rate: store.Rate{Interval: time.Hour, Burst: 2},
		EachKey: store.KeyLimits{MaxRunning: 5, Rate: store.Rate{Interval: time.Minute, Burst: 4}}, Held: true,
	}
	mustSetQueue(t, s, limits)
	state := func() QueueState {
		t.Helper()
		got, err := s.QueueStates(t.Context(), nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		return got[0]
	}
	if q := state(); q.QueueLimits != limits || q.Running != 0 || !q.Since.IsZero() || !q.NextStart.IsZero() ||
		q.ChangedAt.IsZero() {
		t.Errorf("%+v", q)
	}
	start(t, s, many(3)...)
	if q := state(); q.Running != 0 || q.Since.IsZero() {
		t.Errorf("%+v", q)
	}
	claim(t, s, keyedRequest(10))
	if q := state(); q.Running != 2 || q.Since.IsZero() || q.NextStart.IsZero() {
		t.Errorf("%+v", q)
	}
	exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE status = 'PENDING'`)
	if q := state(); !q.Since.IsZero() {
		t.Errorf("%+v", q)
	}
	start(t, s, newRun(ofKey("a")))
	claim(t, s, keyedRequest(10))
	if q := state(); q.Running != 2 || q.Since.IsZero() { // it stands in the line
		t.Errorf("%+v", q)
	}
}
