package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func pause(t *testing.T, s *Store, p Pause) {
	t.Helper()
	if _, err := s.Pause(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
}

func unpause(t *testing.T, s *Store, p Pause, percent int) {
	t.Helper()
	if _, err := s.Unpause(t.Context(), nil, p, percent); err != nil {
		t.Fatal(err)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	two := types(WorkflowVersions{"type", []int{1}, 1}, WorkflowVersions{"other", []int{1}, 1})

	t.Run("OfQueueWorkflowAndAll", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			pause Pause
			stops bool // the run of "type", but not that of "other"
			all   bool
		}{
			{Pause{}, true, true},
			{Pause{Queue: "queue"}, true, true},
			{Pause{Type: "type"}, true, false},
			{Pause{Queue: "queue", Type: "type"}, true, false},
			{Pause{Queue: "elsewhere"}, false, false},
			{Pause{Queue: "elsewhere", Type: "type"}, false, false},
			{Pause{Type: "third"}, false, false},
			{Pause{Queue: "queue", Key: Key{Name: "key"}}, false, false},
		} {
			s := open(t)
			ids := start(t, s, newRun(), newRun(ofType("other")))
			later := start(t, s, newRun(withDelay(10*time.Minute)))
			pause(t, s, c.pause)
			want := slices.Clone(ids)
			switch {
			case c.all:
				want = nil
			case c.stops:
				want = ids[1:]
			}
			req := request(10, two)
			req.Ahead = time.Hour
			got := claim(t, s, req)
			if !slices.Equal(sorted(runIDs(got.Runs)), want) || got.Next.IsZero() != c.stops {
				t.Errorf("%+v: claimed %v and next at %v, of %v", c.pause, runIDs(got.Runs), got.Next, ids)
			}
			req.Since = map[Pair]time.Time{
				{"type", 3}:  time.Now().Add(time.Hour),
				{"other", 3}: time.Now().Add(time.Hour),
			}
			if missed, err := s.Missed(t.Context(), req); err != nil || len(missed) != 0 {
				t.Errorf("%+v: missed %v, %v", c.pause, missed, err)
			}
			unpause(t, s, c.pause, 0)
			if err := second(s.Unpause(t.Context(), nil, c.pause, 0)); !errors.Is(err, ErrNotPaused) {
				t.Errorf("%+v: ended twice: %v", c.pause, err)
			}
			if got := claim(t, s, request(10, two)); len(got.Runs) != len(ids)-len(want) {
				t.Errorf("%+v: then claimed %v of %v, and %v later", c.pause, runIDs(got.Runs), ids, later)
			}
		}
	})

	t.Run("WorkOfADeadWorkerWaits", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		claim(t, s, request(1))
		pause(t, s, Pause{Queue: "queue"})
		expire(t, s, id)
		if got := claimIDs(t, s, request(1)); got != nil {
			t.Errorf("claimed %v", got)
		}
		unpause(t, s, Pause{Queue: "queue"}, 0)
		if got := claim(t, s, request(1)); len(got.Runs) != 1 || got.Runs[0].Recoveries != 1 {
			t.Errorf("claimed %+v", got)
		}
	})

	t.Run("PercentagesGrow", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		var runs []NewRun
		for range 300 {
			runs = append(runs, newRun())
		}
		start(t, s, runs...)
		pause(t, s, Pause{})
		passed := map[uuid.UUID]bool{}
		for _, percent := range []int{10, 20, 50} {
			unpause(t, s, Pause{}, percent)
			got := claimIDs(t, s, request(300))
			if n := 3 * percent; len(got) < n/5 || len(passed)+len(got) > 3*n {
				t.Errorf("at %d%% %d runs pass", percent, len(passed)+len(got))
			}
			for _, id := range got {
				passed[id] = true
			}
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now(), started_at = NULL
				WHERE run_id = ANY ($1)`, got)
			again := claimIDs(t, s, request(300))
			for id := range passed {
				if !slices.Contains(again, id) {
					t.Errorf("at %d%% run %s does not pass any more", percent, id)
				}
			}
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now(), started_at = NULL
				WHERE run_id = ANY ($1)`, again)
		}
		pause(t, s, Pause{})
		if got := claimIDs(t, s, request(300)); got != nil {
			t.Errorf("paused again: claimed %v", got)
		}
	})

	// The runs of a key pass together, so a sequence stays one. The line of a key that does not pass is not read.
	t.Run("PercentageOfKeys", func(t *testing.T) {
		t.Parallel()
		for name, of := range map[string]func(string) func(*NewRun){"keys": ofKey, "groups": inGroup} {
			s := open(t)
			var runs []NewRun
			for i := range 300 {
				runs = append(runs, newRun(of(fmt.Sprint(i%100))))
			}
			ids := start(t, s, runs...)
			pause(t, s, Pause{})
			unpause(t, s, Pause{}, 30)
			stopped := map[string]bool{}
			for i, id := range ids[:100] {
				o, err := s.Obstacle(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				stopped[fmt.Sprint(i)] = o.Paused
			}
			pass := map[string]int{}
			for more := true; more; {
				req := keyedRequest(300)
				got := claim(t, s, req)
				more = len(got.Runs) > 0
				for _, r := range got.Runs {
					pass[r.Key.Name]++
					flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
				}
				exec(t, s.pool, `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key)
					SELECT DISTINCT key_scope, namespace_id, run_key FROM kagzi.run_keys`)
			}
			for key, isStopped := range stopped {
				if isStopped == (pass[key] > 0) {
					t.Errorf("%s: of key %s %d runs pass, and an obstacle is said to stop them: %t", name, key,
						pass[key], isStopped)
				}
			}
			for key, n := range pass {
				if n != 3 {
					t.Errorf("%s: of key %s %d runs pass", name, key, n)
				}
			}
			if len(pass) < 10 || len(pass) > 50 {
				t.Errorf("%d of 100 %s pass at 30%%", len(pass), name)
			}
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys WHERE available_at < 'infinity'`); n > 0 {
				t.Errorf("%d %s are in the line", n, name)
			}
		}
	})

	t.Run("ARunIsReleased", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun(), newRun(ofKey("a")), newRun(ofKey("a")))
		pause(t, s, Pause{})
		claim(t, s, keyedRequest(10))
		for _, id := range []uuid.UUID{ids[1], ids[3]} {
			if err := second(s.UnpauseRun(t.Context(), nil, id, Why{})); err != nil {
				t.Fatal(err)
			}
		}
		if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), []uuid.UUID{ids[1], ids[3]}) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		pause(t, s, Pause{})
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', slot = NULL, available_at = now()`)
		if got := claimIDs(t, s, request(10)); got != nil {
			t.Errorf("paused again: claimed %v", got)
		}
	})

	t.Run("OpenTransactionsHoldUpNoClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		pausing, unpausing := begin(t, s), begin(t, s)
		ids := start(t, s, newRun(), newRun(ofKey("a")))
		if err := second(s.Pause(t.Context(), pausing, Pause{Queue: "queue"})); err != nil {
			t.Fatal(err)
		}
		if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), ids) {
			t.Errorf("before the commit: claimed %v of %v", got, ids)
		}
		if err := pausing.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids = start(t, s, newRun(), newRun(ofKey("a")))
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) > 0 || !got.Keys.Next.IsZero() {
			t.Errorf("after the commit: %+v", got)
		}
		if err := second(s.Unpause(t.Context(), unpausing, Pause{Queue: "queue"}, 0)); err != nil {
			t.Fatal(err)
		}
		// The key is younger than the search of the transaction that ends the pause.
		ids = append(ids, start(t, s, newRun(ofKey("b")))...)
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) > 0 || got.Keys.Next.IsZero() || got.Keys.Change != 0 {
			t.Errorf("while the pause is being ended: %+v", got)
		}
		if err := unpausing.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = available_at - interval '1 second'`)
		if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), ids) {
			t.Errorf("claimed %v of %v", got, ids)
		}
	})

	t.Run("NoRunIsInsertedAsClaimed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		pause(t, s, Pause{Type: "type"})
		r := newRun(func(r *NewRun) {
			r.Claim = &NewClaim{Worker: uuid.New(), Lease: NewLease(0), LeaseTimeout: time.Minute, Version: 1}
		})
		inserted, _, err := s.StartTogether(t.Context(), func() []*NewRun { return []*NewRun{&r} })
		if err != nil || len(inserted) != 1 || inserted[r.RunID] != nil {
			t.Fatalf("inserted %v, %v", inserted, err)
		}
		if row := readRow(t, s.pool, r.RunID); row.Status != Pending || row.Lease != nil || row.Version != nil {
			t.Errorf("row %+v", row)
		}
	})

	t.Run("Listed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		want := []Pause{
			{Reason: "why", Actor: "who", Parks: true},
			{Type: "type"},
			{Queue: "queue"},
			{Queue: "queue", Type: "type", Percent: 7},
			{Queue: "queue", Key: Key{Name: "key"}},
			{Key: Key{Name: "mail", Group: true}},
		}
		for _, p := range want {
			pause(t, s, p)
			if p.Percent > 0 {
				unpause(t, s, p, p.Percent)
			}
		}
		got, err := s.Pauses(t.Context(), s.pool, 10)
		for i := range got {
			if got[i].At.IsZero() {
				t.Errorf("%+v has no time", got[i])
			}
			got[i].At = time.Time{}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})

	t.Run("NotBusy", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, newRun(), newRun(ofType("other")))
		register(t, s)
		exec(t, s.pool, `UPDATE kagzi.workers SET task_queues = '{queue}', workflow_types = '{type}'`)
		for i, p := range []Pause{{Type: "other"}, {Type: "type"}} {
			pause(t, s, p)
			busy, err := s.BusyQueues(t.Context(), time.Second, time.Minute)
			if err != nil || len(busy) != 1-i {
				t.Errorf("with %+v: busy are %v, %v", p, busy, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestPausedKeys(t *testing.T) {
	t.Parallel()
	key, group := Pause{Queue: "queue", Key: Key{Name: "a"}}, Pause{Key: Key{Name: "g", Group: true}}
	for _, p := range []Pause{key, group, {Queue: "queue"}, {Type: "type"}, {}} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			s := open(t)
			of := ofKey("a")
			if p.Key.Group {
				of = inGroup("g")
			}
			ids := start(t, s, newRun(of), newRun(of, ofType("other")), newRun(ofKey("b")))
			pause(t, s, p)
			req := keyedRequest(10)
			req.Types = []WorkflowVersions{{"type", []int{1}, 1}, {"other", []int{1}, 1}}
			want := map[bool][]uuid.UUID{true: ids[2:], false: nil}[p.Key.Name != ""]
			if p.Type != "" {
				want = ids[1:2]
			}
			got := claim(t, s, req)
			if !slices.Equal(sorted(runIDs(got.Runs)), want) {
				t.Errorf("claimed %v of %v, want %v", runIDs(got.Runs), ids, want)
			}
			got = claim(t, s, req)
			if got.Keys.Looked > 0 || !got.Keys.Next.IsZero() || got.Keys.Change != 0 {
				t.Errorf("the claim would go on: %+v", got)
			}
			unpause(t, s, p, 0)
			n := len(want)
			got = claim(t, s, req)
			if n += len(got.Runs); p.Key.Group { // at most one at a time
				n++
			}
			if n != 3 {
				t.Errorf("then claimed %v of %v", runIDs(got.Runs), ids)
			}
		})
	}
}

// A key's pause holds in its own queue only, and a group's only for the group.
func TestPausesOfOtherKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, newRun(ofKey("a")), newRun(inGroup("g")), newRun(ofKey("g")))
	for _, p := range []Pause{
		{Queue: "elsewhere", Key: Key{Name: "a"}},
		{Key: Key{Name: "a", Group: true}},
		{Queue: "elsewhere"},
	} {
		pause(t, s, p)
	}
	if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), ids) {
		t.Errorf("claimed %v of %v", got, ids)
	}
}

// A held run that wakes up in a paused queue waits, even if the queue is full.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, held)
		VALUES ('queue', $1, 1, true)`, s.namespace)
	id := start(t, s, newRun())[0]
	claim(t, s, keyedRequest(1))
	expire(t, s, id)
	for _, p := range []Pause{{Queue: "queue"}, {Type: "type"}} {
		pause(t, s, p)
		if got := claim(t, s, keyedRequest(1)); len(got.Runs) > 0 {
			t.Errorf("with %+v claimed %v", p, runIDs(got.Runs))
		}
		unpause(t, s, p, 0)
	}
	if got := claim(t, s, keyedRequest(1)); len(got.Runs) != 1 {
		t.Errorf("then claimed %v", runIDs(got.Runs))
	}
}

func TestPausedRun(t *testing.T) {
	t.Parallel()
	pauseIt := func(t *testing.T, s *Store, id uuid.UUID) {
		t.Helper()
		if err := s.PauseRun(t.Context(), nil, id, Why{"why", "who"}); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("IsNotClaimed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun(ofKey("a")), newRun(withDelay(time.Millisecond)))
		for _, id := range ids {
			pauseIt(t, s, id)
			pauseIt(t, s, id)
		}
		if got := claim(t, s, keyedRequest(10)); len(got.Runs) > 0 || !got.Next.IsZero() || !got.Keys.Next.IsZero() {
			t.Errorf("claimed %+v", got)
		}
		if n, since, first, err := s.PausedRuns(t.Context(), s.pool, 2); err != nil || n != 2 || since.IsZero() ||
			first != ids[0] {
			t.Errorf("paused are %d since %v, first %v, %v", n, since, first, err)
		}
		for _, id := range ids {
			run, err := s.UnpauseRun(t.Context(), nil, id, Why{})
			if err != nil || run != (DueRun{RunID: id, Queue: "queue", Type: "type"}) {
				t.Errorf("unpaused %+v, %v", run, err)
			}
		}
		if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), ids) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		events, err := s.RunEvents(t.Context(), ids[0])
		if err != nil || len(events) != 2 || events[0].Event != EventPaused || events[0].Reason != "why" ||
			events[0].Actor != "who" || events[1].Event != EventUnpaused {
			t.Errorf("events %+v, %v", events, err)
		}
	})

	t.Run("IsParkedAndKeepsItsPause", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		r := claim(t, s, request(1)).Runs[0]
		pauseIt(t, s, id)
		states, err := s.HeldStates(t.Context(), s.pool, []HeldRun{{id, r.Lease}}, nil)
		if err != nil || !states[0].Paused || !states[0].Holds {
			t.Fatalf("states %+v, %v", states, err)
		}
		p := &Suspension{RunID: id, Lease: r.Lease, Status: Pending, WaitingOn: "pause"}
		flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		if got := claimIDs(t, s, request(1)); got != nil || p.Outcome != Done {
			t.Errorf("claimed %v after %+v", got, p)
		}
		if err := second(s.UnpauseRun(t.Context(), nil, id, Why{})); err != nil {
			t.Fatal(err)
		}
		if got := claimIDs(t, s, request(1)); len(got) != 1 {
			t.Errorf("claimed %v", got)
		}
	})

	t.Run("EndsByACancel", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(*Store, uuid.UUID) (*CancelledRuns, error){
			"cancel": func(s *Store, id uuid.UUID) (*CancelledRuns, error) {
				return s.Cancel(t.Context(), nil, id, Why{}, 0)
			},
			"terminate": func(s *Store, id uuid.UUID) (*CancelledRuns, error) {
				return s.Terminate(t.Context(), nil, id, Why{})
			},
		} {
			s := open(t)
			id := start(t, s, newRun())[0]
			pauseIt(t, s, id)
			if out, err := end(s, id); err != nil || !slices.Equal(out.Ended, []uuid.UUID{id}) {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
			if err := s.PauseRun(t.Context(), nil, id, Why{}); !errors.Is(err, ErrRunFinished) {
				t.Errorf("%s: paused afterwards: %v", name, err)
			}
			if err := second(s.UnpauseRun(t.Context(), nil, id, Why{})); !errors.Is(err, ErrRunFinished) {
				t.Errorf("%s: unpaused afterwards: %v", name, err)
			}
			if err := second(s.Resume(t.Context(), nil, id, Why{})); err != nil {
				t.Fatal(err)
			}
			if got := claimIDs(t, s, request(1)); len(got) != 1 {
				t.Errorf("%s: resumed, it is not claimed", name)
			}
		}
	})

	// The worker is asked to end the run, because it has compensations. If it dies meanwhile, another one has to.
	t.Run("ACancelUnderWayEndsThePause", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		r := claim(t, s, request(1)).Runs[0]
		flush(t, s, &Flush{Records: []*Record{registering(r, "undo", 1)}})
		pauseIt(t, s, id)
		if out, err := s.Cancel(t.Context(), nil, id, Why{}, time.Minute); err != nil ||
			!slices.Equal(out.Marked, []uuid.UUID{id}) {
			t.Fatalf("%+v, %v", out, err)
		}
		if err := s.PauseRun(t.Context(), nil, id, Why{}); !errors.Is(err, ErrRunEnding) {
			t.Errorf("paused while it is about to end: %v", err)
		}
		flush(t, s,
			&Flush{Suspensions: []*Suspension{{RunID: id, Lease: r.Lease, Status: Pending, WaitingOn: "pause"}}})
		if got := claim(t, s, request(1)); len(got.Runs) != 1 || !got.Runs[0].CancelRequested {
			t.Errorf("claimed %+v", got)
		}
	})

	t.Run("OfADeadWorker", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		claim(t, s, request(1)) // by a worker that is not registered
		pauseIt(t, s, id)
		if err := second(s.UnpauseRun(t.Context(), nil, id, Why{})); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, s, request(1)); len(got.Runs) != 1 || got.Runs[0].Recoveries != 1 {
			t.Errorf("claimed %+v", got)
		}
	})

	t.Run("ParksOfQueues", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, newRun(ofKey("a")))
		r := claim(t, s, keyedRequest(1)).Runs[0]
		for _, c := range []struct {
			pause Pause
			want  bool
		}{
			{Pause{Queue: "queue"}, false},
			{Pause{Queue: "queue", Parks: true}, true},
			{Pause{Type: "type", Parks: true}, true},
			{Pause{Queue: "queue", Key: Key{Name: "a"}, Parks: true}, true},
			{Pause{Queue: "other", Parks: true}, false},
			{Pause{Queue: "queue", Key: Key{Name: "b"}, Parks: true}, false},
			{Pause{Key: Key{Name: "a", Group: true}, Parks: true}, false},
			{Pause{Parks: true}, true},
		} {
			pause(t, s, c.pause)
			states, err := s.HeldStates(t.Context(), s.pool, []HeldRun{{r.RunID, r.Lease}}, nil)
			if err != nil || states[0].Paused != c.want {
				t.Errorf("%+v: states %+v, %v", c.pause, states, err)
			}
			unpause(t, s, c.pause, 0)
		}
	})
}

// A run that is paused during its last step ends, and is not paused any more.
func TestEndOfAPausedRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	start(t, s, newRun(), newRun())
	runs := claim(t, s, request(2)).Runs
	for i, status := range []string{Completed, Failed} {
		if err := s.PauseRun(t.Context(), nil, runs[i].RunID, Why{}); err != nil {
			t.Fatal(err)
		}
		f := finish(runs[i])
		if status == Failed {
			f.Status, f.Output, f.ErrorKind = status, nil, "kind"
		}
		flush(t, s, &Flush{Finishes: []*Finish{f}})
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND status = $2
			AND paused_at IS NULL`, runs[i].RunID, status); n != 1 {
			t.Errorf("the run that ends as %s is paused", status)
		}
	}
}
