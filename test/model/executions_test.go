package model

import (
	"maps"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// The writes of executions, each under a lease, which may be over.

// flush flushes what plan returns, at once and perhaps later once more: after a lost answer the engine flushes the same again.
func (w *world) flush(t *rapid.T, what string, plan func() *store.Flush) {
	w.sendFlush(t, what, plan())
	w.flushes = append(w.flushes, func() *flush { return &flush{plan(), what} })
}

func (w *world) flushAgain(t *rapid.T) {
	if len(w.flushes) == 0 {
		panic(nothingToDo{})
	}
	f := pick(t, "flush", w.flushes)()
	w.sendFlush(t, f.what+" again", f.Flush)
}

var outcomes = map[store.Outcome]string{store.Done: " done", store.Busy: " busy", store.Lost: " lost", store.Taken: " taken", store.Cancelling: " while a cancel is pending"}

func (w *world) sendFlush(t *rapid.T, what string, f *store.Flush) {
	s := w.store(t)
	var err error
	lost := false
	w.lossy(t, func() {
		if err = s.Flush(ctx, f); store.Unavailable(err) {
			lost = true
			err = s.Flush(ctx, f)
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	want := w.Flush(f)
	if lost {
		want = w.Flush(f)
	}
	var got []Written
	for _, r := range f.Records {
		got = append(got, Written{r.Outcome, string(r.Output)})
	}
	for _, p := range f.Suspensions {
		got = append(got, Written{Outcome: p.Outcome})
	}
	for _, e := range f.Finishes {
		got = append(got, Written{Outcome: e.Outcome})
	}
	for i := range got {
		w.met[what+outcomes[got[i].Outcome]]++
		if got[i].Outcome != want[i].Outcome || got[i].Outcome == store.Done && got[i].Output != want[i].Output {
			t.Fatalf("%s, write %d: %+v, want %+v (1 done, 2 busy, 3 lost, 4 taken, 5 cancelling)", what, i, got[i], want[i])
		}
	}
}

// record returns the record of an attempt of a step.
func (h held) record(step string, attempt int, kind, status, output string) *store.Record {
	rec := &store.Record{
		StepRow: store.StepRow{RunID: h.RunID, StepID: step, Attempt: attempt, FirstAttempt: 1, RunAttempt: 1, Status: status, Kind: kind},
		Lease:   h.Lease, Wake: -1,
	}
	switch status {
	case store.Completed:
		rec.Output = []byte(output)
	case store.Failed:
		rec.ErrorKind, rec.Error = "kind", "text"
	}
	return rec
}

// step records an attempt of a step: the one under way, the next one after a failure, or one that has ended already, as a late
// worker does.
func (w *world) step(t *rapid.T) {
	h := w.lease(t)
	name, status := drawn(t, "step", "one", "two"), drawn(t, "status", store.Running, store.Completed, store.Failed)
	output, retried := w.name("output"), number(t, "retried", 2) == 0
	attempt := 1
	if r := w.Runs[h.RunID]; r != nil && len(r.Steps[name]) > 0 {
		attempt = len(r.Steps[name])
		if last := r.Steps[name][attempt-1]; last.Status == store.Failed && !last.Final {
			attempt++
		}
	}
	w.flush(t, "step", func() *store.Flush {
		rec := h.record(name, attempt, store.KindFunction, status, output)
		if status == store.Failed && retried {
			rec.Wake = 0
		}
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// announce records that a step under way may register a compensation.
func (w *world) announce(t *rapid.T) {
	h := w.lease(t)
	w.flush(t, "announcement", func() *store.Flush {
		return &store.Flush{Records: []*store.Record{h.record(store.CompensationID("one"), 1, store.KindCompensation, store.Running, "")}}
	})
}

// child starts a child.
func (w *world) child(t *rapid.T) {
	h, step, id := w.lease(t), w.name("child"), uuid.Must(uuid.NewV7())
	detached := number(t, "detached", 2) == 0
	w.flush(t, "child", func() *store.Flush {
		rec := h.record(step, 1, store.KindChild, store.Running, "")
		rec.ChildRunID, rec.Start = id, &store.NewRun{RunID: id, Queue: "queue", Type: "a", Input: []byte("input"), Detached: detached}
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// endedChild returns the first step of the run that has started a child which is over, and whose end is not recorded.
func (w *world) endedChild(r *Run) string {
	if r != nil {
		for _, step := range slices.Sorted(maps.Keys(r.Steps)) {
			if a := r.Steps[step][0]; a.Kind == store.KindChild && a.Status == store.Running && !w.Runs[a.Child].Active() {
				return step
			}
		}
	}
	return ""
}

// childEnd records the end of a child.
func (w *world) childEnd(t *rapid.T) {
	h := w.leaseWhich(t, func(h held) bool { return w.endedChild(w.Runs[h.RunID]) != "" })
	r := w.Runs[h.RunID]
	step := w.endedChild(r)
	child := r.Steps[step][0].Child
	w.flush(t, "end of a child", func() *store.Flush {
		rec := h.record(step, 1, store.KindChild, store.Completed, "output of the child")
		rec.ChildRunID = child
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// read records that a step has read the first message.
func (w *world) read(t *rapid.T) {
	h := w.leaseWhich(t, func(h held) bool { r := w.Runs[h.RunID]; return r != nil && r.Unread() != nil })
	step, sequence := w.name("wait"), w.Runs[h.RunID].Unread().Sequence
	w.flush(t, "message", func() *store.Flush {
		rec := h.record(step, 1, store.KindSignal, store.Completed, "payload")
		rec.Signal, rec.Sequence = "name", sequence
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// sleep records a sleep, and suspends the run.
func (w *world) sleep(t *rapid.T) {
	h := w.lease(t)
	w.flush(t, "sleep", func() *store.Flush {
		rec := h.record("nap", 1, store.KindSleep, store.Running, "")
		rec.Wake = far
		return &store.Flush{Records: []*store.Record{rec}, Suspensions: []*store.Suspension{h.suspension(store.Sleeping)}}
	})
}

// wake records that a sleep is over.
func (w *world) wake(t *rapid.T) {
	h := w.leaseWhich(t, func(h held) bool {
		r := w.Runs[h.RunID]
		return r != nil && len(r.Steps["nap"]) > 0 && r.Steps["nap"][0].Passed > 0
	})
	w.flush(t, "end of a sleep", func() *store.Flush {
		return &store.Flush{Records: []*store.Record{h.record("nap", 1, store.KindSleep, store.Completed, "")}}
	})
}

func (h held) suspension(status string) *store.Suspension {
	return &store.Suspension{RunID: h.RunID, Lease: h.Lease, Status: status, Wake: far}
}

// suspend suspends a run that waits for messages or children, for a time, or both. What it has seen may be old.
func (w *world) suspend(t *rapid.T) {
	h, need, seen := w.lease(t), drawn(t, "need", 0, 1, 2), number(t, "seen all", 2) == 0
	forever := need > 0 && number(t, "for ever", 2) == 0
	wakeups := h.wakeups
	if r := w.Runs[h.RunID]; r != nil && seen {
		wakeups = r.Wakeups
	}
	w.flush(t, "suspension", func() *store.Flush {
		p := h.suspension(store.Sleeping)
		p.Need, p.Seen = need, wakeups
		if forever {
			p.Wake = -1
		}
		return &store.Flush{Suspensions: []*store.Suspension{p}}
	})
}

// retry ends an attempt of a run that failed. The next one has a backoff.
func (w *world) retry(t *rapid.T) {
	h := w.lease(t)
	w.flush(t, "retry", func() *store.Flush {
		p := h.suspension(store.Pending)
		p.Failed, p.ErrorKind, p.Error = true, "kind", "text"
		return &store.Flush{Suspensions: []*store.Suspension{p}}
	})
}

// release gives a run back to other workers, perhaps one that has not begun.
func (w *world) release(t *rapid.T) {
	h, unbegun := w.lease(t), number(t, "unbegun", 2) == 0
	w.flush(t, "release", func() *store.Flush {
		p := h.suspension(store.Pending)
		p.Wake, p.Unbegun = 0, unbegun
		return &store.Flush{Suspensions: []*store.Suspension{p}}
	})
}

func (w *world) finish(t *rapid.T) { w.endAs(t, store.Completed) }
func (w *world) fail(t *rapid.T)   { w.endAs(t, drawn(t, "status", store.Failed, store.Cancelled)) }

// endAs ends a run, after its children.
func (w *world) endAs(t *rapid.T, status string) {
	h, s := w.lease(t), w.store(t)
	w.lossy(t, func() {
		_, err := s.CancelChildren(ctx, h.HeldRun)
		w.wantError(t, "cancel children", err, w.CancelChildren(h.RunID, h.Lease))
	})
	w.flush(t, "finish", func() *store.Flush {
		e := &store.Finish{RunID: h.RunID, Lease: h.Lease, Parent: h.parent, Status: status}
		switch status {
		case store.Completed:
			e.Output = []byte("output")
		case store.Failed:
			e.ErrorKind, e.Error = "kind", "text"
		default:
			e.ErrorKind, e.Error = "cancelled", "text"
		}
		return &store.Flush{Finishes: []*store.Finish{e}}
	})
}
