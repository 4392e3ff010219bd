package model

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

var ctx = context.Background()

// number draws a number below n. All are equally likely: rapid prefers small numbers, and so the verbs, runs and leases
// that come first.
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

// starting starts a run.
func (w *world) starting(t *rapid.T) act {
	n := store.NewRun{
		RunID: uuid.Must(uuid.NewV7()), Spec: store.Spec{
			Queue: "queue", Type: drawn(t, "type", "a", "b"), Version: drawn(t, "version", 0, 0, 0, 1, 2),
			Priority: drawn(t, "priority", 1, 3), Timeout: drawn(t, "timeout", 0, 0, 30*far),
		},
		ExternalID: drawn(t, "id", "", "", "x", "y"), Input: []byte("input"),

		Delay: drawn(t, "delay", 0, 0, 0, 0, far),
	}
	if n.ExternalID != "" {
		n.InputHash = []byte(drawn(t, "hash", "1", "2"))
		n.IfActive = drawn(t, "active", "", store.ReturnAnyInput, store.RejectActive, store.ReplaceActive)
		n.IfEnded = drawn(t, "ended", "", store.RejectEnded, store.StartIfFailed)
	}
	if w.keys {
		n.Key.Name = drawn(t, "key", "", "k", "k", "l", "g")
		n.Key.Group = n.Key.Name == "g"
	}
	w.starts = append(w.starts, n)
	return startOf(n)
}

// startAgain repeats a start, unless another process has found its run, ended it and deleted it since.
func (w *world) startAgain(t *rapid.T) {
	some := slices.DeleteFunc(slices.Clone(w.starts), func(n store.NewRun) bool {
		return slices.Contains(w.Order, n.RunID) && w.Runs[n.RunID] == nil
	})
	if len(some) == 0 {
		panic(nothingToDo{})
	}
	w.do(t, startOf(pick(t, "start", some)))
}

func startOf(n store.NewRun) act {
	return act{name: "start", send: func(s *store.Store) (string, error) {
		out, err := s.Starts.Start(ctx, nil, []store.NewRun{n})
		if err != nil {
			return "", err
		}
		return Started{out[0].RunID, out[0].Existed, out[0].Replaced}.text(), nil
	}, apply: func(m *Model) (string, error) {
		out, err := m.Start(n)
		if err != nil {
			return "", err
		}
		return out.text(), nil
	}}
}

func (s Started) text() string {
	switch {
	case s.Existed:
		return "found " + s.Run.String()
	case s.Replaced != uuid.Nil:
		return fmt.Sprintf("replacing %v %v", s.Run, s.Replaced)
	}
	return "new " + s.Run.String()
}

// claiming claims runs. If an answer is lost, the claim is resolved: it took place, or it was rolled back. The test
// makes the pause of a run longer that the claim sets back. No other act may come before that, so such a claim is no
// part of a pair.
func (w *world) claiming(t *rapid.T) act {
	versions := drawn(t, "versions", []int{1}, []int{1, 2}, []int{1, 2})
	req := store.ClaimRequest{
		Queue: "queue", Types: []store.WorkflowVersions{
			{Type: "a", Versions: versions, Default: 1},
			{Type: "b", Versions: versions, Default: 1},
		},
		Limit: drawn(t, "limit", 1, 2, unbounded, unbounded), Worker: pick(t, "worker", w.workers), Lease: uuid.New(),
		LeaseTimeout: leaseTimeout,
		Ahead:        time.Hour,
		Suspects: store.Suspects{
			Below: drawn(t, "recoveries below", 0, 0, 0, suspectFrom, suspectFrom+1),
			Joins: store.SuspectGroup{
				Recoveries: drawn(t, "recoveries of the group", 0, suspectFrom, suspectFrom+1),
				LastBits:   uint32(number(t, "bits of the group", 2)),
			},
		},
	}
	freed := slices.Clone(w.freed)
	if w.keys && number(t, "with keys", 5) > 0 {
		req.Keys = &store.KeysRequest{
			Plain: req.Limit, Keyed: req.Limit, Most: 1000, Freed: freed,
			Only: number(t, "only keys", 6) == 0,
		}
	}
	var suspects, back []uuid.UUID
	for _, r := range w.Claimable(req) {
		if r.SetsBack() {
			suspects = append(suspects, r.ID)
		}
	}
	beside := w.focus != nil
	if beside && suspects != nil {
		panic(nothingToDo{})
	}
	var claim store.Claim
	lost := false
	t.Logf("claim %+v, keys %+v", req, req.Keys)
	return act{name: "claim", send: func(s *store.Store) (_ string, err error) {
		if claim, err = s.Claims.Claim(ctx, req); pg.Unavailable(err) {
			lost = true
			claim, err = s.Claims.Resolve(ctx, req)
		}
		for _, c := range claim.Runs {
			if (c.Input == nil) != (lost || c.CrashLoopSuspect()) {
				return fmt.Sprintf("claimed with input %q", c.Input), nil
			}
		}
		if err == nil && suspects != nil {
			back, err = w.setBack(suspects)
		}
		return "", err
	}, apply: func(m *Model) (string, error) {
		return "", m.Claim(req, Claimed{claim.Runs, back, beside || lost})
	}, done: func() {
		for _, c := range claim.Runs {
			w.leases = append(w.leases, held{store.HeldRun{RunID: c.RunID, Lease: c.Lease}, c.ParentRunID, c.Wakeups})
		}
		if req.Keys != nil && !lost {
			w.freed = slices.DeleteFunc(w.freed, func(k store.FreedKey) bool { return slices.Contains(freed, k) })
			w.freed = append(w.freed, claim.Keys.Busy...)
		}
		w.met["claimed"] += len(claim.Runs)
		w.met["set back"] += len(back)
		w.claims = append(w.claims, req)
	}}
}

const setBackRuns = `
UPDATE kagzi.workflow_runs SET available_at = clock_timestamp() + interval '1 day'
WHERE run_id = ANY ($1) AND status = 'PENDING' AND waiting_on = '[{"kind": "recovery"}]'
RETURNING run_id`

// setBack returns which of the runs the claim has set back, and makes their pause longer, so that none is over before
// the next verb.
func (w *world) setBack(suspects []uuid.UUID) ([]uuid.UUID, error) {
	rows, _ := w.pool.Query(ctx, setBackRuns, suspects)
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}

// resolveClaim asks again what an earlier claim has taken and still holds.
func (w *world) resolveClaim(t *rapid.T) {
	if len(w.claims) == 0 {
		panic(nothingToDo{})
	}
	req := pick(t, "claim", w.claims)
	claim, err := w.store(t).Claims.Resolve(ctx, req)
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
	states, err := s.Leases.HeldStates(ctx, s.Pool(), []store.HeldRun{h.HeldRun}, refuse)
	if err != nil || len(states) != 1 {
		t.Fatalf("%d states, %v", len(states), err)
	}
	got, r := states[0], w.Runs[h.RunID]
	if got.Holds != r.Holds(h.Lease) {
		t.Fatalf("holds %v, want %v", got.Holds, r.Holds(h.Lease))
	}
	if r != nil && (got.Status != r.Status || got.Wakeups != r.Wakeups || got.Cancel != r.Cancelling ||
		got.Paused != w.parked(r)) {
		t.Fatalf("state %+v, want %+v", got, *r)
	}
	w.do(t, w.extendingOf(h))
}

func (w *world) extending(t *rapid.T) act { return w.extendingOf(w.lease(t)) }

// extendingOf extends a lease. Beside another act it may do nothing, because the run is locked: the next heartbeat does
// it.
func (w *world) extendingOf(h held) act {
	extended, beside := false, w.focus != nil
	return act{name: "extend", send: func(s *store.Store) (string, error) {
		terms, err := s.Leases.Extend(ctx, s.Pool(), []store.HeldRun{h.HeldRun}, leaseTimeout,
			func(store.HeldRun, error) {})
		_, extended = terms[h.HeldRun]
		return fmt.Sprint(extended), err
	}, apply: func(m *Model) (string, error) {
		if beside && !extended {
			return "false", nil
		}
		return fmt.Sprint(m.Extend(h.HeldRun)), nil
	}}
}

func (w *world) beginningSuspect(t *rapid.T) act {
	h := w.lease(t)
	return changing("begin a suspect", func(s *store.Store) error { return s.Leases.BeginSuspect(ctx, h.HeldRun) },
		func(m *Model) error {
			m.BeginSuspect(h.HeldRun)
			return nil
		})
}

// sweep lets a worker fall silent, and releases its runs. Another one takes its place.
func (w *world) sweep(t *rapid.T) {
	i := number(t, "worker", len(w.workers))
	id, s := w.workers[i], w.store(t)
	w.exec(t, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 week' WHERE worker_id = $1`, id)
	silent, err := s.Workers.Silent(ctx)
	if err != nil || len(silent) != 1 {
		t.Fatalf("silent %v, %v", silent, err)
	}
	lost, err := s.Workers.ReleaseUnresponsive(ctx, silent, "test")
	if err != nil || len(lost) != 1 || lost[0].ID != id {
		t.Fatalf("lost %v, %v", lost, err)
	}
	if want := w.Release(id); lost[0].Released != want {
		t.Fatalf("released %d runs, want %d", lost[0].Released, want)
	}
	w.met["released"] += lost[0].Released
	w.workers[i] = w.register(t)
}

// The audit does not see it, because no worker writes a step of a run that sleeps.
const passSleep = `
WITH quiet AS MATERIALIZED (SELECT set_config('session_replication_role', 'replica', true) AS role)
UPDATE kagzi.step_runs SET wake_at = clock_timestamp() FROM quiet WHERE run_id = $1 AND step_kind = 'SLEEP'
	AND status = 'RUNNING'`

// A key that waits for a time is looked at when that comes.
const passKey = `UPDATE kagzi.run_keys SET available_at = now() WHERE run_key = $1 AND available_at > now()
	AND available_at < 'infinity'`

// pass lets the time come for which a run waits.
func (w *world) pass(t *rapid.T) {
	r := w.runWhich(t, func(r *Run) bool { return r.Active() && r.At != Never })
	w.exec(t, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 ms' WHERE run_id = $1`, r.ID)
	if len(r.Steps["nap"]) > 0 {
		w.exec(t, passSleep, r.ID)
	}
	w.exec(t, passKey, r.Key.Name)
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
