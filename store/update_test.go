package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

func inQueue(name string) func(*ClaimRequest) { return func(r *ClaimRequest) { r.Queue = name } }

func update(t *testing.T, s *Store, id uuid.UUID, u RunUpdate) []DueRun {
	t.Helper()
	due, err := s.Runs.Update(t.Context(), nil, id, u, Why{})
	if err != nil {
		t.Fatal(err)
	}
	return due
}

// dueAfter returns a RunUpdate that makes a run due so long from now.
func dueAfter(d time.Duration) RunUpdate { return RunUpdate{SetDue: true, Delay: d} }

func TestUpdate(t *testing.T) {
	t.Parallel()

	t.Run("QueueAndPriority", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(), newRun())
		got := update(t, s, ids[1], RunUpdate{Queue: "other", Priority: 1})
		if want := []DueRun{{ids[1], "other", "type", 0}}; !slices.Equal(got, want) {
			t.Errorf("to be told %+v, want %+v", got, want)
		}
		if got := claimIDs(t, s, request(9)); !slices.Equal(got, ids[:1]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		if got := claimIDs(t, s, request(9, inQueue("other"))); !slices.Equal(got, ids[1:]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		events, err := s.Runs.Events(t.Context(), ids[1])
		if err != nil || len(events) != 1 || events[0].Event != EventUpdated ||
			!slices.Equal(events[0].Changes, []Changed{{"queue", "queue", "other"}, {"priority", "3", "1"}}) {
			t.Errorf("events %+v, %v", events, err)
		}
	})

	t.Run("NothingDiffers", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		update(t, s, id, RunUpdate{
			Queue: "queue", Priority: 3, SetVersion: true, SetMetadata: true,
			Metadata: []byte(`{}`), SetDue: true,
		})
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_events`); n > 0 {
			t.Errorf("%d events", n)
		}
	})

	t.Run("Version", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun(ofVersion(2)))[0]
		update(t, s, id, RunUpdate{SetVersion: true, Version: 3})
		if v := readRow(t, s.pool, id).Version; *v != 3 {
			t.Errorf("version %d", *v)
		}
		update(t, s, id, RunUpdate{SetVersion: true})
		if c := claim(t, s, request(1)); len(c.Runs) != 1 || c.Runs[0].Version != 1 {
			t.Errorf("claimed %+v", c.Runs)
		}
	})

	t.Run("Metadata", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun(func(r *NewRun) { r.Metadata = []byte(`{"a":"1"}`) }))[0]
		update(t, s, id, RunUpdate{SetMetadata: true, Metadata: []byte(`{"b":"2"}`)})
		update(t, s, id, RunUpdate{SetMetadata: true, Metadata: []byte(`{"c":"3"}`)})
		if run, err := s.Runs.Get(t.Context(), id); err != nil || string(run.Metadata) != `{"c": "3"}` ||
			string(run.FirstMetadata) != `{"a": "1"}` {
			t.Errorf("%s, at first %s, %v", run.Metadata, run.FirstMetadata, err)
		}
		if c := claim(t, s, request(1)); string(c.Runs[0].Metadata) != `{"a": "1"}` {
			t.Errorf("the code sees %s", c.Runs[0].Metadata)
		}
	})

	t.Run("Time", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun(withTimeout(time.Hour)))[0]
		turn := one[time.Time](t, s.pool, `SELECT available_at FROM kagzi.workflow_runs`)
		update(t, s, id, dueAfter(0))
		if now := one[time.Time](t, s.pool, `SELECT available_at FROM kagzi.workflow_runs`); !now.Equal(turn) {
			t.Error("a run that is due already has lost its turn")
		}
		update(t, s, id, dueAfter(2*time.Hour))
		if got := claimIDs(t, s, request(1)); got != nil {
			t.Errorf("claimed %v", got)
		}
		if in := one[float64](t, s.pool, `SELECT extract(epoch FROM deadline_at - available_at)::float8
			FROM kagzi.workflow_runs`); in != 3600 {
			t.Errorf("its deadline is %v s after it is due", in)
		}
		update(t, s, id, RunUpdate{SetDue: true, At: time.Now().Add(-time.Hour)})
		r := claim(t, s, request(1)).Runs[0]
		retry := sleep(r, time.Hour/2)
		retry.Status, retry.WaitingOn, retry.Failed = Pending, waits.List{{Kind: waits.Retry}}, &FailedAttempt{}
		flush(t, s, &Flush{Suspensions: []*Suspension{retry}})
		update(t, s, id, dueAfter(10*time.Hour))
		if in := readRow(t, s.pool, id).In; in > 3600 {
			t.Errorf("a run that has begun is due in %v s, which is after its deadline", in)
		}
		update(t, s, id, dueAfter(0))
		if got := claimIDs(t, s, request(1)); len(got) != 1 {
			t.Errorf("claimed %v", got)
		}
	})

	t.Run("Refused", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rs := running(t, s, 3)
		u := RunUpdate{Priority: 1}
		try := func(id uuid.UUID, u RunUpdate) error { return second(s.Runs.Update(t.Context(), nil, id, u, Why{})) }
		wantError(t, try(rs[0].RunID, u), ErrRunRunning)
		mustCancel(t, s, rs[0].RunID, "")
		wantError(t, try(rs[0].RunID, u), ErrRunFinished)
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(rs[1], time.Hour)}})
		if _, ok := errors.AsType[*NotDueByTime](try(rs[1].RunID, dueAfter(0))); !ok {
			t.Error("a sleep was to end early")
		}
		exec(t, s.pool,
			`UPDATE kagzi.workflow_runs SET outcome = '{"status": "CANCELLED", "kind": "cancelled", "error": ""}' `+
				`WHERE run_id = $1`, rs[1].RunID)
		wantError(t, try(rs[1].RunID, u), ErrRunEnding)
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET outcome = NULL WHERE run_id = $1`, rs[1].RunID)
		wantError(t, try(rs[1].RunID, u), nil)
		wantError(t, try(uuid.New(), u), ErrRunNotFound)
		wantError(t, second(New(s.pool, "other").Runs.Update(t.Context(), nil, rs[1].RunID, u, Why{})), ErrRunNotFound)

		queued := start(t, s, newRun())[0]
		exec(t, s.pool,
			`UPDATE kagzi.workflow_runs SET waiting_on = '`+clause.PreviousRun+`', available_at = 'infinity',
			schedule_id = gen_random_uuid() WHERE run_id = $1`, queued)
		if e, ok := errors.AsType[*NotDueByTime](try(queued, dueAfter(0))); !ok || !e.PreviousRun() {
			t.Error("a run was to begin before the previous one has ended")
		}
		update(t, s, queued, RunUpdate{Queue: "other"})
		if released, _, err := s.Schedules.ReleaseQueued(t.Context(), nil); err != nil || len(released) != 1 ||
			released[0].Queue != "other" {
			t.Errorf("released %+v, %v", released, err)
		}
	})
}

// A key belongs to its queue. A run that moves gives up its slot, and the next run of the key begins; a group goes with
// its slot.
func TestUpdateOfKeys(t *testing.T) {
	t.Parallel()
	other := func(n int) ClaimRequest {
		req := keyedRequest(n)
		req.Queue = "other"
		return req
	}

	t.Run("Waiting", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("a")))
		update(t, s, ids[0], RunUpdate{Queue: "other"})
		if got := runIDs(claim(t, s, other(9)).Runs); !slices.Equal(got, ids[:1]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
		if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[1:]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
	})

	t.Run("Earlier", func(t *testing.T) { // the key has no place in the line until a change says that it has
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(ofKey("a"), withDelay(time.Hour)))
		claim(t, s, keyedRequest(9))
		update(t, s, ids[0], dueAfter(0))
		if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids) {
			t.Errorf("claimed %v of %v", got, ids)
		}
	})

	for name, key := range map[string]func(*NewRun){"Key": ofKey("a"), "None": func(*NewRun) {}} {
		t.Run("HeldSlotOf"+name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			for _, q := range []string{"queue", "other"} {
				exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, key_max_running, held)
					VALUES ($2, $1, 1, 1, true)`, s.namespace, q)
			}
			ids := start(t, s, newRun(key), newRun(key))
			r := claim(t, s, keyedRequest(9)).Runs[0]
			flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, 0)}})
			theirs := newRun(key, func(r *NewRun) { r.Queue = "other" })
			ids = append(ids, start(t, s, theirs)...)
			busy := claim(t, s, other(9)).Runs[0]
			got := update(t, s, ids[0], RunUpdate{Queue: "other"})
			if want := []DueRun{{ids[0], "other", "type", 1}, {Queue: "queue"}}; !slices.Equal(got, want) {
				t.Errorf("to be told %+v, want %+v", got, want)
			}
			if got := runIDs(claim(t, s, other(9)).Runs); got != nil {
				t.Errorf("claimed %v beside %v, which has the only slot", got, busy.RunID)
			}
			if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, ids[1:2]) {
				t.Errorf("claimed %v, want the next of %v", got, ids)
			}
			flush(t, s, &Flush{Finishes: []*Finish{finish(busy)}})
			req := other(9)
			req.Keys.Freed = []FreedKey{{Key: busy.Key}}
			if got := runIDs(claim(t, s, req).Runs); !slices.Equal(got, ids[:1]) {
				t.Errorf("claimed %v of %v", got, ids)
			}
		})
	}

	t.Run("Group", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ids := start(t, s, newRun(inGroup("g")), newRun(inGroup("g")))
		r := claim(t, s, keyedRequest(9)).Runs[0]
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, 0)}})
		update(t, s, ids[0], RunUpdate{Queue: "other"})
		if got := runIDs(claim(t, s, keyedRequest(9)).Runs); got != nil {
			t.Errorf("claimed %v before the first run of the group has ended", got)
		}
		again := claim(t, s, other(9)).Runs
		if !slices.Equal(runIDs(again), ids[:1]) {
			t.Fatalf("claimed %v of %v", runIDs(again), ids)
		}
		flush(t, s, &Flush{Finishes: []*Finish{finish(again[0])}})
		req := keyedRequest(9)
		req.Keys.Freed = []FreedKey{{Key: Key{Name: "g", Group: true}}}
		if got := runIDs(claim(t, s, req).Runs); !slices.Equal(got, ids[1:]) {
			t.Errorf("claimed %v of %v", got, ids)
		}
	})
}

// A run that keeps the slot of its group takes a place in the queue to which it moves. So it moves only while the queue
// has one.
func TestUpdateOfGroupsToAFullQueue(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running) VALUES ('other', $1, 1)`,
		s.namespace)
	other := func(n int) ClaimRequest {
		req := keyedRequest(n)
		req.Queue = "other"
		return req
	}
	holder := start(t, s, newRun(inGroup("g")))[0]
	r := claim(t, s, keyedRequest(9)).Runs[0]
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, 0)}})
	waiting := start(t, s, newRun(inGroup("g")))[0] // it has no slot: it waits in either queue
	theirs := start(t, s, newRun(func(r *NewRun) { r.Queue = "other" }), newRun(func(r *NewRun) { r.Queue = "other" }))
	try := func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
		return second(s.Runs.Update(ctx, tx, id, RunUpdate{Queue: "other", Priority: 1}, Why{}))
	}
	full := func(err error) {
		t.Helper()
		if e, ok := errors.AsType[*QueueFull](err); !ok || *e != (QueueFull{"other", "", 1}) {
			t.Errorf("error %v, want that the queue is full", err)
		}
	}

	tx := begin(t, s) // a claim that has taken the last place, and has not committed
	exec(t, tx, `SELECT FROM kagzi.queues FOR UPDATE`)
	exec(t, tx, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = $2, locked_by = $2,
		started_at = now(), slot = 1 WHERE run_id = $1`, theirs[0], uuid.New())
	meetsLock(t, s, func(ctx context.Context) { full(try(ctx, nil, holder)) }, func() { commit(t, tx) })
	if p := one[int](t, s.pool, `SELECT priority FROM kagzi.workflow_runs WHERE run_id = $1`, holder); p != 3 {
		t.Errorf("a refused update has changed the priority to %d", p)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_events`); n > 0 {
		t.Errorf("a refused update has written %d events", n)
	}
	wantError(t, try(t.Context(), nil, waiting), nil)
	update(t, s, holder, RunUpdate{Queue: "queue", Priority: 2}) // it stays where it is

	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now(),
		locked_by = NULL WHERE run_id = $1`, theirs[0])
	wantError(t, try(t.Context(), nil, holder), nil)
	wantError(t, try(t.Context(), nil, holder), nil) // it is there
	if got := runIDs(claim(t, s, other(9)).Runs); !slices.Equal(got, []uuid.UUID{holder}) {
		t.Errorf("claimed %v, want only %v, which has the only place", got, holder)
	}
}

// A caller's transaction may stay open for long: it must not hold up the claims of a queue.
func TestUpdateInTxHoldsUpNoClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running) VALUES ('limited', $1, 5),
		('queue', $1, 5)`, s.namespace)
	holder := start(t, s, newRun(inGroup("g")))[0]
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(claim(t, s, keyedRequest(9)).Runs[0], 0)}})
	theirs := start(t, s, newRun(func(r *NewRun) { r.Queue = "limited" }))[0]
	tx := begin(t, s)
	_, err := s.Runs.Update(t.Context(), tx, holder, RunUpdate{Queue: "limited"}, Why{})
	wantError(t, err, ErrPlaceInTx)
	_, err = s.Runs.Update(t.Context(), tx, holder, RunUpdate{Queue: "free"}, Why{})
	wantError(t, err, nil)
	req := keyedRequest(9)
	req.Queue = "limited"
	if got := runIDs(claim(t, s, req).Runs); !slices.Equal(got, []uuid.UUID{theirs}) {
		t.Errorf("claimed %v while the transaction is open, want %v", got, theirs)
	}
	commit(t, tx)
	if q := one[string](t, s.pool, `SELECT task_queue FROM kagzi.workflow_runs WHERE run_id = $1`,
		holder); q != "free" {
		t.Errorf("the run is in queue %q", q)
	}
}

// The code of a run and an operator may each give it as many tags as it may have.
func TestTagsOfCodeAndOperator(t *testing.T) {
	t.Parallel()
	s := open(t)
	tags := func(prefix string) []byte {
		m := map[string]string{}
		for i := range 64 {
			m[fmt.Sprintf("%s-%02d", prefix, i)] = "x"
		}
		data, _ := json.Marshal(m)
		return data
	}
	id := start(t, s, newRun())[0]
	update(t, s, id, RunUpdate{SetMetadata: true, Metadata: tags("operator")})
	r := claim(t, s, request(1)).Runs[0]
	set := record(r, "set", `{"code-1": "y", "operator-00": "", "operator-01": "z"}`)
	set.Kind = KindMetadata
	flush(t, s, &Flush{Records: []*Record{set}})
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs r, jsonb_object_keys(r.metadata)`); n != 64 {
		t.Errorf("the run has %d tags", n)
	}
	again := record(r, "again", string(tags("code")))
	again.Kind = KindMetadata
	flush(t, s, &Flush{Records: []*Record{again}})
	var got map[string]string
	if err := json.Unmarshal(one[[]byte](t, s.pool, `SELECT metadata FROM kagzi.workflow_runs`), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 64 || got["code-63"] != "x" {
		t.Errorf("the run has the %d tags %v", len(got), got)
	}
}

// Together they are no larger than those of a start. Those of the code stay, for it was told that they are valid.
func TestSizeOfTagsOfCodeAndOperator(t *testing.T) {
	t.Parallel()
	s := open(t)
	large := func(tag string, n int) []byte {
		return []byte(`{"` + tag + `": "` + strings.Repeat("ä", n/2) + `", "a": "x"}`)
	}
	id := start(t, s, newRun())[0]
	update(t, s, id, RunUpdate{SetMetadata: true, Metadata: large("operator", 15<<10)})
	r := claim(t, s, request(1)).Runs[0]
	set := record(r, "set", string(large("code", 2<<10)))
	set.Kind = KindMetadata
	flush(t, s, &Flush{Records: []*Record{set}})
	if got := column[string](t, s.pool, `SELECT k FROM kagzi.workflow_runs r, jsonb_object_keys(r.metadata) k
		ORDER BY 1`); !slices.Equal(got, []string{"a", "code"}) {
		t.Errorf("the run has the tags %v", got)
	}
}

// Either the update finds that the run is running, or the claim sees the new queue.
func TestUpdateMeetsClaim(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, newRun(), newRun())

	tx := begin(t, s)
	lockRow(t, tx, ids[0])
	exec(t, tx, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = $2, locked_by = $2,
		started_at = now(), available_at = now() + interval '1 hour' WHERE run_id = $1`, ids[0], uuid.New())
	meetsLock(t, s, func(ctx context.Context) {
		wantError(t, second(s.Runs.Update(ctx, nil, ids[0], RunUpdate{Queue: "other"}, Why{})), ErrRunRunning)
	}, func() { commit(t, tx) })

	tx = begin(t, s)
	if _, err := s.Runs.Update(t.Context(), tx, ids[1], RunUpdate{Queue: "other"}, Why{}); err != nil {
		t.Fatal(err)
	}
	if got := claimIDs(t, s, request(9)); got != nil {
		t.Errorf("claimed %v while it is being moved", got)
	}
	commit(t, tx)
	if got := append(claimIDs(t, s, request(9)), claimIDs(t, s, request(9, inQueue("other")))...); !slices.Equal(got,
		ids[1:]) {
		t.Errorf("claimed %v of %v", got, ids)
	}
}

// Claims and updates of the same runs at the same time: each run is taken once, by a worker of the queue in which it
// is.
func TestUpdatesBesideClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, append(many(40), many(40, ofKey("a"))...)...)
	moved, taken := make(chan map[uuid.UUID]bool), make(chan map[uuid.UUID]string, 2)
	go func() {
		done := map[uuid.UUID]bool{}
		for _, id := range ids {
			switch _, err := s.Runs.Update(context.WithoutCancel(t.Context()), nil, id, RunUpdate{Queue: "other"},
				Why{}); {
			case err == nil:
				done[id] = true
			case !errors.Is(err, ErrRunRunning):
				t.Error(err)
			}
		}
		moved <- done
	}()
	for _, q := range []string{"queue", "other"} {
		go func() {
			got := map[uuid.UUID]string{}
			for range 60 {
				req := keyedRequest(2)
				req.Queue = q
				c, err := s.Claims.Claim(context.WithoutCancel(t.Context()), req)
				if err != nil {
					t.Error(err)
				}
				for _, r := range c.Runs {
					got[r.RunID] = q
				}
			}
			taken <- got
		}()
	}
	done, a, b := <-moved, <-taken, <-taken
	for _, id := range ids {
		if a[id] != "" && b[id] != "" {
			t.Errorf("run %s was taken twice", id)
		}
		if q := a[id] + b[id]; q != "" && (q == "other") != done[id] {
			t.Errorf("run %s was moved: %t, and taken from %s", id, done[id], q)
		}
	}
}

// The answer to the commit is lost, or the commit: the change happens once, even if a worker has taken the run
// meanwhile.
func TestLostUpdate(t *testing.T) {
	eachLoss(t, func(t *testing.T, _ func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		id := start(t, direct, newRun())[0]
		lose := proxy.DropRequest
		if done {
			lose = proxy.DropAck
		}
		drop := lose(pgproxy.Exactly("commit"))
		due, err := s.Runs.Update(t.Context(), nil, id, RunUpdate{Queue: "other", SetDue: true, Delay: time.Hour},
			Why{Reason: "why", Actor: "who"})
		if err != nil || len(due) != 1 || due[0].Queue != "other" {
			t.Errorf("to be told %+v, %v", due, err)
		}
		happened(t, drop)
		events, err := direct.Runs.Events(t.Context(), id)
		if err != nil || len(events) != 1 || events[0].Reason != "why" || events[0].Actor != "who" ||
			len(events[0].Changes) != 2 {
			t.Fatalf("events %+v, %v", events, err)
		}
		if at := one[time.Time](t, direct.pool,
			`SELECT available_at FROM kagzi.workflow_runs`); events[0].Changes[1].To != moment(at.UTC()) {
			t.Errorf("it is due at %v, and the event says %s", at, events[0].Changes[1].To)
		}
	})
}
