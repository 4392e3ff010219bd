package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestWorkersPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	var want []uuid.UUID
	for range 7 {
		want = append(want, register(t, s).ID)
	}
	exec(t, s.pool, `UPDATE kagzi.workers SET started_at = now()`) // all at once: the ID decides
	slices.SortFunc(want, func(a, b uuid.UUID) int { return -slices.Compare(a[:], b[:]) })
	var got []uuid.UUID
	f := WorkerFilter{Limit: 2}
	for i := range 10 {
		page, total, err := s.Workers(t.Context(), f)
		if err != nil || total != 7+i {
			t.Fatalf("%d in all, error %v", total, err)
		}
		if len(page) == 0 {
			break
		}
		for _, w := range page {
			got = append(got, w.ID)
		}
		f.After = page[len(page)-1].ID
		register(t, s) // started later: before the first page
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	_, _, err := s.Workers(t.Context(), WorkerFilter{After: uuid.New(), Limit: 1})
	wantError(t, err, ErrWorkerNotFound)
}

func TestDrainLeavesTheRowAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	tx := begin(t, s)
	if err := s.Drain(t.Context(), tx, w.ID, Why{}); err != nil {
		t.Fatal(err)
	}
	// While the transaction is open, the worker can send heartbeats and end.
	s2 := New(poolWith(t, s.pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["lock_timeout"] = "1s"
	}), "test")
	if p, err := s2.Heartbeat(t.Context(), s2.pool, Heartbeat{Number: 1, Worker: w.ID, Queues: w.Queues}); err != nil ||
		p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
	if err := s2.DrainingWorker(t.Context(), s2.pool, w.ID); err != nil {
		t.Error(err)
	}
	commit(t, tx)
	if p, err := s.Heartbeat(t.Context(), s.pool, Heartbeat{Number: 2, Worker: w.ID, Queues: w.Queues}); err != nil ||
		!p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	s := open(t)
	w, other := register(t, s), register(t, s)
	for range 2 {
		if err := s.Drain(t.Context(), nil, w.ID, Why{}); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := s.Heartbeat(t.Context(), s.pool, Heartbeat{Number: 3, Worker: w.ID, Queues: w.Queues}); err != nil ||
		!p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := s.Heartbeat(t.Context(), s.pool, Heartbeat{Number: 4, Worker: other.ID, Queues: other.Queues}); err !=
		nil || p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
	row, err := s.Worker(t.Context(), w.ID)
	if err != nil || row.Status != Draining {
		t.Errorf("%+v, %v", row, err)
	}
	for status, want := range map[string]uuid.UUID{Draining: w.ID, Online: other.ID} {
		if page, total, err := s.Workers(t.Context(), WorkerFilter{Status: []string{status}, Limit: 9}); err != nil ||
			total != 1 || len(page) != 1 || page[0].ID != want {
			t.Errorf("%s: %+v, %d, %v", status, page, total, err)
		}
	}
	asked, err := s.DrainQueue(t.Context(), nil, "queue", Why{})
	if err != nil || len(asked) != 1 || asked[0] != other.ID {
		t.Errorf("asked %v, %v", asked, err)
	}
	if asked, err := s.DrainQueue(t.Context(), nil, "queue", Why{}); err != nil || len(asked) != 0 {
		t.Errorf("asked %v, %v", asked, err)
	}
	if asked, err := New(s.pool, "other").DrainQueue(t.Context(), nil, "queue", Why{}); err != nil || len(asked) != 0 {
		t.Errorf("asked %v, %v", asked, err)
	}
	wantError(t, New(s.pool, "other").Drain(t.Context(), nil, w.ID, Why{}), ErrWorkerNotFound)
	if err := s.DrainingWorker(t.Context(), s.pool, w.ID); err != nil {
		t.Error(err)
	}
	if got := events(t, s, w.ID); got != "STARTED DRAINING" {
		t.Errorf("events %s", got)
	}
}

func TestForceOffline(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	start(t, s, many(3)...)
	rs := claim(t, s, request(3, func(r *ClaimRequest) { r.Worker = w.ID })).Runs
	holder := begin(t, s)
	lockRow(t, holder, rs[0].RunID)
	tx := begin(t, s)
	lost, err := s.ForceOffline(t.Context(), tx, w.ID, "why", Why{})
	if err != nil || lost.Released != 2 || lost.Left != 1 || !slices.Equal(lost.Queues, []string{"queue"}) {
		t.Fatalf("lost %+v, error %v", lost, err)
	}
	rollback(t, tx)
	if got := events(t, s, w.ID); got != "STARTED" || readRow(t, s.pool, rs[1].RunID).Due {
		t.Errorf("a rolled back transaction changed something: %s", got)
	}
	for i, want := range []int{2, 0} {
		if lost, err = s.ForceOffline(t.Context(), nil, w.ID, "why", Why{}); err != nil || lost.Released != want {
			t.Errorf("call %d: lost %+v, error %v", i, lost, err)
		}
	}
	commit(t, holder)
	if lost, err = s.ForceOffline(t.Context(), nil, w.ID, "why", Why{}); err != nil || lost.Released != 1 {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	if err := s.Drain(t.Context(), nil, w.ID, Why{}); err != nil {
		t.Errorf("drain of one that is offline: %v", err)
	}
	if got := events(t, s, w.ID); got != "STARTED LOST" {
		t.Errorf("events %s", got)
	}
	log, err := s.WorkerEvents(t.Context(), w.ID)
	if err != nil || len(log) != 2 || log[1].Detail != "why" || log[1].At.IsZero() {
		t.Errorf("log %+v, %v", log, err)
	}
	_, err = s.Heartbeat(t.Context(), s.pool, Heartbeat{Number: 5, Worker: w.ID, Queues: w.Queues})
	wantError(t, err, ErrWorkerOffline)
	_, err = s.ForceOffline(t.Context(), nil, uuid.New(), "", Why{})
	wantError(t, err, ErrWorkerNotFound)
}

func TestPruneWorkers(t *testing.T) {
	t.Parallel()
	s := open(t)
	const week = 7 * 24 * time.Hour
	live, young, held := register(t, s), register(t, s), register(t, s)
	silence(t, s, live.ID, 2*week)
	for range 5 {
		register(t, s)
	}
	other := New(s.pool, "other")
	if err := other.RegisterWorker(t.Context(), s.pool, worker()); err != nil {
		t.Fatal(err)
	}
	exec(t, s.pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now() - interval '8 days'
		WHERE worker_id <> $1`, live.ID)
	exec(t, s.pool, `UPDATE kagzi.workers SET stopped_at = now() - interval '6 days' WHERE worker_id = $1`, young.ID)
	exec(t, s.pool, `UPDATE kagzi.workers SET release_at = now() WHERE worker_id = $1`, held.ID)
	for i, want := range []int64{3, 2, 0} {
		if n, err := s.PruneWorkers(t.Context(), week, 3); err != nil || n != want {
			t.Errorf("call %d: %d, %v; want %d", i, n, err, want)
		}
	}
	if got := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workers WHERE namespace_id = 'other'
		OR worker_id = ANY ($1)`, []uuid.UUID{live.ID, young.ID, held.ID}); got != 4 {
		t.Errorf("%d are left of 4", got)
	}
	if got := one[string](t, s.pool, `SELECT (SELECT count(*) FROM kagzi.workers) || ' ' || (SELECT count(*)
		FROM kagzi.worker_events)`); got != "4 4" {
		t.Errorf("workers and events: %s, want 4 of each", got)
	}
}

// A worker is silent once its heartbeat is older than its StaleAfter, until somebody notices.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	want := func(says string, silent bool) {
		t.Helper()
		if row, err := s.Worker(t.Context(), w.ID); err != nil || row.Silent != silent {
			t.Errorf("%s: silent %v, %v", says, row.Silent, err)
		}
	}
	want("just registered", false)
	silence(t, s, w.ID, w.StaleAfter+time.Second)
	want("without a heartbeat", true)
	if err := s.StoppedWorker(t.Context(), s.pool, w.ID, Counts{}); err != nil {
		t.Fatal(err)
	}
	want("stopped", false)
}
