package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestDrainLeavesTheRowAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	tx := begin(t, s)
	if err := s.Workers.Drain(t.Context(), tx, w.ID, Why{}); err != nil {
		t.Fatal(err)
	}
	// While the transaction is open, the worker can send heartbeats and end.
	s2 := New(poolWith(t, s.pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["lock_timeout"] = "1s"
	}), "test")
	if p, err := s2.Workers.Heartbeat(t.Context(), s2.pool,
		Heartbeat{Number: 1, Worker: w.ID, Queues: w.Queues}); err != nil ||
		p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
	if err := s2.Workers.Draining(t.Context(), s2.pool, w.ID); err != nil {
		t.Error(err)
	}
	commit(t, tx)
	if p, err := s.Workers.Heartbeat(t.Context(), s.pool,
		Heartbeat{Number: 2, Worker: w.ID, Queues: w.Queues}); err != nil ||
		!p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
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
	if err := other.Workers.Register(t.Context(), s.pool, worker()); err != nil {
		t.Fatal(err)
	}
	exec(t, s.pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now() - interval '8 days'
		WHERE worker_id <> $1`, live.ID)
	exec(t, s.pool, `UPDATE kagzi.workers SET stopped_at = now() - interval '6 days' WHERE worker_id = $1`, young.ID)
	exec(t, s.pool, `UPDATE kagzi.workers SET release_at = now() WHERE worker_id = $1`, held.ID)
	for i, want := range []int64{3, 2, 0} {
		if n, err := s.Workers.Prune(t.Context(), week, 3); err != nil || n != want {
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
