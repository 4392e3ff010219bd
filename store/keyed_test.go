package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func ofKey(key string) func(*NewRun)    { return func(r *NewRun) { r.Key.Name = key } }
func inGroup(name string) func(*NewRun) { return func(r *NewRun) { r.Key = Key{name, true} } }

func keyedRequest(n int) ClaimRequest {
	req := request(n)
	req.Keys = &KeysRequest{Plain: n, Keyed: n, Most: 500}
	return req
}

// lockedKey is the answer of lockKeys for a key of the queue that no claim has changed.
func lockedKey(name string) *lockedKeys {
	return &lockedKeys{scopes: []string{"queue"}, names: []string{name}, versions: []int64{0}}
}

func runIDs(runs []*ClaimedRun) (ids []uuid.UUID) {
	for _, r := range runs {
		ids = append(ids, r.RunID)
	}
	return ids
}

func TestClaimKeyed(t *testing.T) {
	t.Parallel()

	t.Run("NotByThePlainClaim", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(ofKey("a")), newRun())
		if got := claimIDs(t, s, request(10)); !slices.Equal(got, ids[1:]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		got := claim(t, s, keyedRequest(10))
		if !slices.Equal(runIDs(got.Runs), ids[:1]) {
			t.Errorf("claimed %v of %v", runIDs(got.Runs), ids)
		}
		r := got.Runs[0]
		if r.Key != (Key{Name: "a"}) || string(r.Input) != "input" || !r.Fresh || r.Version != 1 {
			t.Errorf("claimed %+v", r)
		}
		if got.Keys.Read != 1 || got.Keys.Change != 0 || !got.Keys.Next.IsZero() || got.Keys.Taken != 1 {
			t.Errorf("answer %+v", got)
		}
	})

	t.Run("LimitOfAKey", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running) VALUES ('queue', $1, 2)`,
			s.namespace)
		ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")), newRun(ofKey("a")), newRun(ofKey("b")))
		got := claim(t, s, keyedRequest(10))
		if want := []uuid.UUID{ids[0], ids[1], ids[3]}; !slices.Equal(sorted(runIDs(got.Runs)), want) {
			t.Fatalf("claimed %v of %v", runIDs(got.Runs), ids)
		}
		if more := claim(t, s, keyedRequest(10)); len(more.Runs) > 0 || !more.Keys.Next.IsZero() ||
			more.Keys.Looked > 0 {
			t.Errorf("claimed more: %+v", more)
		}
		flush(t, s, &Flush{Finishes: []*Finish{finish(got.Runs[0])}})
		if more := claim(t, s, keyedRequest(10)); len(more.Runs) > 0 {
			t.Errorf("claimed more before the slot was handed on: %+v", more)
		}
		req := keyedRequest(10)
		req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}}
		if more := claim(t, s, req); !slices.Equal(runIDs(more.Runs), ids[2:3]) {
			t.Errorf("claimed %v of %v", runIDs(more.Runs), ids)
		}
	})

	t.Run("HeldWithoutALimit", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, held)
			VALUES ('queue', $1, 2, true)`, s.namespace)
		ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")), newRun(ofKey("a")))
		if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(got, ids[:2]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
	})

	t.Run("ALaterRunIsSeen", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		start(t, s, newRun(ofKey("a"), withDelay(time.Hour)))
		first := claim(t, s, keyedRequest(10))
		if len(first.Runs) > 0 || first.Keys.Next.IsZero() {
			t.Errorf("claimed %+v", first)
		}
		id := start(t, s, newRun(ofKey("a")))
		if got := claim(t, s, keyedRequest(10)); !slices.Equal(runIDs(got.Runs), id) {
			t.Errorf("claimed %+v", got)
		}
	})
}

func sorted(ids []uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, compareIDs)
	return ids
}

// A worker that dies has ended runs whose slots no worker has handed on. The coordinator that releases its runs makes
// claims look at all keys of its queues.
func TestKeysOfALostWorker(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *Store, uuid.UUID){
		"DeclaredDead": func(t *testing.T, s *Store, id uuid.UUID) {
			exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`)
			silent, err := s.Workers.Silent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if lost, err := s.Workers.ReleaseUnresponsive(t.Context(), silent, "test"); err != nil || len(lost) != 1 {
				t.Fatalf("lost %+v, error %v", lost, err)
			}
		},
		"ForcedOffline": func(t *testing.T, s *Store, id uuid.UUID) {
			if _, err := s.Workers.ForceOffline(t.Context(), nil, id, "test", Why{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running)
				VALUES ('queue', $1, 1)`, s.namespace)
			ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")), newRun(inGroup("a")), newRun(inGroup("a")))
			req := keyedRequest(10)
			first := claim(t, s, req)
			if want := []uuid.UUID{ids[0], ids[2]}; !slices.Equal(sorted(runIDs(first.Runs)), want) {
				t.Fatalf("claimed %v of %v", runIDs(first.Runs), ids)
			}
			if err := s.Workers.Register(t.Context(), s.pool, Worker{
				ID: req.Worker, Queues: []string{"queue"},
				Types: []string{"type"}, LeaseTimeout: time.Minute, StaleAfter: time.Minute,
			}); err != nil {
				t.Fatal(err)
			}
			flush(t, s, &Flush{Finishes: []*Finish{finish(first.Runs[0]), finish(first.Runs[1])}})
			if got := claim(t, s, keyedRequest(10)); len(got.Runs) > 0 {
				t.Fatalf("claimed %v before anybody knows of the slots", runIDs(got.Runs))
			}
			lose(t, s, req.Worker)
			got := claim(t, s, keyedRequest(10))
			if want := []uuid.UUID{ids[1], ids[3]}; !slices.Equal(sorted(runIDs(got.Runs)), want) {
				t.Errorf("claimed %v of %v", runIDs(got.Runs), ids)
			}
		})
	}
}

// While a claim looks at a key, others leave it alone: they wait for nothing, take none of its runs, and keep what
// tells them of it.
func TestKeyThatAnotherClaimLooksAt(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]string{"InTheLine": `now()`, "NotInTheLine": `'infinity'`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			mustSetQueue(t, s, QueueLimits{EachKey: KeyLimits{MaxRunning: 1}})
			ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
			exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
				VALUES ('queue', 'a', $1, `+place+`)`, s.namespace)
			other := begin(t, s)
			exec(t, other, lockKeys, s.namespace, "queue", 10, []string{}, []string{}, 0, 0, 500, []bool{})
			req := keyedRequest(10)
			req.Keys.Freed = []FreedKey{{Key: Key{Name: "a"}}}
			got := claim(t, s, req)
			if len(got.Runs) > 0 || !slices.Equal(got.Keys.Busy, req.Keys.Freed) || got.Keys.Read != 1 ||
				got.Keys.Change == 0 || got.Keys.Looked > 0 {
				t.Errorf("claimed %+v", got)
			}
			exec(t, other, claimKeys, s.Claims.keyedArgs(request(1), lockedKey("a"))...)
			commit(t, other)
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'`); n != 1 {
				t.Fatalf("the other claim took %d of %v", n, ids)
			}
			if got := claim(t, s, req); len(got.Runs) > 0 || len(got.Keys.Busy) > 0 {
				t.Errorf("claimed %+v although the key is full", got)
			}
		})
	}
}

// Claims from a queue with limits wait for each other.
func TestQueueFromWhichAnotherClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 1})
	start(t, s, newRun(), newRun())
	other := begin(t, s)
	exec(t, other, lockQueue, s.namespace, "queue")
	if got, err := s.Claims.Claim(t.Context(), keyedRequest(10)); err == nil || len(got.Runs) > 0 {
		t.Errorf("claimed %+v, error %v", got, err)
	}
	rollback(t, other)
	if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 1 {
		t.Errorf("claimed %+v", got)
	}
}

// A crash of the server may not undo a claim that limits count: its runs may be under way.
func TestClaimsThatCountAreDurable(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 5})
	start(t, s, newRun(ofKey("a")), newRun())
	exec(t, s.pool, `CREATE TABLE commits (durable text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO commits VALUES (current_setting('synchronous_commit'));
			RETURN NULL;
		END $$;
		CREATE TRIGGER note AFTER UPDATE OF slot ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION note()`)
	if got := claim(t, s, keyedRequest(10)); len(got.Runs) != 2 {
		t.Fatalf("claimed %+v", got)
	}
	if got := one[string](t, s.pool, `SELECT string_agg(durable, ' ') FROM commits`); got != "on on" {
		t.Errorf("synchronous_commit was %s", got)
	}
}

// A claim that only hands keys on takes no other run, and says what the next one needs to know.
func TestClaimOfHandedKeysOnly(t *testing.T) {
	t.Parallel()
	s := open(t)
	only := keyedRequest(5)
	only.Keys.Only, only.Keys.Freed = true, []FreedKey{{Key: Key{Name: "a"}}}
	start(t, s, newRun())
	ids := start(t, s, newRun(ofKey("a")))
	c := claim(t, s, only)
	if !slices.Equal(runIDs(c.Runs), ids) || !c.Keys.Only || c.Now.IsZero() || c.Asked.IsZero() || c.Limited {
		t.Errorf("claimed %v of key %v: %+v", runIDs(c.Runs), ids, c)
	}
	if c = claim(t, s, only); len(c.Runs) != 0 || c.Now.IsZero() {
		t.Errorf("claimed %+v, want nothing", c)
	}
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, settled)
		VALUES ('queue', 'test', 1, true)`)
	start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
	if c = claim(t, s, only); !c.Limited || len(c.Runs) > 1 {
		t.Errorf("of a queue that has a limit now, claimed %d, limited %t", len(c.Runs), c.Limited)
	}
	exec(t, s.pool, `DELETE FROM kagzi.queues`)
	pause(t, s, Pause{Type: "type"})
	start(t, s, newRun(ofKey("b")))
	only.Keys.Freed = []FreedKey{{Key: Key{Name: "b"}}}
	if c = claim(t, s, only); len(c.Runs) != 0 {
		t.Errorf("of a paused workflow, claimed %d", len(c.Runs))
	}
}

// A worker that holds some of the versions finds its due run in a full queue, however many due runs of other versions
// hold slots there.
func TestFullQueueOfOtherVersions(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, QueueLimits{MaxRunning: 4, Held: true})
	start(t, s, many(3, func(r *NewRun) { r.Version = 2 })...)
	start(t, s, newRun())
	both := keyedRequest(4)
	both.Types[0].Versions = []int{1, 2}
	if n := len(claim(t, s, both).Runs); n != 4 {
		t.Fatalf("claimed %d runs", n)
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
	got := claim(t, s, keyedRequest(1))
	if len(got.Runs) != 1 || got.Runs[0].Version != 1 {
		t.Errorf("claimed %d runs; the one of version 1 is due, and has its slot", len(got.Runs))
	}
}
