package inspect

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	two := types(store.WorkflowVersions{Type: "type", Versions: []int{1}, Default: 1},
		store.WorkflowVersions{Type: "other", Versions: []int{1}, Default: 1})

	t.Run("OfQueueWorkflowAndAll", func(t *testing.T) {
		t.Parallel()
		dbtest.NotOnCitus(t, "a claim there sees the ends of the leases that it has just given, and looks again then")
		for _, c := range []struct {
			pause store.Pause
			stops bool // the run of "type", but not that of "other"
			all   bool
		}{
			{store.Pause{}, true, true},
			{store.Pause{Queue: "queue"}, true, true},
			{store.Pause{Type: "type"}, true, false},
			{store.Pause{Queue: "queue", Type: "type"}, true, false},
			{store.Pause{Queue: "elsewhere"}, false, false},
			{store.Pause{Queue: "elsewhere", Type: "type"}, false, false},
			{store.Pause{Type: "third"}, false, false},
			{store.Pause{Queue: "queue", Key: store.Key{Name: "key"}}, false, false},
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
			req.Since = map[store.Pair]time.Time{
				{Type: "type", Priority: 3}:  time.Now().Add(time.Hour),
				{Type: "other", Priority: 3}: time.Now().Add(time.Hour),
			}
			if missed, err := s.Claims.Missed(t.Context(), req); err != nil || len(missed) != 0 {
				t.Errorf("%+v: missed %v, %v", c.pause, missed, err)
			}
			unpause(t, s, c.pause)
			if err := second(s.Pauses.Unpause(t.Context(), nil, c.pause)); !errors.Is(err, store.ErrNotPaused) {
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
		pause(t, s, store.Pause{Queue: "queue"})
		expire(t, s, id)
		if got := claimIDs(t, s, request(1)); got != nil {
			t.Errorf("claimed %v", got)
		}
		unpause(t, s, store.Pause{Queue: "queue"})
		if got := claim(t, s, request(1)); len(got.Runs) != 1 || got.Runs[0].Recoveries != 1 {
			t.Errorf("claimed %+v", got)
		}
	})

	t.Run("OpenTransactionsHoldUpNoClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		pausing, unpausing := begin(t, s), begin(t, s)
		ids := start(t, s, newRun(), newRun(ofKey("a")))
		if err := second(s.Pauses.Pause(t.Context(), pausing, store.Pause{Queue: "queue"})); err != nil {
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
		if err := second(s.Pauses.Unpause(t.Context(), unpausing, store.Pause{Queue: "queue"})); err != nil {
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
		pause(t, s, store.Pause{Type: "type"})
		r := newRun(func(r *store.NewRun) {
			r.Claim = &store.NewClaim{
				Worker: uuid.New(), Lease: store.NewLease(0), LeaseTimeout: time.Minute,
				Version: 1,
			}
		})
		inserted, _, err := s.Starts.Together(t.Context(), func() []*store.NewRun { return []*store.NewRun{&r} })
		if err != nil || len(inserted) != 1 || inserted[r.RunID] != nil {
			t.Fatalf("inserted %v, %v", inserted, err)
		}
		if row := readRow(t, s.pool, r.RunID); row.Status != store.Pending || row.Lease != nil || row.Version != nil {
			t.Errorf("row %+v", row)
		}
	})

	t.Run("Listed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		want := []store.Pause{
			{Reason: "why", Actor: "who", Parks: true},
			{Type: "type"},
			{Queue: "queue"},
			{Queue: "queue", Type: "type"},
			{Queue: "queue", Key: store.Key{Name: "key"}},
			{Key: store.Key{Name: "mail", Group: true}},
		}
		for _, p := range want {
			pause(t, s, p)
		}
		got, err := s.View.Pauses(t.Context(), s.pool, 10)
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
		for i, p := range []store.Pause{{Type: "other"}, {Type: "type"}} {
			pause(t, s, p)
			busy, err := s.Workers.BusyQueues(t.Context(), time.Second, time.Minute)
			if err != nil || len(busy) != 1-i {
				t.Errorf("with %+v: busy are %v, %v", p, busy, err)
			}
		}
	})
}

func TestPausedRun(t *testing.T) {
	t.Parallel()
	pauseIt := func(t *testing.T, s *both, id uuid.UUID) {
		t.Helper()
		if err := s.Pauses.PauseRun(t.Context(), nil, id, store.Why{Reason: "why", Actor: "who"}); err != nil {
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
			run, err := s.Pauses.UnpauseRun(t.Context(), nil, id, store.Why{})
			if err != nil || run != (store.DueRun{RunID: id, Queue: "queue", Type: "type"}) {
				t.Errorf("unpaused %+v, %v", run, err)
			}
			if err := second(s.Pauses.UnpauseRun(t.Context(), nil, id, store.Why{})); err != nil {
				t.Errorf("unpaused again: %v", err)
			}
		}
		if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), ids) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		events, err := s.Runs.Events(t.Context(), ids[0])
		if err != nil || len(events) != 2 || events[0].Event != store.EventPaused || events[0].Reason != "why" ||
			events[0].Actor != "who" || events[1].Event != store.EventUnpaused {
			t.Errorf("events %+v, %v", events, err)
		}
	})

	t.Run("IsParkedAndKeepsItsPause", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		r := claim(t, s, request(1)).Runs[0]
		pauseIt(t, s, id)
		states, err := s.Leases.HeldStates(t.Context(), s.pool, []store.HeldRun{{RunID: id, Lease: r.Lease}}, nil)
		if err != nil || !states[0].Paused || !states[0].Holds {
			t.Fatalf("states %+v, %v", states, err)
		}
		p := &store.Suspension{
			RunID: id, Lease: r.Lease, Status: store.Pending,
			WaitingOn: waits.List{{Kind: waits.Pause}},
		}
		flush(t, s, &store.Flush{Suspensions: []*store.Suspension{p}})
		if got := claimIDs(t, s, request(1)); got != nil || p.Outcome != store.Done {
			t.Errorf("claimed %v after %+v", got, p)
		}
		if err := second(s.Pauses.UnpauseRun(t.Context(), nil, id, store.Why{})); err != nil {
			t.Fatal(err)
		}
		if got := claimIDs(t, s, request(1)); len(got) != 1 {
			t.Errorf("claimed %v", got)
		}
	})

	t.Run("EndsByACancel", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(*both, uuid.UUID) (*store.CancelledRuns, error){
			"cancel": func(s *both, id uuid.UUID) (*store.CancelledRuns, error) {
				return s.Runs.Cancel(t.Context(), nil, id, store.Why{}, 0)
			},
			"terminate": func(s *both, id uuid.UUID) (*store.CancelledRuns, error) {
				return s.Runs.Terminate(t.Context(), nil, id, store.Why{})
			},
		} {
			s := open(t)
			id := start(t, s, newRun())[0]
			pauseIt(t, s, id)
			if out, err := end(s, id); err != nil || !slices.Equal(out.Ended, []uuid.UUID{id}) {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
			if err := s.Pauses.PauseRun(t.Context(), nil, id, store.Why{}); !errors.Is(err, store.ErrRunFinished) {
				t.Errorf("%s: paused afterwards: %v", name, err)
			}
			if err := second(s.Pauses.UnpauseRun(t.Context(), nil, id, store.Why{})); !errors.Is(err,
				store.ErrRunFinished) {
				t.Errorf("%s: unpaused afterwards: %v", name, err)
			}
			if err := second(s.Runs.Resume(t.Context(), nil, id, store.Why{})); err != nil {
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
		flush(t, s, &store.Flush{Records: []*store.Record{registering(r, "undo", 1)}})
		pauseIt(t, s, id)
		if out, err := s.Runs.Cancel(t.Context(), nil, id, store.Why{}, time.Minute); err != nil ||
			!slices.Equal(out.Marked, []uuid.UUID{id}) {
			t.Fatalf("%+v, %v", out, err)
		}
		if err := s.Pauses.PauseRun(t.Context(), nil, id, store.Why{}); !errors.Is(err, store.ErrRunEnding) {
			t.Errorf("paused while it is about to end: %v", err)
		}
		flush(t, s,
			&store.Flush{Suspensions: []*store.Suspension{{
				RunID: id, Lease: r.Lease, Status: store.Pending,
				WaitingOn: waits.List{{Kind: waits.Pause}},
			}}})
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
		if err := second(s.Pauses.UnpauseRun(t.Context(), nil, id, store.Why{})); err != nil {
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
			pause store.Pause
			want  bool
		}{
			{store.Pause{Queue: "queue"}, false},
			{store.Pause{Queue: "queue", Parks: true}, true},
			{store.Pause{Type: "type", Parks: true}, true},
			{store.Pause{Queue: "queue", Key: store.Key{Name: "a"}, Parks: true}, true},
			{store.Pause{Queue: "other", Parks: true}, false},
			{store.Pause{Queue: "queue", Key: store.Key{Name: "b"}, Parks: true}, false},
			{store.Pause{Key: store.Key{Name: "a", Group: true}, Parks: true}, false},
			{store.Pause{Parks: true}, true},
		} {
			pause(t, s, c.pause)
			states, err := s.Leases.HeldStates(t.Context(), s.pool, []store.HeldRun{{RunID: r.RunID, Lease: r.Lease}},
				nil)
			if err != nil || states[0].Paused != c.want {
				t.Errorf("%+v: states %+v, %v", c.pause, states, err)
			}
			unpause(t, s, c.pause)
		}
	})
}
