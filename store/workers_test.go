package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
)

func worker() Worker {
	return Worker{
		ID: uuid.New(), Queues: []string{"queue"}, Types: []string{"type"}, Hostname: "host", PID: 7, Build: "v1",
		Labels:        json.RawMessage(`{"zone": "a"}`),
		MaxConcurrent: 10, LeaseTimeout: time.Minute, StaleAfter: 30 * time.Second,
	}
}

func register(t *testing.T, s *Store) Worker {
	t.Helper()
	w := worker()
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Fatal(err)
	}
	return w
}

// silence moves a worker's last heartbeat that far into the past.
func silence(t *testing.T, s *Store, id uuid.UUID, d time.Duration) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - $2::interval WHERE worker_id = $1`, id, d)
}

// fellSilent registers a worker that has claimed n runs, and sent no heartbeat for an hour.
func fellSilent(t *testing.T, s *Store, n int) (Worker, []*ClaimedRun) {
	t.Helper()
	w := register(t, s)
	start(t, s, many(n)...)
	runs := claim(t, s, request(n, func(r *ClaimRequest) { r.Worker = w.ID })).Runs
	silence(t, s, w.ID, time.Hour)
	return w, runs
}

func events(t *testing.T, s *Store, id uuid.UUID) string {
	t.Helper()
	return one[string](t, s.pool, `SELECT coalesce(string_agg(event, ' ' ORDER BY occurred_at), '')
		FROM kagzi.worker_events WHERE worker_id = $1`, id)
}

func TestWorkerLife(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	heartbeat := Heartbeat{
		Number: 1, Worker: w.ID, Queues: w.Queues, Active: 3, Counts: Counts{4, 5, 6},
		Rates: Rates{0.4, 0.5, 0.6},
	}
	p, err := s.Workers.Heartbeat(t.Context(), s.pool, heartbeat)
	if err != nil || p.Drain || p.Own || p.Now.IsZero() {
		t.Errorf("heartbeat: %+v, error %v", p, err)
	}
	if got := one[string](t, s.pool, `SELECT concat_ws(' ', status, hostname, pid, build, labels, max_concurrent,
		lease_timeout, stale_after, active_count, completed_count, failed_count, steps_count, completed_rate,
		failed_rate, steps_rate) FROM kagzi.workers`); got != `ONLINE host 7 v1 {"zone": "a"} 10 00:01:00 00:00:30 `+
		`3 4 5 6 0.4 0.5 0.6` {
		t.Errorf("row %s", got)
	}
	for range 2 {
		if err := s.Workers.Draining(t.Context(), s.pool, w.ID); err != nil {
			t.Error(err)
		}
	}
	if p, err = s.Workers.Heartbeat(t.Context(), s.pool, heartbeat); !p.Drain || err != nil {
		t.Errorf("heartbeat: %+v, error %v", p, err)
	}
	for i := range int64(2) { // the second one finds the worker OFFLINE
		if err := s.Workers.Stopped(t.Context(), s.pool, w.ID, Counts{8 + i, 9, 10}); err != nil {
			t.Error(err)
		}
	}
	if got := one[string](t, s.pool, `SELECT concat_ws(' ', status, active_count, completed_count, failed_count,
		steps_count) FROM kagzi.workers`); got != `OFFLINE 0 8 9 10` {
		t.Errorf("the stopped worker's row %s", got)
	}
	_, err = s.Workers.Heartbeat(t.Context(), s.pool, heartbeat)
	wantError(t, err, ErrWorkerOffline)
	if got := events(t, s, w.ID); got != "STARTED DRAINING STOPPED" {
		t.Errorf("events %s", got)
	}
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Error(err)
	}
	_, err = s.Workers.Heartbeat(t.Context(), s.pool, heartbeat)
	wantError(t, err, ErrWorkerOffline) // an ID that was declared dead cannot register again
	_, err = New(s.pool, "other").Workers.Heartbeat(t.Context(), s.pool, heartbeat)
	wantError(t, err, ErrWorkerOffline)
}

func TestReleaseLost(t *testing.T) {
	t.Parallel()
	s := open(t)
	dead, alive, foreign := register(t, s), register(t, s), worker()
	other := New(s.pool, "other")
	if err := other.Workers.Register(t.Context(), s.pool, foreign); err != nil {
		t.Fatal(err)
	}
	by := func(w Worker, n int) []*ClaimedRun {
		start(t, s, many(n, withPriority(2))...)
		return claim(t, s, request(n, func(r *ClaimRequest) { r.Worker = w.ID })).Runs
	}
	deads, alives := by(dead, 3), by(alive, 2)
	flush(t, s, &Flush{Suspensions: []*Suspension{sleep(deads[2], time.Hour)}})
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() + interval '110 s' WHERE run_id = $1`,
		deads[1].RunID)
	silence(t, s, dead.ID, time.Hour)
	exec(t, s.pool, `UPDATE kagzi.workers SET stale_after = '1 hour' WHERE worker_id = $1`, alive.ID)
	silence(t, s, alive.ID, 58*time.Minute)
	silence(t, other, foreign.ID, time.Hour)

	lost, err := s.Workers.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].ID != dead.ID || lost[0].Released != 2 ||
		!slices.Equal(lost[0].Queues, []string{"queue"}) || lost[0].LeaseTimeout != time.Minute {
		t.Fatalf("lost %+v, error %v", lost, err)
	}
	for _, r := range deads[:2] {
		if row := readRow(t, s.pool, r.RunID); !row.Due || row.Status != Running {
			t.Errorf("the dead worker's run %+v", row)
		}
	}
	if row := readRow(t, s.pool, deads[2].RunID); row.Due {
		t.Error("a sleeping run was woken")
	}
	for _, r := range alives {
		if readRow(t, s.pool, r.RunID).Due {
			t.Error("a run of a live worker was released")
		}
	}
	if got := events(t, s, dead.ID); got != "STARTED LOST" {
		t.Errorf("events %s", got)
	}
	_, err = s.Workers.Heartbeat(t.Context(), s.pool, Heartbeat{Number: 1, Worker: dead.ID, Queues: dead.Queues})
	wantError(t, err, ErrWorkerOffline)
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool,
		Heartbeat{Number: 1, Worker: alive.ID, Queues: alive.Queues}); err != nil {
		t.Error(err)
	}
	if lost, err := s.Workers.ReleaseLost(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("lost again %+v, error %v", lost, err)
	}
	if got := one[string](t, s.pool, `SELECT status FROM kagzi.workers WHERE worker_id = $1`,
		foreign.ID); got != "ONLINE" {
		t.Errorf("a worker of another namespace is %s", got)
	}
	// Claims of these runs count as recoveries.
	for _, r := range claim(t, s, request(10)).Runs {
		if r.Recoveries != 1 {
			t.Errorf("recoveries %d", r.Recoveries)
		}
	}
}

// Another transaction's lock on a run delays neither the release of the others nor the worker's declaration as dead.
func TestReleaseLostPassesOverLocks(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, rs := fellSilent(t, s, 2)
	tx := begin(t, s)
	lockRow(t, tx, rs[0].RunID)
	lost, err := s.Workers.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != 1 {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	commit(t, tx)
}

// checkTerm checks the term that a query after before returned for a lease that had most left in the table: after a
// slow answer less is left, but never more.
func checkTerm(t *testing.T, term Term, before time.Time, most time.Duration) {
	t.Helper()
	if most == 0 {
		if term != (Term{}) {
			t.Errorf("the term %+v of a lease that is not held", term)
		}
		return
	}
	if left := term.Ends.Sub(term.Asked); term.Asked.Before(before) || term.Asked.After(time.Now()) || left > most ||
		left < most-15*time.Second {
		t.Errorf("the term is %v from %v, want %v from %v on", left, term.Asked, most, before)
	}
}

// A lease lasts no longer than its timeout after the query was sent, though the clock of the server that answers is
// behind that of the server with the row.
func TestTermWithinTheTimeout(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	until := asked.Add(time.Minute)
	for behind, want := range map[time.Duration]time.Duration{
		0: time.Minute, time.Second: time.Minute, -time.Second: 59 * time.Second,
	} {
		term := termOf(asked, asked.Add(-behind), until).within(time.Minute)
		if got := term.Ends.Sub(asked); got != want || !term.Asked.Equal(asked) {
			t.Errorf("a clock %v behind: the term is %v, want %v", behind, got, want)
		}
	}
}

// extend extends the leases of the runs that are past half of their timeout, and returns the states of all after that.
func extend(t *testing.T, s *Store, timeout time.Duration,
	runs ...*ClaimedRun,
) (states []HeldRunState, terms map[HeldRun]Term) {
	t.Helper()
	var asked []HeldRun
	for _, r := range runs {
		asked = append(asked, held(r))
	}
	alone := func(h HeldRun, err error) { t.Errorf("%v: %v", h, err) }
	terms, err := s.Leases.Extend(t.Context(), s.pool, asked, timeout, alone)
	if err == nil {
		states, err = s.Leases.HeldStates(t.Context(), s.pool, asked, alone)
	}
	if err != nil {
		t.Fatal(err)
	}
	return states, terms
}

func TestExtendLeases(t *testing.T) {
	t.Parallel()
	s := open(t)
	rs := running(t, s, 5)
	set := func(i int, set string) {
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET `+set+` WHERE run_id = $1`, rs[i].RunID)
	}
	set(0, `available_at = now() + interval '20 s'`)
	set(1, `available_at = now() + interval '40 s'`)
	set(2, `available_at = now() + interval '20 s', lease = gen_random_uuid()`)
	set(3, `available_at = now() + interval '20 s', wakeups = 4, cancel_requested_at = now()`)
	set(4, `status = 'CANCELLED', available_at = NULL, locked_by = NULL, finished_at = now()`)
	rs = append(rs, &ClaimedRun{RunID: uuid.New(), Lease: uuid.New()})
	before := time.Now()
	states, terms := extend(t, s, time.Minute, rs...)
	for i, most := range []time.Duration{time.Minute, 0, 0, time.Minute, 0, 0} {
		checkTerm(t, terms[held(rs[i])], before, most)
	}
	for i, most := range []time.Duration{time.Minute, 40 * time.Second, 0, time.Minute, 0, 0} {
		checkTerm(t, states[i].Term, before, most)
		states[i].Term = Term{}
	}
	for i, want := range []HeldRunState{
		{Holds: true, Status: Running},
		{Holds: true, Status: Running},
		{Status: Running},
		{Holds: true, Status: Running, Wakeups: 4, Cancel: true},
		{Status: Cancelled},
		{},
	} {
		want.RunID, want.Lease = rs[i].RunID, rs[i].Lease
		if states[i] != want {
			t.Errorf("state %d: %+v, want %+v", i, states[i], want)
		}
	}
	for i, want := range []float64{60, 40, 20, 60} {
		if got := readRow(t, s.pool, rs[i].RunID).In; got < want-15 || got > want {
			t.Errorf("run %d: %v s left, want %v: only leases that are held and past half of their timeout",
				i, got, want)
		}
	}
	if states, terms := extend(t, s, time.Minute); len(states)+len(terms) > 0 {
		t.Error(states, terms)
	}
}

// A registration or heartbeat that the network delivers late changes nothing: it would name a connection that has
// ended.
func TestLateHeartbeat(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	now := time.Now().UTC().Truncate(time.Microsecond)
	old := Heartbeat{Number: 1, Worker: w.ID, Queues: w.Queues, Backend: Backend{PID: 7, Start: now, Server: now}}
	again := Heartbeat{Number: 2, Worker: w.ID, Queues: w.Queues, Backend: Backend{PID: 8, Start: now, Server: now}}
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool, again); err != nil {
		t.Fatal(err)
	}
	_, err := s.Workers.Heartbeat(t.Context(), s.pool, old)
	wantError(t, err, ErrWorkerOffline) // no worker gets this answer
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Error(err)
	}
	if pid := one[int](t, s.pool, `SELECT backend_pid FROM kagzi.workers`); pid != 8 {
		t.Errorf("the worker's backend is %d, want 8", pid)
	}
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool, again); err != nil {
		t.Errorf("the same again, as after a lost answer: %v", err)
	}
}

// A lease that cannot be extended does not cost another run its lease.
func TestExtendLeasesApart(t *testing.T) {
	t.Parallel()
	s := open(t)
	rs := running(t, s, 5)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() + interval '20 s'`)
	refuseUpdate(t, s, rs[3].RunID)
	var all, apart []HeldRun
	for _, r := range rs {
		all = append(all, held(r))
	}
	terms, err := s.Leases.Extend(t.Context(), s.pool, all, time.Minute, func(h HeldRun, err error) {
		apart = append(apart, h)
		if pg.Code(err) != "XX001" {
			t.Error(err)
		}
	})
	if err != nil || len(terms) != 4 || len(apart) != 1 || apart[0] != all[3] {
		t.Errorf("extended %v, apart %v, error %v", terms, apart, err)
	}
	for i, r := range rs {
		if extended := readRow(t, s.pool, r.RunID).In > 50; extended != (i != 3) {
			t.Errorf("run %d: extended %t", i, extended)
		}
	}
}

// refuseUpdate makes the server refuse writes of the run's row, as of a damaged one.
func refuseUpdate(t *testing.T, s *Store, id uuid.UUID) {
	t.Helper()
	exec(t, s.pool, `CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'damaged'
		USING ERRCODE = 'XX001'; END $$`)
	exec(t, s.pool, fmt.Sprintf(`CREATE TRIGGER damaged BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW
		WHEN (new.run_id = '%s') EXECUTE FUNCTION damaged()`, id))
}
