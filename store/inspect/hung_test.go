package inspect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// The heartbeat writes the code that hangs in a worker. A run shows the code that hangs under its lease, in a worker
// that is not OFFLINE.
func TestHung(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := worker()
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Fatal(err)
	}
	number := int64(0)
	beat := func(h *store.Hung) {
		t.Helper()
		number++
		if _, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{
			Number: number, Worker: w.ID, Queues: w.Queues,
			Hung: h,
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := &store.Run{RunID: uuid.New(), Lease: uuid.New(), LockedBy: w.ID, Status: store.Running}
	code := store.HungCode{
		RunID: r.RunID, Lease: r.Lease, Workflow: "it's \\ \"odd\", é", Step: "step", Attempt: 2,
		Cause: "late", Since: time.Now().UTC().Truncate(time.Microsecond),
	}
	others := []store.HungCode{
		{RunID: r.RunID, Lease: uuid.New(), Step: "earlier"},
		{RunID: uuid.New(), Lease: r.Lease, Branch: "another"},
	}
	want := func(what string, r *store.Run, want ...store.HungCode) {
		t.Helper()
		if got, err := s.HungCode(t.Context(), r); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	want("before", r)
	beat(&store.Hung{Functions: 3, Slots: 1, Codes: append(others, code)})
	code.Worker = w.ID
	want("hung", r, code)
	live, err := s.LiveWorkers(t.Context(), s.pool, 10)
	if err != nil || len(live) != 1 || live[0].ID != w.ID || live[0].Hung == nil || live[0].Hung.Functions != 3 ||
		live[0].Hung.Slots != 1 || len(live[0].Hung.Codes) != 3 {
		t.Errorf("live workers: %+v, %v", live, err)
	}
	for what, change := range map[string]func(*store.Run){
		"another lease":  func(r *store.Run) { r.Lease = uuid.New() },
		"never executed": func(r *store.Run) { r.Status, r.LockedBy = store.Cancelled, uuid.Nil },
		"nobody's":       func(r *store.Run) { r.LockedBy = uuid.Nil },
		"another worker": func(r *store.Run) { r.LockedBy = uuid.New() },
	} {
		changed := *r
		change(&changed)
		want(what, &changed)
	}
	// its row has neither worker nor lease any more
	over := &store.Run{RunID: r.RunID, Status: store.Cancelled, StartedAt: time.Now()}
	others[0].Worker = w.ID
	want("over", over, others[0], code)
	beat(nil)
	want("returned", r)
	want("returned, and over", over)
	beat(&store.Hung{Functions: 1, Slots: 1, Codes: []store.HungCode{code}})
	if err := s.Workers.Stopped(t.Context(), s.pool, w.ID, store.Counts{}); err != nil {
		t.Fatal(err)
	}
	want("the worker is OFFLINE", r)
	want("the worker is OFFLINE, and the run over", over)
}
