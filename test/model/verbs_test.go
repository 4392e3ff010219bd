package model

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

var ctx = context.Background()

// number draws a number below n. All are equally likely: rapid prefers small numbers, and so the verbs, runs and leases that come first.
func number(t *rapid.T, label string, n int) int {
	x := rapid.Uint64().Draw(t, label)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}

// pick draws one of the items.
func pick[T any](t *rapid.T, label string, from []T) T { return from[number(t, label, len(from))] }

// drawn is pick, of few items.
func drawn[T any](t *rapid.T, label string, from ...T) T { return pick(t, label, from) }

// start starts a run, or repeats an earlier start.
func (w *world) start(t *rapid.T) {
	n := store.NewRun{
		RunID: uuid.Must(uuid.NewV7()), Queue: "queue", Type: drawn(t, "type", "a", "b"), ExternalID: drawn(t, "id", "", "", "x", "y"), Input: []byte("input"),
		Version: drawn(t, "version", 0, 0, 0, 1, 2), Priority: drawn(t, "priority", 1, 3), Delay: drawn(t, "delay", 0, 0, 0, 0, far),
	}
	if n.ExternalID != "" {
		n.InputHash = []byte(drawn(t, "hash", "1", "2"))
		n.IfActive = drawn(t, "active", "", store.RejectActive, store.ReplaceActive)
		n.IfEnded = drawn(t, "ended", "", store.RejectEnded, store.StartIfFailed)
	}
	w.send(t, n)
	w.starts = append(w.starts, n)
}

// startAgain repeats a start, unless somebody has found its run, ended it and deleted it since.
func (w *world) startAgain(t *rapid.T) {
	some := slices.DeleteFunc(slices.Clone(w.starts), func(n store.NewRun) bool {
		return slices.Contains(w.Order, n.RunID) && w.Runs[n.RunID] == nil
	})
	if len(some) == 0 {
		panic(nothingToDo{})
	}
	w.send(t, pick(t, "start", some))
}

func (w *world) send(t *rapid.T, n store.NewRun) {
	s := w.store(t)
	w.lossy(t, func() {
		out, err := s.Start(ctx, nil, []store.NewRun{n})
		want, wantErr := w.Start(n)
		w.wantError(t, "start", err, wantErr)
		if err != nil {
			return
		}
		if got := (Started{out[0].RunID, out[0].Existed, out[0].Replaced}); got != want {
			t.Fatalf("start: %+v, want %+v", got, want)
		}
	})
}

// claim claims runs. If the answer is lost, the claim is resolved.
func (w *world) claim(t *rapid.T) {
	versions := drawn(t, "versions", []int{1}, []int{1, 2}, []int{1, 2})
	req := store.ClaimRequest{
		Queue: "queue", Types: []store.WorkflowVersions{{Type: "a", Versions: versions, Default: 1}, {Type: "b", Versions: versions, Default: 1}},
		Limit: drawn(t, "limit", 1, 2, 10), Worker: pick(t, "worker", w.workers), Lease: uuid.New(), LeaseTimeout: leaseTimeout,
		Ahead: time.Hour, NoSuspects: number(t, "no suspects", 4) == 0,
	}
	s := w.store(t)
	var claim store.Claim
	var err error
	lost := false
	w.lossy(t, func() {
		if claim, err = s.Claim(ctx, req); store.Unavailable(err) {
			lost = true
			claim, err = s.ResolveClaim(ctx, req)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claim.Runs {
		if (c.Input == nil) != (lost || c.CrashLoopSuspect()) {
			t.Fatalf("claimed with input %q", c.Input)
		}
		w.leases = append(w.leases, held{store.HeldRun{RunID: c.RunID, Lease: c.Lease}, c.ParentRunID, c.Wakeups})
	}
	back := w.setBack(t, req)
	if err := w.Claim(req, claim.Runs, back); err != nil {
		t.Fatal(err)
	}
	w.met["claimed"] += len(claim.Runs)
	w.met["set back"] += len(back)
	w.claims = append(w.claims, req)
}

const setBackRuns = `
UPDATE kagzi.workflow_runs SET available_at = clock_timestamp() + interval '1 day'
WHERE run_id = ANY ($1) AND status = 'PENDING' AND waiting_on = 'recovery'
RETURNING run_id`

// setBack returns which of the runs the claim has set back, and makes their pause longer, so that none is over before the next verb.
func (w *world) setBack(t *rapid.T, req store.ClaimRequest) []uuid.UUID {
	var ids []uuid.UUID
	for _, r := range w.Claimable(req) {
		if r.SetsBack() {
			ids = append(ids, r.ID)
		}
	}
	rows, _ := w.pool.Query(ctx, setBackRuns, ids)
	back, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// resolveClaim asks again what an earlier claim has taken: what is held of it.
func (w *world) resolveClaim(t *rapid.T) {
	if len(w.claims) == 0 {
		panic(nothingToDo{})
	}
	req := pick(t, "claim", w.claims)
	claim, err := w.store(t).ResolveClaim(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, r := range w.all() {
		if r.Status == store.Running && string(r.Lease[:15]) == string(req.Lease[:15]) && r.At != Due && !r.Paused {
			want++
		}
	}
	if len(claim.Runs) != want {
		t.Fatalf("resolved %d runs, want %d", len(claim.Runs), want)
	}
}

// heartbeat reads the state of a held run, and extends its lease.
func (w *world) heartbeat(t *rapid.T) {
	h := w.lease(t)
	s := w.store(t)
	refuse := func(h store.HeldRun, err error) { t.Fatalf("run %v: %v", h.RunID, err) }
	states, err := s.HeldStates(ctx, s.Pool(), []store.HeldRun{h.HeldRun}, refuse)
	if err != nil || len(states) != 1 {
		t.Fatalf("%d states, %v", len(states), err)
	}
	got, r := states[0], w.Runs[h.RunID]
	if got.Holds != r.Holds(h.Lease) {
		t.Fatalf("holds %v, want %v", got.Holds, r.Holds(h.Lease))
	}
	if r != nil && (got.Status != r.Status || got.Wakeups != r.Wakeups || got.Cancel != r.Cancelling || got.Paused != r.Paused) {
		t.Fatalf("state %+v, want %+v", got, *r)
	}
	terms, err := s.ExtendLeases(ctx, s.Pool(), []store.HeldRun{h.HeldRun}, leaseTimeout, refuse)
	if err != nil {
		t.Fatal(err)
	}
	if _, extended := terms[h.HeldRun]; extended != w.Extend(h.HeldRun) {
		t.Fatalf("extended %v", extended)
	}
	w.met["extended"] += len(terms)
}

func (w *world) beginSuspect(t *rapid.T) {
	h := w.lease(t)
	if err := w.store(t).BeginSuspect(ctx, h.HeldRun); err != nil {
		t.Fatal(err)
	}
	w.BeginSuspect(h.HeldRun)
}

// sweep lets a worker fall silent, and releases its runs. Another one takes its place.
func (w *world) sweep(t *rapid.T) {
	i := number(t, "worker", len(w.workers))
	id, s := w.workers[i], w.store(t)
	w.exec(t, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 week' WHERE worker_id = $1`, id)
	silent, err := s.SilentWorkers(ctx)
	if err != nil || len(silent) != 1 {
		t.Fatalf("silent %v, %v", silent, err)
	}
	lost, err := s.ReleaseUnresponsive(ctx, silent, "test")
	if err != nil || len(lost) != 1 || lost[0].ID != id {
		t.Fatalf("lost %v, %v", lost, err)
	}
	if want := w.Release(id); lost[0].Released != want {
		t.Fatalf("released %d runs, want %d", lost[0].Released, want)
	}
	w.met["released"] += lost[0].Released
	w.workers[i] = w.register(t)
}

// The audit does not see it, because nobody else writes a step of a run that sleeps.
const passSleep = `
WITH quiet AS MATERIALIZED (SELECT set_config('session_replication_role', 'replica', true) AS role)
UPDATE kagzi.step_runs SET wake_at = clock_timestamp() FROM quiet WHERE run_id = $1 AND step_kind = 'SLEEP' AND status = 'RUNNING'`

// pass lets the time come for which a run waits.
func (w *world) pass(t *rapid.T) {
	r := w.runWhich(t, func(r *Run) bool { return r.Active() && r.At != Never })
	w.exec(t, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 ms' WHERE run_id = $1`, r.ID)
	if len(r.Steps["nap"]) > 0 {
		w.exec(t, passSleep, r.ID)
	}
	w.Pass(r)
}

// age lets a lease come past half of its timeout.
func (w *world) age(t *rapid.T) {
	r := w.runWhich(t, func(r *Run) bool { return r.Status == store.Running && r.At == Later })
	w.exec(t, `UPDATE kagzi.workflow_runs SET available_at = now() + interval '10 minutes' WHERE run_id = $1`, r.ID)
	w.Age(r)
}

func (w *world) exec(t *rapid.T, sql string, args ...any) {
	if _, err := w.pool.Exec(ctx, sql, args...); err != nil {
		t.Fatal(err)
	}
}
