package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A SignalSpec describes a wait for a message.
type SignalSpec struct {
	Name    string        // of the messages, with the key
	Step    string        // name of the wait's record
	BadName error         // why the name is invalid; nil if it is valid
	Invalid error         // why the rest of the call is invalid; nil if it is valid
	Timeout time.Duration // zero: none
}

// A signalWait is a wait for a message that is under way. See docs/architecture.md, Wake-ups without loss.
type signalWait struct {
	b       *Branch
	id      string
	name    string
	timeout time.Duration
	until   time.Time // when it times out; the zero time: never
}

// Receive waits for a message and returns its record. If none arrived in time, it returns the recorded error.
func (b *Branch) Receive(spec SignalSpec) (*store.StepRow, error) {
	defer b.operate().done()
	id, err := b.enter(spec.Step, spec.BadName)
	if err != nil {
		return nil, err
	}
	if spec.Invalid != nil {
		return nil, b.Misuse(failure.Wrap(spec.Invalid, "wait for signal %q", spec.Name))
	}
	row := b.lookup(id, store.KindSignal)
	if row == nil || row.Status == store.Running {
		w := &signalWait{b: b, id: id, name: spec.Name, timeout: spec.Timeout}
		if row, err = w.run(row); err != nil {
			return nil, err
		}
	}
	b.passed(row)
	if row.ErrorKind != "" {
		return nil, b.e.env.errors.Recorded(row, "")
	}
	return row, nil
}

// run waits for a message. begun is the record of a wait with a timeout that has begun already, or nil.
func (w *signalWait) run(begun *store.StepRow) (*store.StepRow, error) {
	b, e := w.b, w.b.e
	if err := b.begins(); err != nil {
		return nil, err
	}
	if begun != nil {
		w.until = begun.WakeAt
	}
	caughtUp := false // the inbox was read from the table after the timeout
	for {
		row, late, past := w.take()
		if row != nil {
			return row, nil
		}
		if w.timeout > 0 && begun == nil {
			begun = w.begin(past)
			w.until = begun.WakeAt
			continue
		}
		if late || caughtUp {
			return w.timeOut()
		}
		if w.until.IsZero() || e.env.now().Before(w.until) {
			if err := b.waitFor(&wait{until: w.until, why: w.why(), need: 1}, w.arrival(), past); err != nil {
				return nil, err
			}
			continue
		}
		// A message that was stored in time may not have been delivered yet.
		if err := e.catchUp(b); err != nil {
			return nil, err
		}
		caughtUp = true
	}
}

func (w *signalWait) why() string { return "signal " + w.name }

// arrival returns the event of an arriving message.
func (w *signalWait) arrival() *event {
	w.b.e.mu.Lock()
	defer w.b.e.mu.Unlock()
	return w.b.e.arrivalLocked(w.name)
}

// take takes the oldest message, if one has arrived in time, and returns its record. The record is deferred: if the process
// dies before it is written, nothing that follows from the message is recorded either, and a replay takes the message again.
// late reports that the oldest message arrived too late, so none can arrive in time any more. past is the number of arrivals.
func (w *signalWait) take() (row *store.StepRow, late bool, past int) {
	b, e := w.b, w.b.e
	r := e.newRecord(w.id, store.KindSignal, store.Completed, 1, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason != underWay {
		runtime.Goexit()
	}
	past = e.arrivalLocked(w.name).fired
	box := e.inbox.signals[w.name]
	if len(box) == 0 || b.hasLost() || b.ctx.Err() != nil { // a loser takes no messages
		return nil, false, past
	}
	g := box[0]
	if !w.until.IsZero() && g.ReceivedAt.After(w.until) {
		return nil, true, past
	}
	e.inbox.signals[w.name] = box[1:]
	r.Output, r.Input, r.Sequence, r.Signal, r.EndedAt, r.Read = g.Payload, g.Headers, g.Sequence, g.Name, g.ReceivedAt, g.ReceivedAt
	if b.now.After(r.EndedAt) {
		r.EndedAt = b.now
	}
	b.deferLocked(r, g)
	done := r.StepRow // a copy: the record belongs to the flush now
	done.FinishedAt = r.EndedAt
	return &done, false, past
}

// begin records that a wait with a timeout has begun. If the run is suspended for it, both are one transaction.
func (w *signalWait) begin(past int) *store.StepRow {
	b := w.b
	r := b.e.newRecord(w.id, store.KindSignal, store.Running, 1, 1)
	r.Wake = w.timeout
	if w.timeout > memoryWait {
		b.suspendWith(r, &wait{why: w.why(), need: 1}, w.arrival(), past)
	}
	return b.record(r)
}

// timeOut records that no message arrived in time, and waits for the record: only then may the workflow act on it.
func (w *signalWait) timeOut() (*store.StepRow, error) {
	b, e := w.b, w.b.e
	if b.ctx.Err() != nil {
		return nil, context.Cause(b.ctx)
	}
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	r := e.newRecord(w.id, store.KindSignal, store.Completed, 1, 1)
	r.ErrorKind, r.Error, r.Permanent, r.EndedAt = string(kind.Timeout), "no message came in time", true, w.until
	row := b.record(r)
	e.exitIfStopped()
	return row, nil
}

// catchUp reads the run's inbox from the table. If the database is away, it tries again until it succeeds.
func (e *execution) catchUp(b *Branch) error {
	for failures := 0; ; failures++ {
		e.exitIfStopped()
		if b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
		err := e.readInbox()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(outage.PauseAfter(err, failures)):
		case <-e.done:
		}
	}
}
