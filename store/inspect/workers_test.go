package inspect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A dead worker's runs are released in all of its queues, also in one that it had left before.
func TestReleaseInSeveralQueues(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := worker()
	w.Queues = []string{"queue", "other"}
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Fatal(err)
	}
	var held []uuid.UUID
	for _, queue := range w.Queues {
		start(t, s, newRun(func(r *store.NewRun) { r.Queue = queue }))
		runs := claim(t, s, request(1, func(r *store.ClaimRequest) { r.Worker, r.Queue = w.ID, queue })).Runs
		if len(runs) != 1 || runs[0].Queue != queue {
			t.Fatalf("claimed %+v of queue %q", runs, queue)
		}
		held = append(held, runs[0].RunID)
	}
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{
		Number: 1, Worker: w.ID, Queues: w.Queues[:1],
		LeftQueues: w.Queues[1:],
	}); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]int{"queue": 1, "other": 0} {
		if page, total, err := s.View.Workers(t.Context(), WorkerFilter{Queue: queue, Limit: 10}); err != nil ||
			len(page) != want || total != want {
			t.Errorf("workers of queue %q: %+v, %d, %v", queue, page, total, err)
		}
		if asked, err := s.Workers.DrainQueue(t.Context(), nil, queue, store.Why{}); err != nil || len(asked) != want {
			t.Errorf("draining of queue %q asked %v, %v", queue, asked, err)
		}
	}
	silence(t, s, w.ID, time.Hour)
	lost, err := s.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != 2 || !slices.Equal(lost[0].Queues, w.Queues) ||
		len(lost[0].Due()) != 2 {
		t.Errorf("lost %+v, %v", lost, err)
	}
	for _, id := range held {
		if row := readRow(t, s.pool, id); !row.Due {
			t.Errorf("the dead worker's run %+v is not due", row)
		}
	}
}
