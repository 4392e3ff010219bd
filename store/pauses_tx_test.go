package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/waits"
)

// What a caller's transaction pauses or unpauses is in force from its commit on. Claims of other runs go on while it is
// open.
func TestPausesInACallersTransaction(t *testing.T) {
	t.Parallel()
	for end, committed := range map[string]bool{"COMMIT": true, "ROLLBACK": false} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			ids := start(t, s, newRun(), newRun(ofKey("a")), newRun(), newRun(ofKey("a")))
			tx := begin(t, s)
			for _, id := range ids[:2] {
				if err := s.Pauses.PauseRun(t.Context(), tx, id, Why{}); err != nil {
					t.Fatal(err)
				}
			}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), ids[2:]) {
				t.Errorf("while it pauses: claimed %v of %v", got, ids)
			}
			exec(t, tx, end)
			left := map[bool][]uuid.UUID{true: nil, false: ids[:2]}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), left[committed]) {
				t.Errorf("claimed %v of %v", got, ids)
			}

			ids = start(t, s, newRun(), newRun(ofKey("b")), newRun(), newRun(ofKey("b")))
			for _, id := range ids[:2] {
				if err := s.Pauses.PauseRun(t.Context(), nil, id, Why{}); err != nil {
					t.Fatal(err)
				}
			}
			tx = begin(t, s)
			for _, id := range ids[:2] {
				if err := second(s.Pauses.UnpauseRun(t.Context(), tx, id, Why{})); err != nil {
					t.Fatal(err)
				}
			}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), ids[2:]) {
				t.Errorf("while it unpauses: claimed %v of %v", got, ids)
			}
			exec(t, tx, end)
			left = map[bool][]uuid.UUID{true: ids[:2], false: nil}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), left[committed]) {
				t.Errorf("then claimed %v of %v", got, ids)
			}
		})
	}
}

// The answer to the flush that parks a run is lost. The run is paused, waits for the end of that, and keeps its slot or
// gives it up.
func TestLostParking(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		limitKeys(t, direct, 1, false)
		ids := start(t, direct, newRun(ofKey("a")), newRun(ofKey("a")), newRun(inGroup("g")), newRun(inGroup("g")))
		var parks []*Suspension
		for _, r := range claim(t, direct, keyedRequest(9)).Runs {
			if err := direct.Pauses.PauseRun(t.Context(), nil, r.RunID, Why{}); err != nil {
				t.Fatal(err)
			}
			parks = append(parks, &Suspension{
				RunID: r.RunID, Lease: r.Lease, Status: Pending,
				WaitingOn: waits.List{{Kind: waits.Pause}},
			})
		}
		drop := lose(proxy, "UPDATE kagzi.workflow_runs")
		err := s.Records.Flush(t.Context(), &Flush{Suspensions: parks})
		wantAway(t, err)
		happened(t, drop)
		if got := statusOf(t, direct, ids[0]) == Pending; got != done {
			t.Errorf("parked: %t, want %t", got, done)
		}
		flush(t, s, &Flush{Suspensions: parks})
		for _, p := range parks {
			wantOutcome(t, "park", p.Outcome, Done)
		}
		req := keyedRequest(9)
		req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}, {Key: Key{Name: "g", Group: true}}}
		if got := runIDs(claim(t, direct, req).Runs); !slices.Equal(got, ids[1:2]) {
			t.Errorf("claimed %v of %v: a parked run keeps its slot only if it holds it until its end", got, ids)
		}
		for _, id := range []uuid.UUID{ids[0], ids[2]} {
			if err := second(direct.Pauses.UnpauseRun(t.Context(), nil, id, Why{})); err != nil {
				t.Fatal(err)
			}
		}
		if got := runIDs(claim(t, direct, keyedRequest(9)).Runs); !slices.Equal(got, ids[2:3]) {
			t.Errorf("then claimed %v of %v", got, ids)
		}
		exec(t, direct.pool, `UPDATE kagzi.queues SET key_max_running = 2`)
		req = keyedRequest(9)
		req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}}
		if got := runIDs(claim(t, direct, req).Runs); !slices.Equal(got, ids[:1]) {
			t.Errorf("with another slot claimed %v of %v", got, ids)
		}
	})
}

// A worker dies between the pause of its run and the parking. No worker takes the run over before the pause ends; then
// the first that comes does: the one who ends the pause, or the one who declares the worker dead.
func TestPausedRunOfADeadWorker(t *testing.T) {
	t.Parallel()
	for name, deadFirst := range map[string]bool{"DeclaredDeadBefore": true, "DeclaredDeadAfter": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			limitKeys(t, s, 1, true)
			start(t, s, newRun(), newRun(ofKey("a")), newRun(inGroup("g")))
			req := keyedRequest(9)
			var ids []uuid.UUID
			for _, r := range claim(t, s, req).Runs {
				ids = append(ids, r.RunID)
				if err := s.Pauses.PauseRun(t.Context(), nil, r.RunID, Why{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Workers.Register(t.Context(), s.pool, Worker{
				ID: req.Worker, Queues: []string{"queue"},
				Types: []string{"type"}, LeaseTimeout: time.Hour, StaleAfter: time.Minute,
			}); err != nil {
				t.Fatal(err)
			}
			die := func() {
				exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`)
				silent, err := s.Workers.Silent(t.Context())
				lost, e := s.Workers.ReleaseUnresponsive(t.Context(), silent, "test")
				if err = errors.Join(err, e); err != nil || len(lost) != 1 {
					t.Fatalf("lost %+v, %v", lost, err)
				}
			}
			if deadFirst {
				die()
			}
			if got := claim(t, s, keyedRequest(9)); len(got.Runs) > 0 {
				t.Errorf("claimed %v while they are paused", runIDs(got.Runs))
			}
			for _, id := range ids {
				if err := second(s.Pauses.UnpauseRun(t.Context(), nil, id, Why{})); err != nil {
					t.Fatal(err)
				}
			}
			if !deadFirst {
				die()
			}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), sorted(ids)) {
				t.Errorf("claimed %v of %v", got, ids)
			}
		})
	}
}

// A transaction that ends a pause waits for the claims that have seen it. Only then it searches the keys
// that these have stopped.
func TestUnpauseWaitsForClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := start(t, s, newRun(ofKey("a")))
	pause(t, s, Pause{Type: "type"})
	tx := begin(t, s)
	exec(t, tx, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'a', $1, now())`, s.namespace)
	exec(t, tx, claimKeys, s.Claims.keyedArgs(keyedRequest(9), lockedKey("a"))...)
	meetsLock(t, s, func(ctx context.Context) {
		if err := second(s.Pauses.Unpause(ctx, nil, Pause{Type: "type"})); err != nil {
			t.Error(err)
		}
	}, func() { commit(t, tx) })
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, id) {
		t.Errorf("claimed %v of %v", got, id)
	}
}

// A caller's transaction pauses a key that no claim has met, or ends its pause. Claims take everything but the runs of
// that key, and wait for nothing.
func TestPauseOfAKeyInACallersTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause Pause
		of    func(*NewRun)
	}{
		"Key":   {Pause{Queue: "queue", Key: Key{Name: "a"}}, ofKey("a")},
		"Group": {Pause{Key: Key{Name: "a", Group: true}}, inGroup("a")},
	} {
		for end, committed := range map[string]bool{"COMMIT": true, "ROLLBACK": false} {
			t.Run(name+end, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				tx := begin(t, s)
				for range 2 {
					if err := second(s.Pauses.Pause(t.Context(), tx, c.pause)); err != nil {
						t.Fatal(err)
					}
				}
				ids := start(t, s, newRun(c.of), newRun(), newRun(ofKey("b")))
				if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), ids[1:]) {
					t.Errorf("while it pauses: claimed %v of %v", got, ids)
				}
				exec(t, tx, end)
				want := map[bool][]uuid.UUID{true: nil, false: ids[:1]}
				if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, want[committed]) {
					t.Errorf("claimed %v of %v", got, ids)
				}
				if !committed {
					return
				}
				tx = begin(t, s)
				if err := second(s.Pauses.Unpause(t.Context(), tx, c.pause)); err != nil {
					t.Fatal(err)
				}
				plain := start(t, s, newRun(), newRun(ofKey("c")))
				if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(sorted(got), plain) {
					t.Errorf("while it unpauses: claimed %v, want %v", got, plain)
				}
				exec(t, tx, end)
				if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[:1]) {
					t.Errorf("then claimed %v of %v", got, ids)
				}
			})
		}
	}
}

// A claim has looked at a key while it was paused. Its pause ends, which waits for that claim.
func TestUnpauseOfAKeyWaitsForClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := start(t, s, newRun(ofKey("a")))
	p := Pause{Queue: "queue", Key: Key{Name: "a"}}
	pause(t, s, p)
	tx := begin(t, s)
	exec(t, tx, lockKeys, s.namespace, "queue", 10, []string{}, []string{}, 0, 0, 500, []bool{})
	exec(t, tx, claimKeys, s.Claims.keyedArgs(keyedRequest(9), lockedKey("a"))...)
	meetsLock(t, s, func(ctx context.Context) {
		if err := second(s.Pauses.Unpause(ctx, nil, p)); err != nil {
			t.Error(err)
		}
	}, func() { commit(t, tx) })
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, id) {
		t.Errorf("claimed %v of %v", got, id)
	}
}

// A caller's transaction that pauses a key holds up no claim of others, although the key's row is deleted meanwhile.
func TestPauseOfAKeyThatIsDeleted(t *testing.T) {
	t.Parallel()
	s := open(t)
	key := Pause{Queue: "queue", Key: Key{Name: "a"}}
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ('queue', 'a', $1, 'infinity')`, s.namespace)
	pruning, tx := begin(t, s), begin(t, s)
	exec(t, pruning, `DELETE FROM kagzi.run_keys`)
	paused := make(chan error)
	go func() { paused <- second(s.Pauses.Pause(t.Context(), tx, key)) }()
	waitForWaiter(t, s)
	commit(t, pruning)
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("b")))
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[1:]) {
		t.Errorf("claimed %v of %v while a key is being paused", got, ids)
	}
	commit(t, tx)
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); len(got) > 0 {
		t.Errorf("claimed %v of a paused key", got)
	}
}
