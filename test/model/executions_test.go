package model

import (
	"maps"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// The writes of executions, each under a lease, which may be over.

// flush does the act at once and perhaps later once more: after a lost answer the engine flushes the same again.
func (w *world) flush(t *rapid.T, a act) {
	w.do(t, a)
	w.flushes = append(w.flushes, a)
}

func (w *world) flushAgain(t *rapid.T) {
	if len(w.flushes) == 0 {
		panic(nothingToDo{})
	}
	a := pick(t, "flush", w.flushes)
	a.name += " again"
	w.do(t, a)
}

var outcomes = map[store.Outcome]string{
	store.Done: "done", store.Busy: "busy", store.Lost: "lost",
	store.Taken: "taken", store.Cancelling: "cancelling",
}

// flushing flushes what plan returns, under the lease. It answers with a line for each write. Beside another act it may
// find the run locked: then it is repeated, as an engine does.
func (w *world) flushing(what string, h held, plan func() *store.Flush) act {
	tries := 1
	if w.focus != nil {
		tries = 50
	}
	return act{name: what, lease: h.Lease, send: func(s *store.Store) (answer string, err error) {
		for range tries {
			f := plan()
			err, answer = s.Records.Flush(ctx, f), ""
			busy := false
			for _, x := range written(f) {
				answer += x.text()
				busy = busy || x.Outcome == store.Busy
			}
			if err != nil || !busy {
				break
			}
		}
		return answer, err
	}, apply: func(m *Model) (answer string, err error) {
		for _, x := range m.Flush(plan()) {
			answer += x.text()
		}
		return answer, nil
	}, done: func() {
		// it may have given up its slot: the worker's next claim hands it on
		if r := w.Runs[h.RunID]; r != nil && r.Key != (store.Key{}) && r.Status != store.Running {
			ended := r.Status == store.Completed || r.Status == store.Failed || r.Status == store.Cancelled
			w.freed = append(w.freed, store.FreedKey{Key: r.Key, Ended: ended})
		}
	}}
}

// written returns the outcomes of the writes of a flush.
func written(f *store.Flush) (all []Written) {
	for _, r := range f.Records {
		all = append(all, Written{r.Outcome, string(r.Output)})
	}
	for _, p := range f.Suspensions {
		all = append(all, Written{Outcome: p.Outcome})
	}
	for _, e := range f.Finishes {
		all = append(all, Written{Outcome: e.Outcome})
	}
	return all
}

func (w Written) text() string {
	if w.Outcome != store.Done {
		w.Output = ""
	}
	return outcomes[w.Outcome] + " " + w.Output + "\n"
}

// record returns the record of an attempt of a step.
func (h held) record(step string, attempt int, kind, status, output string) *store.Record {
	rec := &store.Record{
		StepRow: store.StepRow{
			RunID: h.RunID, StepID: step, Attempt: attempt, FirstAttempt: 1, RunAttempt: 1,
			Status: status, Kind: kind,
		},
		Lease: h.Lease, Wake: -1,
	}
	switch status {
	case store.Completed:
		rec.Output = []byte(output)
	case store.Failed:
		rec.ErrorKind, rec.Error = "kind", "text"
	}
	return rec
}

// recordingStep records an attempt of a step: the one under way, the next one after a failure, or one that has ended
// already, as a late worker does.
func (w *world) recordingStep(t *rapid.T) act {
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
	return w.flushing("step", h, func() *store.Flush {
		rec := h.record(name, attempt, store.KindFunction, status, output)
		if status == store.Failed && retried {
			rec.Wake = 0
		}
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// recordingChild starts a child.
func (w *world) recordingChild(t *rapid.T) act {
	h, step, id := w.lease(t), w.name("child"), uuid.Must(uuid.NewV7())
	detached := number(t, "detached", 2) == 0
	return w.flushing("child", h, func() *store.Flush {
		rec := h.record(step, 1, store.KindChild, store.Running, "")
		rec.ChildRunID, rec.Start = id, &store.NewRun{
			RunID: id, Spec: store.Spec{Queue: "queue", Type: "a"}, Input: []byte("input"),
			Detached: detached,
		}
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// endedChild returns the first step of the run that has started a child which is over, and whose end is not recorded.
func (w *world) endedChild(r *Run) string {
	if r != nil {
		for _, step := range slices.Sorted(maps.Keys(r.Steps)) {
			if a := r.Steps[step][0]; a.Kind == store.KindChild && a.Status == store.Running &&
				!w.Runs[a.Child].Active() {
				return step
			}
		}
	}
	return ""
}

// recordingChildEnd records the end of a child.
func (w *world) recordingChildEnd(t *rapid.T) act {
	h := w.leaseWhich(t, func(h held) bool { return w.endedChild(w.Runs[h.RunID]) != "" })
	r := w.Runs[h.RunID]
	step := w.endedChild(r)
	child := r.Steps[step][0].Child
	return w.flushing("end of a child", h, func() *store.Flush {
		rec := h.record(step, 1, store.KindChild, store.Completed, "output of the child")
		rec.ChildRunID = child
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// recordingRead records that a step has read the first message.
func (w *world) recordingRead(t *rapid.T) act {
	h := w.leaseWhich(t, func(h held) bool { r := w.Runs[h.RunID]; return r != nil && r.Unread() != nil })
	step, sequence := w.name("wait"), w.Runs[h.RunID].Unread().Sequence
	return w.flushing("message", h, func() *store.Flush {
		rec := h.record(step, 1, store.KindSignal, store.Completed, "payload")
		rec.Signal, rec.Sequence = "name", sequence
		return &store.Flush{Records: []*store.Record{rec}}
	})
}

// recordingSleep records a sleep, and suspends the run.
func (w *world) recordingSleep(t *rapid.T) act {
	h := w.lease(t)
	return w.flushing("sleep", h, func() *store.Flush {
		rec := h.record("nap", 1, store.KindSleep, store.Running, "")
		rec.Wake = far
		return &store.Flush{
			Records:     []*store.Record{rec},
			Suspensions: []*store.Suspension{h.suspension(store.Sleeping)},
		}
	})
}

// recordingWake records that a sleep is over.
func (w *world) recordingWake(t *rapid.T) act {
	h := w.leaseWhich(t, func(h held) bool {
		r := w.Runs[h.RunID]
		return r != nil && len(r.Steps["nap"]) > 0 && r.Steps["nap"][0].Passed > 0
	})
	return w.flushing("end of a sleep", h, func() *store.Flush {
		return &store.Flush{Records: []*store.Record{h.record("nap", 1, store.KindSleep, store.Completed, "")}}
	})
}

func (h held) suspension(status string) *store.Suspension {
	return &store.Suspension{RunID: h.RunID, Lease: h.Lease, Status: status, Wake: far}
}

// suspending suspends a run that waits for messages or children, for a time, or both. What it has seen may be old.
func (w *world) suspending(t *rapid.T) act {
	h, need, seen := w.lease(t), drawn(t, "need", 0, 1, 2), number(t, "seen all", 2) == 0
	forever := need > 0 && number(t, "for ever", 2) == 0
	wakeups := h.wakeups
	if r := w.Runs[h.RunID]; r != nil && seen {
		wakeups = r.Wakeups
	}
	return w.flushing("suspension", h, func() *store.Flush {
		p := h.suspension(store.Sleeping)
		p.Need, p.Seen = need, wakeups
		if forever {
			p.Wake = -1
		}
		return &store.Flush{Suspensions: []*store.Suspension{p}}
	})
}

// retrying ends an attempt of a run that failed. The next one has a backoff.
func (w *world) retrying(t *rapid.T) act {
	h := w.lease(t)
	return w.flushing("retry", h, func() *store.Flush {
		p := h.suspension(store.Pending)
		p.Failed = &store.FailedAttempt{ErrorKind: "kind", Error: "text"}
		return &store.Flush{Suspensions: []*store.Suspension{p}}
	})
}

// releasing gives a run back to other workers, perhaps one that has not begun.
func (w *world) releasing(t *rapid.T) act {
	h, unbegun := w.lease(t), number(t, "unbegun", 2) == 0
	return w.flushing("release", h, func() *store.Flush {
		p := h.suspension(store.Pending)
		p.Wake, p.Unbegun = 0, unbegun
		return &store.Flush{Suspensions: []*store.Suspension{p}}
	})
}

func (w *world) finish(t *rapid.T) { w.endAs(t, store.Completed) }
func (w *world) fail(t *rapid.T)   { w.endAs(t, drawn(t, "status", store.Failed, store.Cancelled)) }

// endAs ends a run, after its children.
func (w *world) endAs(t *rapid.T, status string) {
	h := w.lease(t)
	w.do(t, cancellingChildrenOf(h))
	w.flush(t, w.finishingAs(h, status))
}

func (w *world) cancellingChildren(t *rapid.T) act { return cancellingChildrenOf(w.lease(t)) }

func cancellingChildrenOf(h held) act {
	a := changing("cancel children", func(s *store.Store) error {
		_, err := s.Ends.CancelChildren(ctx, h.HeldRun)
		return err
	}, func(m *Model) error { return m.CancelChildren(h.RunID, h.Lease) })
	a.lease = h.Lease
	return a
}

// finishing ends a run that has no active children.
func (w *world) finishing(t *rapid.T) act {
	h := w.leaseWhich(t, func(h held) bool {
		return !slices.ContainsFunc(w.all(), func(c *Run) bool {
			return c.Parent == h.RunID && !c.Detached && c.Active()
		})
	})
	return w.finishingAs(h, drawn(t, "status", store.Completed, store.Failed, store.Cancelled))
}

func (w *world) finishingAs(h held, status string) act {
	return w.flushing("finish", h, func() *store.Flush {
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
