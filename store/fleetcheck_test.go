package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// A queue is busy if a run for one of its live workers is due, or soon will be.
func TestBusyQueues(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := New(db.Pool, "default")
	add := func(s *Store, queue, typ string, priority int, delay string) {
		t.Helper()
		id := uuid.New()
		if _, err := s.Starts.Start(t.Context(), nil,
			[]NewRun{{RunID: id, Spec: Spec{Queue: queue, Type: typ, Priority: priority}}}); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() + $2::interval
			WHERE run_id = $1`, id, delay)
	}
	for _, queues := range [][]string{
		{"due"},
		{"soon"},
		{"later"},
		{"foreign"},
		{"elsewhere"},
		{"empty"},
		{"empty", "second"},
	} {
		w := worker()
		w.Queues, w.Types, w.LeftQueues = queues, []string{"a", "b"}, []string{"left"}
		if err := s.Workers.Register(t.Context(), db.Pool, w); err != nil {
			t.Fatal(err)
		}
	}
	add(s, "due", "b", 4, "-1 hour")
	add(s, "soon", "a", 1, "5 s")
	add(s, "later", "a", 1, "1 min")
	add(s, "foreign", "c", 3, "0")
	add(New(db.Pool, "other"), "elsewhere", "a", 3, "0")
	add(s, "unserved", "a", 3, "0")
	add(s, "left", "a", 3, "0")
	add(s, "second", "a", 3, "0")
	busy, err := s.Workers.BusyQueues(t.Context(), 10*time.Second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(busy)
	if !slices.Equal(busy, []string{"due", "second", "soon"}) {
		t.Errorf("busy %v", busy)
	}
	if fleet, err := s.Workers.CheckFleet(t.Context()); err != nil || fleet.Workers != 7 || fleet.Watched != 0 {
		t.Errorf("fleet %+v, %v", fleet, err)
	}
}
