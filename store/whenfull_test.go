package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/waits"
)

func rejecting(r *NewRun) { r.WhenFull = RejectNew }

func cancelling(r *NewRun) { r.WhenFull = CancelOldest }

// limitKeys limits each key of the queue to n runs, with held until their ends.
func limitKeys(t *testing.T, s *Store, n int, held bool) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running, held)
		VALUES ('queue', $1, $2, $3)
		ON CONFLICT (task_queue, namespace_id)
			DO UPDATE SET key_max_running = excluded.key_max_running`, s.namespace, n, held)
}

// wantFull expects that the start is refused and stores nothing.
func wantFull(t *testing.T, s *Store, text string, runs ...NewRun) {
	t.Helper()
	count := `SELECT count(*) FROM kagzi.workflow_runs`
	before := one[int](t, s.pool, count)
	out, err := s.Starts.Start(t.Context(), nil, runs)
	if wantError(t, err, ErrKeyFull); err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
	if after := one[int](t, s.pool, count); out != nil || after != before {
		t.Errorf("%+v: %d runs, before %d", out, after, before)
	}
}

func statusOf(t *testing.T, s *Store, id uuid.UUID) string { return readRow(t, s.pool, id).Status }

// wantStatus expects the statuses of runs, in order.
func wantStatus(t *testing.T, s *Store, ids []uuid.UUID, want ...string) {
	t.Helper()
	for i, id := range ids {
		if got := statusOf(t, s, id); got != want[i] {
			t.Errorf("run %d is %s, want %s", i, got, want[i])
		}
	}
}

func TestRejectNew(t *testing.T) {
	t.Parallel()
	keyed := func(change ...func(*NewRun)) NewRun {
		return newRun(append([]func(*NewRun){ofKey("a"), rejecting}, change...)...)
	}

	t.Run("HoldersAndWaitingCount", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 2, false)
		start(t, s, keyed())
		first := claim(t, s, keyedRequest(1))
		start(t, s, keyed())
		wantFull(t, s,
			`key "a" of queue "queue" is full, so nothing was started: of a limit of 2, 1 hold a slot and 1 wait `+
				`for one`, keyed())
		start(t, s, newRun(ofKey("b"), rejecting))
		start(t, s, newRun(ofKey("a"))) // without the policy it waits
		flush(t, s, &Flush{Finishes: []*Finish{finish(first.Runs[0])}})
		wantFull(t, s, "0 hold a slot and 2 wait", keyed())
		for _, r := range claim(t, s, keyedRequest(9)).Runs {
			if r.Key.Name == "a" {
				flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
			}
		}
		start(t, s, keyed())
	})

	t.Run("WhatDoesNotCount", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, false)
		start(t, s, newRun(ofKey("a"), withDelay(time.Hour)), newRun(inGroup("a")),
			newRun(ofKey("a"), func(r *NewRun) { r.Queue = "other" }))
		start(t, s, keyed())
		c := claim(t, s, keyedRequest(9))
		i := slices.IndexFunc(c.Runs, func(r *ClaimedRun) bool { return !r.Key.Group })
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(c.Runs[i], time.Hour)}}) // it gives up its slot
		start(t, s, keyed())
	})

	t.Run("NoLimit", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, keyed(), keyed())
		start(t, s, keyed())
	})

	t.Run("LimitOfTheKeyItself", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, false)
		exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at, max_running)
			VALUES ('queue', 'a', $1, 'infinity', 2)`, s.namespace)
		start(t, s, keyed())
		start(t, s, keyed())
		wantFull(t, s, "of a limit of 2", keyed())
	})

	t.Run("Held", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, true)
		start(t, s, keyed())
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(claim(t, s, keyedRequest(1)).Runs[0], time.Hour)}})
		wantFull(t, s, "1 hold a slot", keyed())
	})

	t.Run("Group", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, newRun(inGroup("g"), rejecting))
		wantFull(t, s,
			`group "g" is full, so nothing was started: of a limit of 1, 0 hold a slot and 1 wait for one, `+
				`each counted up to the limit: start again later`,
			newRun(inGroup("g"), rejecting, func(r *NewRun) { r.Queue = "other" }))
		claim(t, s, keyedRequest(1))
		wantFull(t, s, "1 hold a slot", newRun(inGroup("g"), rejecting))
		start(t, s, newRun(ofKey("g"), rejecting))
	})

	t.Run("StartMany", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 2, false)
		wantFull(t, s,
			`key "a" of queue "queue" has a limit of 2: 3 runs started at once do not fit, `+
				`so nothing was started: start fewer`,
			newRun(), keyed(), keyed(), newRun(ofKey("b"), rejecting), keyed())
		start(t, s, newRun(), keyed(), newRun(ofKey("b"), rejecting), keyed())
		wantFull(t, s, "2 wait", newRun(), newRun(ofKey("c"), rejecting), keyed())
		// all of the call count
		wantFull(t, s, "3 runs started at once", newRun(ofKey("d")), newRun(ofKey("d"), rejecting), newRun(ofKey("d")))
	})

	t.Run("ActiveRunWithTheID", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, false)
		id := start(t, s, keyed(withID("x")))[0]
		wantJoined(t, s, id, keyed(withID("x")))
		replacing := keyed(withID("x"), func(r *NewRun) { r.IfActive = ReplaceActive })
		if out, err := s.Starts.Start(t.Context(), nil, []NewRun{replacing}); err != nil || out[0].Replaced != id {
			t.Errorf("%+v, %v: a run that the start replaces needs no slot", out, err)
		}
		wantFull(t, s, "", keyed(withID("y")))
	})

	t.Run("InTx", func(t *testing.T) {
		t.Parallel()
		for end, want := range map[string]error{"COMMIT": ErrKeyFull, "ROLLBACK": nil} {
			s := open(t)
			limitKeys(t, s, 1, false)
			tx := begin(t, s)
			if _, err := s.Starts.Start(t.Context(), tx, []NewRun{keyed()}); err != nil {
				t.Fatal(err)
			}
			_, err := s.Starts.Start(t.Context(), tx, []NewRun{keyed()})
			wantError(t, err, ErrKeyFull)
			start(t, s, newRun(ofKey("b"), rejecting)) // another key does not wait
			meetsLock(t, s, func(ctx context.Context) {
				if _, err := s.Starts.Start(ctx, nil, []NewRun{keyed()}); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", end, err, want)
				}
			}, func() { exec(t, tx, end) })
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_key = 'a'`); n != 1 {
				t.Errorf("%s: %d runs", end, n)
			}
		}
	})

	t.Run("GivesUp", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		tx := begin(t, s)
		if _, err := s.Starts.Start(t.Context(), tx, []NewRun{keyed()}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		meetsLock(t, s, func(context.Context) {
			_, err := s.Starts.Start(ctx, nil, []NewRun{keyed()})
			if !errors.As(err, new(*HeldError)) || !strings.Contains(err.Error(), `key "a" is held`) {
				t.Errorf("got %v", err)
			}
		}, cancel)
	})

	t.Run("RefusesStricterIsolation", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = s.Starts.Start(t.Context(), tx, []NewRun{keyed()})
		wantError(t, err, pg.ErrIsolation)
	})

	t.Run("AClaimDoesNotWait", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 5, false)
		id := start(t, s, keyed())
		tx := begin(t, s)
		if _, err := s.Starts.Start(t.Context(), tx, []NewRun{keyed()}); err != nil {
			t.Fatal(err)
		}
		if c := claim(t, s, keyedRequest(9)); !slices.Equal(runIDs(c.Runs), id) {
			t.Errorf("claimed %v", runIDs(c.Runs))
		}
	})
}

func TestCancelOldest(t *testing.T) {
	t.Parallel()
	keyed := func(change ...func(*NewRun)) NewRun {
		return newRun(append([]func(*NewRun){ofKey("a"), cancelling}, change...)...)
	}

	t.Run("NewestStay", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 2, false)
		plain := newRun(ofKey("a"))
		ids := start(t, s, plain, newRun(ofKey("a"), withPriority(1)))
		c := claim(t, s, keyedRequest(9))
		ids = append(ids, start(t, s, newRun(ofKey("a")))...)
		ids = append(ids, start(t, s, newRun(ofKey("a"), withDelay(time.Hour)))...) // not due
		r := keyed()
		out, err := s.Starts.Start(t.Context(), nil, []NewRun{r})
		if err != nil || out[0].Ended == nil ||
			!slices.Equal(sorted(out[0].Ended.Marked), sorted(slices.Clone(ids[:2]))) {
			t.Fatalf("%+v, %v", out, err)
		}
		ids = append(ids, r.RunID)
		wantStatus(t, s, ids, Running, Running, Pending, Pending, Pending)
		if got := claim(t, s, keyedRequest(9)); len(got.Runs) > 0 {
			t.Errorf("claimed %v while functions may be under way", runIDs(got.Runs))
		}
		for _, e := range c.Runs {
			flush(t, s,
				&Flush{Finishes: []*Finish{{
					RunID: e.RunID, Lease: e.Lease, Status: Cancelled,
					ErrorKind: "cancelled",
				}}})
		}
		wantStatus(t, s, ids, Cancelled, Cancelled, Pending, Pending, Pending)
		if row, err := s.Runs.Get(t.Context(), ids[0]); err != nil ||
			row.Error != "run was cancelled: a newer start of its key has taken its place" {
			t.Errorf("%+v, %v", row, err)
		}
		if events, err := s.Runs.Events(t.Context(), ids[1]); err != nil || len(events) != 1 ||
			events[0].Event != EventCancelled || events[0].Reason == "" {
			t.Errorf("events %+v, %v", events, err)
		}
		next := keyedRequest(9)
		next.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}}
		if got := claim(t, s, next); !slices.Equal(runIDs(got.Runs), []uuid.UUID{ids[2], ids[4]}) {
			t.Errorf("claimed %v of %v", runIDs(got.Runs), ids)
		}
	})

	t.Run("NotFull", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 2, false)
		ids := append(start(t, s, keyed()), start(t, s, keyed())...)
		wantStatus(t, s, ids, Pending, Pending)
		ids = append(ids, start(t, s, keyed())...)
		wantStatus(t, s, ids, Cancelled, Pending, Pending)
	})

	// A run that has registered compensations keeps its slot until these have run. The next start does not cancel
	// another one for it.
	t.Run("Compensations", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(inGroup("g")))
		held := claim(t, s, keyedRequest(1)).Runs[0]
		flush(t, s, &Flush{Records: []*Record{registering(held, "undo", 1)}})
		second := newRun(inGroup("g"), cancelling)
		out, err := s.Starts.Start(t.Context(), nil, []NewRun{second})
		if err != nil || !slices.Contains(out[0].Ended.Changed(), ids[0]) {
			t.Fatalf("%+v, %v", out, err)
		}
		if got := statusOf(t, s, ids[0]); got == Cancelled {
			t.Error("the run ended without its compensation")
		}
		if c := claim(t, s, keyedRequest(9)); len(c.Runs) > 0 {
			t.Errorf("claimed %v while the slot is held", runIDs(c.Runs))
		}
		wantFull(t, s, "1 hold a slot and 1 wait", newRun(inGroup("g"), rejecting))
		third := start(t, s, newRun(inGroup("g"), cancelling))
		wantStatus(t, s, append(third, second.RunID), Pending, Cancelled)
	})

	// A run that is about to leave its slot is not cancelled again, and no other run is cancelled in its place.
	t.Run("OneLeavesAlready", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 2, true)
		ids := append(start(t, s, keyed()), start(t, s, keyed())...)
		for _, r := range claim(t, s, keyedRequest(9)).Runs {
			if r.RunID == ids[1] {
				flush(t, s, &Flush{Records: []*Record{registering(r, "undo", 1)}})
			}
		}
		mustCancel(t, s, ids[1], "")
		out, err := s.Starts.Start(t.Context(), nil, []NewRun{keyed()})
		if err != nil || out[0].Ended != nil {
			t.Errorf("%+v, %v", out, err)
		}
		wantStatus(t, s, ids[:1], Running)
	})

	t.Run("StartMany", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 2, false)
		ids := append(start(t, s, keyed()), start(t, s, newRun(ofKey("b")), newRun(ofKey("b")), newRun(ofKey("b")))...)
		ids = append(ids, start(t, s, keyed(), keyed(), newRun(ofKey("b"), cancelling))...)
		want := []string{Cancelled, Cancelled, Cancelled, Pending, Pending, Pending, Pending}
		wantStatus(t, s, ids, want...)
		wantFull(t, s, "3 runs started at once do not fit", keyed(), keyed(), keyed())
		wantFull(t, s, "", keyed(), newRun(ofKey("b"), rejecting)) // and cancels nothing
		wantStatus(t, s, ids, want...)
	})

	t.Run("InTx", func(t *testing.T) {
		t.Parallel()
		for end, want := range map[string][]string{"COMMIT": {Cancelled, Pending}, "ROLLBACK": {Pending, ""}} {
			s := open(t)
			limitKeys(t, s, 1, false)
			ids := start(t, s, keyed())
			tx := begin(t, s)
			r := keyed()
			if _, err := s.Starts.Start(t.Context(), tx, []NewRun{r}); err != nil {
				t.Fatal(err)
			}
			exec(t, tx, end)
			if got := one[string](t, s.pool, `SELECT coalesce(max(status), '') FROM kagzi.workflow_runs
				WHERE run_id = $1`, r.RunID); got != want[1] {
				t.Errorf("%s: the new run is %q", end, got)
			}
			wantStatus(t, s, ids, want[0])
		}
	})

	t.Run("ReplacesToo", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, false)
		ids := start(t, s, newRun(withID("x")), keyed())
		out, err := s.Starts.Start(t.Context(), nil,
			[]NewRun{keyed(withID("x"), func(r *NewRun) { r.IfActive = ReplaceActive })})
		if err != nil || out[0].Replaced != ids[0] ||
			!slices.Equal(sorted(out[0].Ended.Ended), sorted(slices.Clone(ids))) {
			t.Errorf("%+v, %v", out, err)
		}
	})

	t.Run("ALongLine", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, false)
		start(t, s, many(mostCancelled+5, ofKey("a"))...)
		start(t, s, keyed())
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`); n !=
			mostCancelled {
			t.Errorf("%d were cancelled", n)
		}
	})
}

// The answer to the commit is lost, or the commit: the repeated start finds its run or starts it, and knows which runs
// were cancelled.
func TestLostStartWhenFull(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*pgproxy.Proxy, pgproxy.Match) *pgproxy.Drop{"Answer": (*pgproxy.Proxy).
		DropAck, "Request": (*pgproxy.Proxy).DropRequest} {
		for _, policy := range []string{RejectNew, CancelOldest} {
			s, direct, proxy := losing(t)
			limitKeys(t, direct, 1, false)
			var old []uuid.UUID
			if policy == CancelOldest {
				old = start(t, direct, newRun(ofKey("a")))
			}
			r := newRun(ofKey("a"), func(r *NewRun) { r.WhenFull = policy })
			drop := lose(proxy, pgproxy.Exactly("commit"))
			out, err := s.Starts.Start(t.Context(), nil, []NewRun{r})
			happened(t, drop)
			if err != nil || out[0].RunID != r.RunID || out[0].Existed {
				t.Errorf("%s of %s: %+v, %v", name, policy, out, err)
			}
			if old != nil && (err != nil || out[0].Ended == nil || !slices.Equal(out[0].Ended.Ended, old)) {
				t.Errorf("%s: cancelled %+v", name, out)
			}
			if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs
				WHERE status = 'PENDING'`); n != 1 {
				t.Errorf("%s of %s: %d runs", name, policy, n)
			}
		}
	}
}

// A run that is paused itself does not count, unless it holds a slot. One that a pause of its key, queue or workflow
// stops does.
func TestWhenFullOfPausedRuns(t *testing.T) {
	t.Parallel()
	rejected := func() NewRun { return newRun(ofKey("a"), rejecting) }
	pauseRun := func(t *testing.T, s *Store, id uuid.UUID) {
		t.Helper()
		if err := s.Pauses.PauseRun(t.Context(), nil, id, Why{}); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("Waiting", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		limitKeys(t, s, 1, false)
		ids := start(t, s, rejected())
		for _, p := range []Pause{{}, {Queue: "queue"}, {Type: "type"}, {Queue: "queue", Key: Key{Name: "a"}}} {
			pause(t, s, p)
		}
		wantFull(t, s, "0 hold a slot and 1 wait", rejected())
		pauseRun(t, s, ids[0])
		ids = append(ids, start(t, s, newRun(ofKey("a"), cancelling))...)
		wantStatus(t, s, ids, Pending, Pending)
		if err := second(s.Pauses.UnpauseRun(t.Context(), nil, ids[0], Why{})); err != nil {
			t.Fatal(err)
		}
		wantFull(t, s, "1 wait", rejected()) // counting stops at the limit
		ids = append(ids, start(t, s, newRun(ofKey("a"), cancelling))...)
		wantStatus(t, s, ids, Cancelled, Cancelled, Pending)
	})

	t.Run("Parked", func(t *testing.T) {
		t.Parallel()
		for _, held := range []bool{false, true} {
			s := open(t)
			limitKeys(t, s, 1, held)
			ids := start(t, s, rejected())
			r := claim(t, s, keyedRequest(1)).Runs[0]
			pauseRun(t, s, ids[0])
			wantFull(t, s, "1 hold a slot", rejected()) // it executes its step
			flush(t, s,
				&Flush{Suspensions: []*Suspension{{
					RunID: r.RunID, Lease: r.Lease, Status: Pending,
					WaitingOn: waits.List{{Kind: waits.Pause}},
				}}})
			want := []string{Pending, Pending}
			if held {
				wantFull(t, s, "1 hold a slot", rejected())
				want = []string{Cancelled, Pending}
			}
			ids = append(ids, start(t, s, newRun(ofKey("a"), cancelling))...)
			wantStatus(t, s, ids, want...)
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[1:]) {
				t.Errorf("held %t: claimed %v of %v", held, got, ids)
			}
		}
	})

	// The worker of the oldest run is dead. The new run begins when another worker has ended it.
	t.Run("OfADeadWorker", func(t *testing.T) {
		t.Parallel()
		for _, compensates := range []bool{false, true} {
			s := open(t)
			limitKeys(t, s, 1, true)
			ids := start(t, s, rejected())
			r := claim(t, s, keyedRequest(1)).Runs[0]
			if compensates {
				flush(t, s, &Flush{Records: []*Record{registering(r, "undo", 1)}})
			}
			pauseRun(t, s, ids[0])
			ids = append(ids, start(t, s, newRun(ofKey("a"), cancelling))...)
			wantStatus(t, s, ids, Running, Pending)
			if got := claim(t, s, keyedRequest(9)); len(got.Runs) > 0 {
				t.Errorf("claimed %v while the slot is held", runIDs(got.Runs))
			}
			expire(t, s, ids[0])
			if got := claim(t, s, keyedRequest(9)); !slices.Equal(runIDs(got.Runs), ids[:1]) ||
				!got.Runs[0].CancelRequested {
				t.Errorf("claimed %+v, want the cancelled run, to end it", got.Runs)
			}
		}
	})
}
