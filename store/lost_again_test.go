package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// unaudited is losing without the audit, for runs that the test makes up.
func unaudited(t *testing.T) (through, direct *Store, proxy *pgproxy.Proxy) {
	t.Helper()
	db := dbtest.Database(t)
	proxy = pgproxy.Start(t, db.DSN)
	return New(poolWith(t, proxy.DSN(), nil), "test"), New(db.Pool, "test"), proxy
}

// betweenTries calls change, the answer to whose commit is lost, and meanwhile before change tries again.
func betweenTries(t *testing.T, proxy *pgproxy.Proxy, change func(context.Context), meanwhile func()) {
	t.Helper()
	drop := proxy.DropAck(pgproxy.Exactly("commit"))
	again := proxy.HoldAck(pgproxy.Nth(2, pgproxy.Contains("begin isolation level")))
	defer again.Release()
	var changing sync.WaitGroup
	changing.Go(func() { change(context.WithoutCancel(t.Context())) })
	happened(t, drop)
	happened(t, again)
	meanwhile()
	again.Release()
	changing.Wait()
}

// The answer to an Update is lost, and before it tries again the run goes on: it did what it was asked to, and does not
// do it again.
func TestLostUpdateOfARunThatGoesOn(t *testing.T) {
	t.Parallel()
	goOn := func(t *testing.T, s *Store) *ClaimedRun {
		t.Helper()
		c := claim(t, s, request(1, inQueue("other")))
		if len(c.Runs) != 1 || c.Runs[0].Version != 1 {
			t.Fatalf("claimed %+v", c.Runs)
		}
		return c.Runs[0]
	}
	for name, meanwhile := range map[string]func(t *testing.T, s *Store){
		"Claimed":   func(t *testing.T, s *Store) { goOn(t, s) },
		"Completed": func(t *testing.T, s *Store) { flush(t, s, &Flush{Finishes: []*Finish{finish(goOn(t, s))}}) },
		"Sleeping": func(t *testing.T, s *Store) {
			flush(t, s, &Flush{Suspensions: []*Suspension{sleep(goOn(t, s), time.Hour)}})
		},
		"Cancelled": func(t *testing.T, s *Store) {
			mustCancel(t, s, one[uuid.UUID](t, s.pool, `SELECT run_id FROM kagzi.workflow_runs`), "")
		},
		"MovedOn": func(t *testing.T, s *Store) {
			update(t, s, one[uuid.UUID](t, s.pool, `SELECT run_id FROM kagzi.workflow_runs`),
				RunUpdate{Queue: "third", Priority: 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, direct, proxy := losing(t)
			id := start(t, direct, newRun(withDelay(time.Hour), withTimeout(time.Hour)))[0]
			const row = `SELECT r::text FROM kagzi.workflow_runs r`
			var after string
			betweenTries(t, proxy, func(ctx context.Context) {
				u := dueAfter(0)
				u.Queue, u.Priority, u.SetMetadata, u.Metadata = "other", 1, true, []byte(`{"a": "1"}`)
				due, err := s.Runs.Update(ctx, nil, id, u, Why{Actor: "who"})
				if err != nil || len(due) != 1 || due[0].Queue != "other" {
					t.Errorf("to be told %+v, %v", due, err)
				}
			}, func() {
				meanwhile(t, direct)
				after = one[string](t, direct.pool, row)
			})
			if now := one[string](t, direct.pool, row); now != after {
				t.Errorf("the second try has changed\n%s to\n%s", after, now)
			}
			events, err := direct.Runs.Events(t.Context(), id)
			if err != nil || len(events) == 0 || events[0].Actor != "who" || len(events[0].Changes) != 4 {
				t.Fatalf("events %+v, %v", events, err)
			}
			if updates := slices.DeleteFunc(events[1:], func(e RunEvent) bool {
				return e.Actor != "who"
			}); len(updates) > 0 {
				t.Errorf("once more %+v", updates)
			}
		})
	}
}

// The answer to the first commit of a Delete is lost, and before it tries again others go on with it.
func TestLostDeleteThatOthersFinish(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, s *Store, ids []uuid.UUID){
		"Coordinator":   func(t *testing.T, s *Store, ids []uuid.UUID) { finishDeletions(t, s, ids...) },
		"OnlyTheParent": func(t *testing.T, s *Store, ids []uuid.UUID) { finishDeletions(t, s, ids[0]) },
		"AnotherCall":   func(t *testing.T, s *Store, ids []uuid.UUID) { mustDelete(t, s, ids[0]) },
		"NobodyMayResumeIt": func(t *testing.T, s *Store, ids []uuid.UUID) {
			wantError(t, second(s.Runs.Resume(t.Context(), nil, ids[0], Why{})), ErrRunNotFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, direct, proxy := unaudited(t)
			parent := withRows(t, direct, old(t, direct, Failed, time.Hour), deletedRows+1)
			child := old(t, direct, Completed, time.Hour, withParent(parent))
			betweenTries(t, proxy, func(ctx context.Context) {
				ids, err := s.Deletions.Delete(ctx, nil, parent, Why{"why", "first"}, false)
				if err != nil || !slices.Equal(ids, []uuid.UUID{parent, child}) {
					t.Errorf("deleted %v, %v", ids, err)
				}
			}, func() { meanwhile(t, direct, []uuid.UUID{parent, child}) })
			if name == "OnlyTheParent" { // the child is marked
				finishDeletions(t, direct, markedOf(t, direct)...)
			}
			for _, id := range []uuid.UUID{parent, child} {
				if e := deletionOf(t, direct, id); e.Actor != "first" {
					t.Errorf("%+v, which is not who has decided it", e)
				}
			}
		})
	}
}

// A Delete that did not take effect at its first try, because its commit was lost, finds that another caller has
// deleted the run.
func TestLostDeleteOfARunThatIsGone(t *testing.T) {
	t.Parallel()
	s, direct, proxy := unaudited(t)
	id := old(t, direct, Failed, time.Hour)
	drop := proxy.DropRequest(pgproxy.Exactly("commit"))
	again := proxy.HoldAck(pgproxy.Nth(2, pgproxy.Contains("begin isolation level")))
	defer again.Release()
	got := make(chan error, 1)
	go func() {
		got <- second(s.Deletions.Delete(context.WithoutCancel(t.Context()), nil, id, Why{"why", "first"}, false))
	}()
	happened(t, drop)
	happened(t, again)
	if _, err := direct.Deletions.Delete(t.Context(), nil, id, Why{"why", "second"}, false); err != nil {
		t.Error(err)
	}
	again.Release()
	if err := <-got; !errors.Is(err, ErrRunNotFound) {
		t.Errorf("%v, although somebody else has deleted the run", err)
	}
	if e := deletionOf(t, direct, id); e.Actor != "second" {
		t.Errorf("%+v", e)
	}
}
