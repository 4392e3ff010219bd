package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// The heartbeat writes what hangs in a worker. A run has what hangs under its lease, in a worker that is not OFFLINE.
func TestHung(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := worker()
	if err := s.RegisterWorker(t.Context(), s.pool, w); err != nil {
		t.Fatal(err)
	}
	number := int64(0)
	beat := func(h *Hung) {
		t.Helper()
		number++
		if _, err := s.Heartbeat(t.Context(), s.pool, Heartbeat{
			Number: number, Worker: w.ID, Queues: w.Queues,
			Hung: h,
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := &Run{RunID: uuid.New(), Lease: uuid.New(), LockedBy: w.ID, Status: Running}
	code := HungCode{
		RunID: r.RunID, Lease: r.Lease, Workflow: "it's \\ \"odd\", é", Step: "step", Attempt: 2,
		Cause: "late", Since: time.Now().UTC().Truncate(time.Microsecond),
	}
	others := []HungCode{
		{RunID: r.RunID, Lease: uuid.New(), Step: "earlier"},
		{RunID: uuid.New(), Lease: r.Lease, Branch: "another"},
	}
	want := func(what string, r *Run, want ...HungCode) {
		t.Helper()
		if got, err := s.HungCode(t.Context(), r); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	want("before", r)
	beat(&Hung{Functions: 3, Slots: 1, Codes: append(others, code)})
	code.Worker = w.ID
	want("hung", r, code)
	live, err := s.LiveWorkers(t.Context(), s.pool, 10)
	if err != nil || len(live) != 1 || live[0].ID != w.ID || live[0].Hung == nil || live[0].Hung.Functions != 3 ||
		live[0].Hung.Slots != 1 || len(live[0].Hung.Codes) != 3 {
		t.Errorf("live workers: %+v, %v", live, err)
	}
	for what, change := range map[string]func(*Run){
		"another lease":  func(r *Run) { r.Lease = uuid.New() },
		"never executed": func(r *Run) { r.Status, r.LockedBy = Cancelled, uuid.Nil },
		"nobody's":       func(r *Run) { r.LockedBy = uuid.Nil },
		"another worker": func(r *Run) { r.LockedBy = uuid.New() },
	} {
		changed := *r
		change(&changed)
		want(what, &changed)
	}
	// its row has neither worker nor lease any more
	over := &Run{RunID: r.RunID, Status: Cancelled, StartedAt: time.Now()}
	others[0].Worker = w.ID
	want("over", over, others[0], code)
	beat(nil)
	want("returned", r)
	want("returned, and over", over)
	beat(&Hung{Functions: 1, Slots: 1, Codes: []HungCode{code}})
	if err := s.StoppedWorker(t.Context(), s.pool, w.ID, Counts{}); err != nil {
		t.Fatal(err)
	}
	want("the worker is OFFLINE", r)
	want("the worker is OFFLINE, and the run over", over)
}
