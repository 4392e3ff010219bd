package model

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// Signal stores a message, once for each ID. It does not wake a run that only waits for its compensations.
func (t *table) Signal(id uuid.UUID, message string) error {
	r := t.Runs[id]
	if r == nil {
		return store.ErrRunNotFound
	}
	for _, g := range r.Messages {
		if g.ID == message {
			return nil
		}
	}
	if !r.Active() {
		return store.ErrRunFinished
	}
	if r.Wakeups++; r.Outcome == "" {
		r.wake(0)
	}
	r.Messages = append(r.Messages, Message{ID: message, Sequence: r.Wakeups})
	return nil
}

// A Written is the outcome of one write of a flush.
type Written struct {
	Outcome store.Outcome
	Output  string // of a record that is Done: the output in the table
}

// Flush writes a flush, and returns the outcomes of its records, suspensions and finishes, in that order. First all
// that the leases allow is written. Then each write that was not is resolved by the tables.
func (m *Model) Flush(f *store.Flush) (written []Written) {
	done := map[any]bool{}
	for _, r := range f.Records {
		done[r] = m.record(r)
	}
	for _, p := range f.Suspensions {
		done[p] = m.suspend(p)
	}
	for _, e := range f.Finishes {
		done[e] = m.finish(e)
	}
	for _, r := range f.Records {
		w := Written{Outcome: store.Done, Output: string(r.Output)}
		if !done[r] {
			w = m.resolveRecord(r)
		}
		written = append(written, w)
	}
	for _, p := range f.Suspensions {
		w := Written{Outcome: store.Done}
		if !done[p] {
			w.Outcome = m.resolve(p.RunID, p.Lease, p.Status)
		}
		written = append(written, w)
	}
	for _, e := range f.Finishes {
		w := Written{Outcome: store.Done}
		if !done[e] {
			w.Outcome = m.resolve(e.RunID, e.Lease, e.Status)
			if r := m.Runs[e.RunID]; r != nil && r.Lease == e.Lease && r.Outcome != "" && r.Status != store.Running {
				w.Outcome = store.Done
			}
			if w.Outcome == store.Busy && m.Runs[e.RunID].Cancelling && e.Status != store.Cancelled {
				w.Outcome = store.Cancelling
			}
		}
		written = append(written, w)
	}
	return written
}

// record writes an attempt of a step, unless it has ended already.
func (t *table) record(rec *store.Record) bool {
	r := t.Runs[rec.RunID]
	if !r.Holds(rec.Lease) {
		return false
	}
	if rec.Start != nil && t.Runs[rec.ChildRunID] == nil {
		n := *rec.Start
		n.RunID, n.Parent, n.ParentStep = rec.ChildRunID, rec.RunID, rec.StepID
		if n.Priority == 0 {
			n.Priority = r.Priority
		}
		t.add(newRun(n))
	}
	attempts := r.Steps[rec.StepID]
	if rec.Attempt <= len(attempts) && !attempts[rec.Attempt-1].accepts(rec) {
		return false
	}
	now := t.tick()
	a := Attempt{Begun: now}
	if rec.Attempt <= len(attempts) {
		a = attempts[rec.Attempt-1]
	} else {
		attempts = append(attempts, a)
	}
	a.Kind, a.Status, a.Output, a.Final, a.Child, a.Sequence = rec.Kind, rec.Status, string(rec.Output), rec.Wake < 0,
		rec.ChildRunID, rec.Sequence
	a.Calls, a.Position, a.step = rec.Compensation != nil, rec.Position, rec.StepID
	if rec.Status != store.Running {
		a.Ended = now
	}
	attempts[rec.Attempt-1] = a
	r.Steps[rec.StepID] = attempts
	r.consume(rec)
	return true
}

// accepts reports whether the record may replace the row: that has not ended. What a compensation calls does not
// change.
func (a Attempt) accepts(rec *store.Record) bool {
	return a.Status == store.Running && (!a.Calls || rec.Compensation != nil && a.Output == string(rec.Output))
}

// consume marks the message that a step has read.
func (r *Run) consume(rec *store.Record) {
	for i := range r.Messages {
		if g := &r.Messages[i]; rec.Signal != "" && g.Sequence == rec.Sequence && g.ReadBy == "" {
			g.ReadBy = rec.StepID
		}
	}
}

// suspend ends an execution. A run that awaits no more wake-ups than have come is due.
func (t *table) suspend(p *store.Suspension) bool {
	r := t.Runs[p.RunID]
	if !r.Holds(p.Lease) {
		return false
	}
	r.Status, r.Worker, r.Awaited = p.Status, uuid.Nil, p.Seen+int64(p.Need)
	if p.Need == 0 {
		r.Awaited = 1 << 62
	}
	switch {
	case p.Status == store.Sleeping && r.Wakeups >= r.Awaited, r.Cancelling, p.Wake == 0:
		r.due()
	case r.Deadline == Due:
		r.due()
	case p.Wake > 0, r.Deadline == Later:
		r.At = Later
	default:
		r.At = Never
	}
	if p.Failed != nil {
		r.Attempts++
	}
	if p.Unbegun {
		r.Started = r.Started && p.Lease[15]&1 == 0 // see store.leaseOf
		if p.Lease[15]&2 > 0 {
			r.Version = 0
		}
	}
	return true
}

// finish ends a run, and wakes its parent. While a cancel is pending, the run can only end as cancelled. One that has
// compensations ends later, unless it completes.
func (m *Model) finish(e *store.Finish) bool {
	r := m.Runs[e.RunID]
	if !r.Holds(e.Lease) || r.Cancelling && e.Status != store.Cancelled {
		return false
	}
	if e.Status != store.Completed && r.registered() {
		r.decide(e.Status, e.Lease)
		return true
	}
	r.end(e.Status, e.Lease)
	m.wakeParents([]*Run{r}, nil)
	return true
}

// resolve returns the outcome of a write that was not written: an earlier try may have written it.
func (t *table) resolve(id, lease uuid.UUID, status string) store.Outcome {
	switch r := t.Runs[id]; {
	case r != nil && r.Lease == lease && r.Status == status:
		return store.Done
	case r.Holds(lease):
		return store.Busy
	default:
		return store.Lost
	}
}

func (t *table) resolveRecord(rec *store.Record) Written {
	r := t.Runs[rec.RunID]
	if !r.Holds(rec.Lease) {
		return Written{Outcome: store.Lost}
	}
	attempts := r.Steps[rec.StepID]
	for i := len(attempts) - 1; i >= rec.Attempt-1; i-- {
		if attempts[i].Status != store.Running {
			return Written{store.Done, attempts[i].Output}
		}
	}
	return Written{Outcome: store.Busy}
}
