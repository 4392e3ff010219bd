package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("WhatItWrites", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		full := newRun(withID("id"), ofVersion(3), withPriority(1), withTimeout(time.Minute), withParent(uuid.New()),
			func(r *NewRun) {
				r.At, r.RetryPolicy, r.Metadata, r.ParentStep = at, []byte(`{"a": 1}`), []byte(`{"tag": "x"}`), "child"
			})
		ids := start(t, s, full, newRun(func(r *NewRun) { r.Input = []byte{} }))
		r, err := s.Runs.Get(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		if r.ExternalID != "id" || r.Version != 3 || r.Priority != 1 || !r.AvailableAt.Equal(at) ||
			!r.DeadlineAt.Equal(at.Add(time.Minute)) ||
			r.Parent != full.Parent || string(r.Metadata) != `{"tag": "x"}` || string(r.Input) != "input" ||
			r.Status != Pending || r.CreatedAt.IsZero() {
			t.Errorf("run %+v", r)
		}
		if got := one[string](t, s.pool, `SELECT concat_ws(' ', input_hash, retry_policy, parent_step_id)
			FROM kagzi.workflow_runs WHERE run_id = $1`, ids[0]); got != `\x68617368 {"a": 1} child` {
			t.Errorf("row %s", got)
		}
		if r, err = s.Runs.Get(t.Context(), ids[1]); err != nil || r.ExternalID != "" || r.Version != 0 ||
			!r.DeadlineAt.IsZero() || r.Input == nil || r.Parent != uuid.Nil || r.Metadata != nil {
			t.Errorf("run %+v, error %v", r, err)
		}
	})

	t.Run("None", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		if started, err := s.Starts.Start(t.Context(), nil, nil); started != nil || err != nil {
			t.Error(started, err)
		}
	})

	t.Run("TenThousand", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		runs := many(10_000)
		runs[17].ExternalID = "id"
		start(t, s, newRun(withID("id")))
		started, err := s.Starts.Start(t.Context(), nil, runs)
		if err != nil || len(started) != len(runs) {
			t.Fatal(len(started), err)
		}
		for i, r := range started {
			if r.Existed != (i == 17) || (r.RunID == runs[i].RunID) != (i != 17) {
				t.Fatalf("run %d: %+v", i, r)
			}
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 10_000 {
			t.Errorf("%d runs", n)
		}
	})

	t.Run("TheSameIDAgain", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		first := start(t, s, newRun(withID("id")))
		started, err := s.Starts.Start(t.Context(), nil, []NewRun{newRun(withID("id"))})
		if err != nil || started[0] != (StartedRun{RunID: first[0], Existed: true}) {
			t.Errorf("%+v, %v", started, err)
		}
		// Another namespace's ID is another ID.
		if started, err = New(s.pool, "other").Starts.Start(t.Context(), nil,
			[]NewRun{newRun(withID("id"))}); err != nil ||
			started[0].Existed {
			t.Errorf("%+v, %v", started, err)
		}
		// Once the run is over the ID is free.
		mustCancel(t, s, first[0], "")
		if started, err = s.Starts.Start(t.Context(), nil,
			[]NewRun{newRun(withID("id"), withHash("other"))}); err != nil ||
			started[0].Existed {
			t.Errorf("%+v, %v", started, err)
		}
	})

	t.Run("ConflictsStartNone", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, newRun(withID("taken")))
		for _, runs := range [][]NewRun{
			{newRun(withID("taken"), withHash("other"))},
			{newRun(), newRun(withID("free")), newRun(withID("taken"), withHash("other")), newRun()},
		} {
			_, err := s.Starts.Start(t.Context(), nil, runs)
			wantError(t, err, ErrIDConflict)
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
				t.Errorf("%d runs, want the first alone", n)
			}
		}
	})

	t.Run("InACallersTransaction", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		exec(t, s.pool, `CREATE TABLE public.mine (n int)`)
		taken := start(t, s, newRun(withID("taken")))
		tx := begin(t, s)
		exec(t, tx, `INSERT INTO mine VALUES (1)`)
		if _, err := s.Starts.Start(t.Context(), tx, many(3)); err != nil {
			t.Fatal(err)
		}
		rollback(t, tx)
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
			t.Errorf("%d runs after a rollback, want 1", n)
		}
		tx = begin(t, s)
		exec(t, tx, `INSERT INTO mine VALUES (2)`)
		_, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(), newRun(withID("taken"), withHash("other"))})
		wantError(t, err, ErrIDConflict)
		started, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(withID("taken")), newRun(withID("new"))})
		if err != nil || started[0] != (StartedRun{RunID: taken[0], Existed: true}) || started[1].Existed {
			t.Errorf("%+v, %v: a conflict must leave the transaction usable", started, err)
		}
		if id, err := s.Runs.Find(t.Context(), tx, "new"); err != nil || id != started[1].RunID {
			t.Errorf("found %v, %v in the transaction", id, err)
		}
		_, err = s.Runs.Find(t.Context(), nil, "new")
		wantError(t, err, ErrRunNotFound)
		commit(t, tx)
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`) +
			one[int](t, s.pool, `SELECT count(*) FROM mine`); n != 3 {
			t.Errorf("%d rows, want two runs and one of the caller's", n)
		}
	})

	t.Run("WaitsForACallersTransaction", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			run := newRun(withID(end))
			tx := begin(t, s)
			if _, err := s.Starts.Start(t.Context(), tx, []NewRun{run}); err != nil {
				t.Fatal(err)
			}
			var started []StartedRun
			var err error
			meetsLock(t, s, func(ctx context.Context) {
				started, err = s.Starts.Start(ctx, nil, []NewRun{newRun(withID(end))})
			}, func() { exec(t, tx, end) })
			if err != nil || started[0].Existed != (end == "COMMIT") ||
				(started[0].RunID == run.RunID) != (end == "COMMIT") {
				t.Errorf("after %s: %+v, %v", end, started, err)
			}
		}
	})

	t.Run("RacesForOneID", func(t *testing.T) {
		t.Parallel()
		s := open(t, dbtest.MaxConns(20))
		for round := range 10 {
			const n = 16
			results := make([]StartedRun, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					runs := []NewRun{newRun(withID(fmt.Sprintf("id-%d", round)))}
					if i%4 == 0 { // some of them among others
						runs = append(runs, newRun(), newRun(withID(fmt.Sprintf("own-%d-%d", round, i))))
					}
					started, err := s.Starts.Start(t.Context(), nil, runs)
					if err != nil {
						t.Error(err)
						return
					}
					results[i] = started[0]
				})
			}
			wg.Wait()
			fresh := 0
			for _, r := range results {
				if r.RunID != results[0].RunID {
					t.Errorf("run IDs %v and %v for one ID", r.RunID, results[0].RunID)
				}
				if !r.Existed {
					fresh++
				}
			}
			if fresh != 1 {
				t.Errorf("%d starts believe to have made the run, want 1", fresh)
			}
		}
	})

	t.Run("RacesWithTheEnd", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 25 {
					started, err := s.Starts.Start(t.Context(), nil, []NewRun{newRun(withID("id"))})
					if err != nil {
						t.Error(err)
						return
					}
					if err := cancelled(s.Runs.Cancel(t.Context(), nil, started[0].RunID, Why{}, 0)); err != nil &&
						!errors.Is(err, ErrRunFinished) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, err := s.Runs.Find(t.Context(), nil, "id")
	wantError(t, err, ErrRunNotFound)
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, start(t, s, newRun(withID("id")))...)
		if id, err := s.Runs.Find(t.Context(), nil, "id"); err != nil || id != ids[len(ids)-1] {
			t.Errorf("found %v, %v, want the active run", id, err)
		}
		mustCancel(t, s, ids[len(ids)-1], "")
	}
	if id, err := s.Runs.Find(t.Context(), nil, "id"); err != nil || id != ids[2] {
		t.Errorf("found %v, %v, want the newest", id, err)
	}
	mustResume(t, s, ids[0])
	if id, err := s.Runs.Find(t.Context(), nil, "id"); err != nil || id != ids[0] {
		t.Errorf("found %v, %v, want the active one though it is older", id, err)
	}
	_, err = New(s.pool, "other").Runs.Find(t.Context(), nil, "id")
	wantError(t, err, ErrRunNotFound)
}
