package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store/internal/clause"
)

func mustSetQueue(t *testing.T, s *Store, q QueueLimits) {
	t.Helper()
	q.Queue = "queue"
	if err := s.Limits.SetQueue(t.Context(), q, Why{}); err != nil {
		t.Fatal(err)
	}
}

func mustSetKey(t *testing.T, s *Store, key string, k KeyLimits) {
	t.Helper()
	if err := s.Limits.SetKey(t.Context(), "queue", key, k, Why{}); err != nil {
		t.Fatal(err)
	}
}

// settleAll settles the queues as a coordinator does some time after their limits were changed.
func settleAll(t *testing.T, s *Store) []string {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.queues SET changed_at = changed_at - interval '1 hour' WHERE NOT settled`)
	settled, err := s.Limits.SettleQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return settled
}

func slotsHeld(t *testing.T, s *Store) int {
	t.Helper()
	return one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE `+clause.Holds)
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

// A claim from a queue with a limit says that runs are due now if it may have left out some for which there is room.
func TestClaimOfALimitedQueueLeavesRoom(t *testing.T) {
	t.Parallel()
	dies := `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 min'`
	for name, tt := range map[string]struct {
		limits  QueueLimits
		then    string // happens to the run that holds a slot
		claimed int
		left    bool
	}{
		"TakeOver":      {QueueLimits{MaxRunning: 2}, dies, 1, true},
		"SlotsToTheEnd": {QueueLimits{MaxRunning: 2, Held: true}, dies + `, status = 'SLEEPING'`, 1, true},
		"SetBack":       {QueueLimits{MaxRunning: 1}, dies + `, recoveries = 9`, 0, true},
		"BothSetBack":   {QueueLimits{MaxRunning: 2}, dies + `, recoveries = 9`, 0, true},
		"NoRoom":        {QueueLimits{MaxRunning: 1}, dies, 1, false},
		"AllTaken":      {QueueLimits{MaxRunning: 4}, dies, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			mustSetQueue(t, s, tt.limits)
			start(t, s, newRun())
			claim(t, s, keyedRequest(1))
			exec(t, s.pool, tt.then)
			ids := start(t, s, newRun())
			got := claim(t, s, keyedRequest(9))
			if left := !got.Next.IsZero() && !got.Next.After(got.Now); len(got.Runs) != tt.claimed || left != tt.left {
				t.Errorf("claimed %d runs, next due at %v; it is %v", len(got.Runs), got.Next, got.Now)
			}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); tt.left && !slices.Equal(got, ids) {
				t.Errorf("then claimed %v, want %v", got, ids)
			}
		})
	}
}

// If a run ends that no worker executes, and that may have held a slot to its end, workers learn that there is room.
func TestEndOfARunThatHoldsASlot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limits QueueLimits
		change func(*NewRun)
		dead   bool // its worker
		want   []DueRun
	}{
		"Queue": {QueueLimits{MaxRunning: 1, Held: true}, func(*NewRun) {}, false, []DueRun{{Queue: "queue"}}},
		"Key": {
			QueueLimits{EachKey: KeyLimits{MaxRunning: 1}, Held: true},
			ofKey("a"), false,
			[]DueRun{{Queue: "queue"}},
		},
		"OfADeadWorker": {QueueLimits{MaxRunning: 1}, func(*NewRun) {}, true, []DueRun{{Queue: "queue"}}},
		"None":          {QueueLimits{}, func(*NewRun) {}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			req := request(1)
			if tt.want != nil {
				mustSetQueue(t, s, tt.limits)
				req = keyedRequest(1)
			}
			id := start(t, s, newRun(tt.change))[0]
			r := claim(t, s, req).Runs[0]
			if tt.dead {
				expire(t, s, id)
			} else {
				flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, time.Hour)}})
			}
			out, err := s.Runs.Terminate(t.Context(), nil, id, Why{})
			if err != nil || !slices.Equal(out.Due, tt.want) {
				t.Errorf("work in %v, %v; want it in %v", out.Due, err, tt.want)
			}
		})
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
		exec(t, s.pool, `UPDATE kagzi.run_keys SET rate_at = rate_at - $1::interval,
			waits_from = waits_from - $1::interval, available_at = 'infinity'`, interval)
		if _, _, err := s.Limits.PruneKeys(t.Context(), KeyCursor{}, 10); err != nil {
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
			d, next, err := s.Limits.PruneKeys(t.Context(), at, n)
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
		newRun(inGroup("h")), newRun(ofKey("rate")), newRun(ofKey("recent")))
	var ends []*Finish
	for _, r := range claim(t, s, keyedRequest(20)).Runs {
		if slices.Contains([]string{"ended", "h", "rate", "recent"}, r.Key.Name) {
			ends = append(ends, finish(r))
		}
	}
	flush(t, s, &Flush{Finishes: ends})
	claim(t, s, keyedRequest(20))
	exec(t, s.pool, `UPDATE kagzi.run_keys SET rate_at = now() + interval '1 hour' WHERE run_key = 'rate'`)
	exec(t, s.pool, `UPDATE kagzi.run_keys SET waits_from = now() - CASE run_key WHEN 'recent' THEN interval '30 s'
		ELSE '2 minutes' END`)
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'other', 'other', 'infinity')`)
	if n := prune(2); n != 3 {
		t.Errorf("deleted %d keys, left %v", n, left())
	}
	want := []string{"g", "later", "limits", "other", "rate", "recent", "runs", "waits"}
	if !slices.Equal(left(), want) {
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
	exec(t, tx, claimRuns, s.Claims.claimArgs(request(3))...)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 5})
	commit(t, tx)
	if n := slotsHeld(t, s); n != 0 {
		t.Fatalf("%d slots", n)
	}
	if settled, err := s.Limits.SettleQueues(t.Context()); err != nil || len(settled) > 0 {
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
