package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func mustSetQueue(t *testing.T, s *Store, q QueueLimits) {
	t.Helper()
	q.Queue = "queue"
	if err := s.SetQueue(t.Context(), q, Why{}); err != nil {
		t.Fatal(err)
	}
}

func mustSetKey(t *testing.T, s *Store, key string, k KeyLimits) {
	t.Helper()
	if err := s.SetKey(t.Context(), "queue", key, k, Why{}); err != nil {
		t.Fatal(err)
	}
}

// settleAll settles the queues as a coordinator does some time after their limits were changed.
func settleAll(t *testing.T, s *Store) []string {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.queues SET changed_at = changed_at - interval '1 hour' WHERE NOT settled`)
	settled, err := s.SettleQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return settled
}

func slotsHeld(t *testing.T, s *Store) int {
	t.Helper()
	return one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE `+holds)
}

func TestLimitsOfAQueue(t *testing.T) {
	t.Parallel()

	t.Run("TheyHoldFromTheNextClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, many(5)...)
		mustSetQueue(t, s, QueueLimits{MaxRunning: 2})
		if got := claimIDs(t, s, request(10)); len(got) != 0 {
			t.Errorf("the plain claim took %d runs of a queue with limits", len(got))
		}
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 2 {
			t.Errorf("claimed %d runs", len(got.Runs))
		}
		mustSetQueue(t, s, QueueLimits{MaxRunning: 3})
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 1 {
			t.Errorf("claimed %d more runs", len(got.Runs))
		}
		mustSetQueue(t, s, QueueLimits{})
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
			mustSetQueue(t, s, QueueLimits{MaxRunning: 4, Held: hold})
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
		mustSetQueue(t, s, QueueLimits{Held: true, EachKey: KeyLimits{MaxRunning: 1}})
		settleAll(t, s)
		if rows() != 1 {
			t.Error("the limits are gone")
		}
		mustSetQueue(t, s, QueueLimits{})
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
		mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
		var runs []NewRun
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
		mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 2}})
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

// A run that may kill its workers waits before its next recovery as long in a queue whose slots are all taken as in any
// other, and not past its deadline.
func TestSuspectsOfAFullQueue(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 1})
	id := start(t, s, newRun(withTimeout(100*time.Second)))[0]
	register(t, s)
	for _, tt := range []struct{ recoveries, least, most int }{{2, 700, 1250}, {7, 22_400, 40_000}, {30, 1, 100_000}} {
		claim(t, s, keyedRequest(1))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', slot = 1, lease = run_id,
			suspect_lease = run_id, locked_by = run_id, recoveries = $1,
			available_at = now() - interval '1 ms'`, tt.recoveries)
		c := claim(t, s, keyedRequest(1))
		row := readRow(t, s.pool, id)
		if len(c.Runs) != 0 || row.Status != Pending || row.Recoveries != tt.recoveries+1 {
			t.Fatalf("claimed %v; row %+v", c.Runs, row)
		}
		if ms := int(1000 * one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - $1::timestamptz)::float8
			FROM kagzi.workflow_runs`, c.Now)); ms < tt.least || ms > tt.most {
			t.Errorf("after %d recoveries it waits for %d ms, want %d to %d", tt.recoveries, ms, tt.least, tt.most)
		}
	}
}

// A change of a rate does not leave a token in the far future.
func TestChangedRates(t *testing.T) {
	t.Parallel()
	slow, quick := Rate{time.Hour, 1}, Rate{time.Minute, 1}
	left := func(t *testing.T, s *Store, table string) time.Duration {
		t.Helper()
		return time.Duration(one[float64](t, s.pool, `SELECT coalesce(extract(epoch FROM max(rate_at) - now()), 0)
			FROM kagzi.`+table)) * time.Second
	}
	within := func(t *testing.T, what string, got, least, most time.Duration) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: the next token comes in %v", what, got)
		}
	}
	for name, tt := range map[string]struct {
		set   func(*testing.T, *Store, Rate)
		table string
	}{
		"Queue": {func(t *testing.T, s *Store, r Rate) { mustSetQueue(t, s, QueueLimits{Rate: r}) }, "queues"},
		"EachKey": {func(t *testing.T, s *Store, r Rate) {
			mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{Rate: r}})
		}, "run_keys"},
		"Key": {func(t *testing.T, s *Store, r Rate) { mustSetKey(t, s, "a", KeyLimits{Rate: r}) }, "run_keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			tt.set(t, s, slow)
			start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
			if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 1 {
				t.Fatalf("claimed %d runs", len(got.Runs))
			}
			within(t, "slow", left(t, s, tt.table), 59*time.Minute, time.Hour)
			tt.set(t, s, quick)
			within(t, "quick", left(t, s, tt.table), 50*time.Second, time.Minute)
			if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 0 {
				t.Errorf("claimed %d runs before the next token", len(got.Runs))
			}
			tt.set(t, s, slow)
			within(t, "slow again", left(t, s, tt.table), 0, time.Minute)
			tt.set(t, s, Rate{})
			if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 1 {
				t.Errorf("claimed %d runs without a rate", len(got.Runs))
			}
		})
	}
	t.Run("KeyFallsBackToItsQueue", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{Rate: quick}})
		mustSetKey(t, s, "a", KeyLimits{Rate: slow})
		start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
		claim(t, s, keyedRequest(10))
		settleAll(t, s)
		within(t, "its own", left(t, s, "run_keys"), 59*time.Minute, time.Hour)
		mustSetKey(t, s, "a", KeyLimits{})
		within(t, "the queue's", left(t, s, "run_keys"), 50*time.Second, time.Minute)
	})
}

func TestLimitsOfAKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
	for range 5 {
		start(t, s, newRun(ofKey("a")), newRun(ofKey("b")))
	}
	if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 2 {
		t.Fatalf("claimed %d runs", len(got.Runs))
	}
	mustSetKey(t, s, "a", KeyLimits{MaxRunning: 3, Weight: 2})
	mustSetKey(t, s, "new", KeyLimits{Weight: 7})
	more := len(claim(t, s, keyedRequest(10)).Runs) + len(claim(t, s, keyedRequest(10)).Runs)
	if more != 2 {
		t.Errorf("claimed %d more runs", more)
	}
	got, err := s.Keys(t.Context(), nil, KeyFilter{Queue: "queue", Limit: 10})
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got[0]; a.Key != "a" || a.Running != 3 || a.Waiting != 2 || a.Since.IsZero() || !a.Next.IsZero() ||
		a.Limits != (KeyLimits{MaxRunning: 3, Weight: 2}) {
		t.Errorf("%+v", a)
	}
	if b := got[1]; b.Key != "b" || b.Running != 1 || b.Waiting != 4 || b.Limits != (KeyLimits{}) {
		t.Errorf("%+v", b)
	}
	if n := got[2]; n.Key != "new" || n.Running+n.Waiting != 0 || n.Limits.Weight != 7 || !n.Since.IsZero() {
		t.Errorf("%+v", n)
	}
	mustSetKey(t, s, "a", KeyLimits{})
	if got, err := s.Keys(t.Context(), nil, KeyFilter{Queue: "queue", Prefix: "a", Limit: 10}); err != nil ||
		len(got) != 1 || got[0].Limits != (KeyLimits{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestKeysInOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
	mustSetKey(t, s, "b", KeyLimits{MaxRunning: 2})
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
	limits := QueueLimits{
		Queue: "queue", MaxRunning: 3, Rate: Rate{time.Hour, 2},
		EachKey: KeyLimits{MaxRunning: 5, Rate: Rate{time.Minute, 4}}, Held: true,
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

// A key that has used its burst is not deleted before its tokens are there again: a new row would have them all.
func TestPrunedKeysHaveTheirBurst(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{Rate: Rate{Interval: time.Hour, Burst: 3}}})
	take := func(want int) {
		t.Helper()
		start(t, s, many(3, ofKey("a"))...)
		runs := claim(t, s, keyedRequest(9)).Runs
		if len(runs) != want {
			t.Errorf("claimed %d runs, want %d", len(runs), want)
		}
		exec(t, s.pool, `DELETE FROM kagzi.workflow_runs`)
	}
	pass := func(interval string) {
		t.Helper()
		exec(t, s.pool, `UPDATE kagzi.run_keys SET rate_at = rate_at - $1::interval, available_at = 'infinity'`,
			interval)
		if _, _, err := s.PruneKeys(t.Context(), KeyCursor{}, 10); err != nil {
			t.Fatal(err)
		}
	}
	take(3)
	pass("61 minutes")
	take(1)
	pass("5 hours")
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys`); n > 0 {
		t.Error("the key is left although all of its tokens are there")
	}
}

func TestPruneKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	prune := func(n int) (deleted int) {
		t.Helper()
		var at KeyCursor
		for {
			d, next, err := s.PruneKeys(t.Context(), at, n)
			if err != nil {
				t.Fatal(err)
			}
			deleted += d
			if next == (KeyCursor{}) {
				return deleted
			}
			at = next
		}
	}
	left := func() []string { return column[string](t, s.pool, `SELECT run_key FROM kagzi.run_keys ORDER BY 1`) }
	mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
	mustSetKey(t, s, "limits", KeyLimits{Weight: 2})
	mustSetKey(t, s, "unset", KeyLimits{})
	start(t, s, newRun(ofKey("runs")), newRun(ofKey("waits")), newRun(ofKey("waits")),
		newRun(ofKey("later"), withDelay(time.Hour)), newRun(ofKey("ended")), newRun(inGroup("g")),
		newRun(inGroup("h")), newRun(ofKey("rate")))
	var ends []*Finish
	for _, r := range claim(t, s, keyedRequest(20)).Runs {
		if slices.Contains([]string{"ended", "h", "rate"}, r.Key.Name) {
			ends = append(ends, finish(r))
		}
	}
	flush(t, s, &Flush{Finishes: ends})
	claim(t, s, keyedRequest(20))
	exec(t, s.pool, `UPDATE kagzi.run_keys SET rate_at = now() + interval '1 hour' WHERE run_key = 'rate'`)
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'other', 'other', 'infinity')`)
	if n := prune(2); n != 3 {
		t.Errorf("deleted %d keys, left %v", n, left())
	}
	if want := []string{"g", "later", "limits", "other", "rate", "runs", "waits"}; !slices.Equal(left(), want) {
		t.Errorf("left %v", left())
	}
	if n := prune(100); n != 0 {
		t.Errorf("deleted %d keys more", n)
	}

	// A start in the same moment loses nothing: its change makes a claim insert the key again.
	locked := begin(t, s)
	exec(t, locked, `SELECT FROM kagzi.run_keys FOR UPDATE`)
	if n := prune(100); n != 0 {
		t.Errorf("deleted %d keys that were locked", n)
	}
	rollback(t, locked)
	var id uuid.UUID
	mustSetKey(t, s, "limits", KeyLimits{})
	claim(t, s, keyedRequest(20))
	tx := begin(t, s)
	exec(t, tx, pruneKeys, s.namespace, "", "", 100)
	id = start(t, s, newRun(ofKey("limits")))[0]
	if got := claim(t, s, keyedRequest(20)); len(got.Runs) != 0 {
		t.Errorf("claimed %+v while the key was being deleted", got)
	}
	commit(t, tx)
	if got := claim(t, s, keyedRequest(20)); !slices.Equal(runIDs(got.Runs), []uuid.UUID{id}) {
		t.Errorf("claimed %v", runIDs(got.Runs))
	}
}

func TestWhatAClaimMissedIsSettledLater(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s)
	start(t, s, many(3)...)
	tx := begin(t, s) // a claim that has begun before the change
	exec(t, tx, claimRuns, s.claimArgs(request(3))...)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 5})
	commit(t, tx)
	if n := slotsHeld(t, s); n != 0 {
		t.Fatalf("%d slots", n)
	}
	if settled, err := s.SettleQueues(t.Context()); err != nil || len(settled) > 0 {
		t.Errorf("settled %v at once, %v", settled, err)
	}
	if settled := settleAll(t, s); !slices.Equal(settled, []string{"queue"}) || slotsHeld(t, s) != 3 {
		t.Errorf("settled %v: %d slots", settled, slotsHeld(t, s))
	}
	if settled := settleAll(t, s); len(settled) > 0 {
		t.Errorf("settled %v again", settled)
	}
	mustSetQueue(t, s, QueueLimits{MaxRunning: 5})
	if settled := settleAll(t, s); len(settled) > 0 {
		t.Errorf("settled %v although nothing changed", settled)
	}
	mustSetQueue(t, s, QueueLimits{MaxRunning: 6})
	if settled := settleAll(t, s); len(settled) != 1 {
		t.Errorf("settled %v after another change", settled)
	}
}
