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

	// Decode returns why the payload of a message does not decode. Nil accepts all messages.
	Decode func(payload []byte) error
}

// A signalWait is a wait for a message that is under way. See doc_wakeups.go.
type signalWait struct {
	b       *Branch
	id      string
	name    string
	decode  func(payload []byte) error
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
		w := &signalWait{b: b, id: id, name: spec.Name, decode: spec.Decode, timeout: spec.Timeout}
		if row, err = w.run(row); err != nil {
			return nil, err
		}
	}
	b.passed(row)
	if row.ErrorKind != "" {
		return nil, b.e.errors.Recorded(row, "")
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
	caughtUp := false // the messages were read from the table after the timeout
	for {
		found := w.look()
		switch {
		case found.message != nil:
			if row := w.take(found.message); row != nil {
				return row, nil
			}
		case found.more:
			if err := w.read(); err != nil {
				return nil, err
			}
		case w.timeout > 0 && begun == nil:
			begun = w.begin(found.past)
			w.until = begun.WakeAt
		case found.late || caughtUp:
			return w.timeOut()
		case w.until.IsZero() || e.now().Before(w.until):
			if err := b.waitFor(&wait{until: w.until, why: w.why(), need: 1}, w.arrival(), found.past); err != nil {
				return nil, err
			}
		default: // a message that was stored in time may not have been delivered yet
			if err := w.read(); err != nil {
				return nil, err
			}
			caughtUp = true
		}
	}
}

func (w *signalWait) why() string { return "signal " + w.name }

// arrival returns the event of an arriving message.
func (w *signalWait) arrival() *event {
	w.b.e.Lock()
	defer w.b.e.Unlock()
	return w.b.e.arrivalLocked(w.name)
}

// A look is what a wait has found in the inbox.
type look struct {
	message *store.Signal // the oldest, which the wait now holds; nil if it may take none
	late    bool          // the oldest message arrived too late, so none can arrive in time any more
	more    bool          // the table may have messages that the inbox lacks
	past    int           // the number of arrivals
}

// look removes the oldest message from the inbox, if it has arrived in time.
func (w *signalWait) look() (found look) {
	b, e := w.b, w.b.e
	e.Lock()
	defer e.Unlock()
	if !e.underWayLocked() {
		runtime.Goexit()
	}
	found.past = e.arrivalLocked(w.name).fired
	if b.hasLost() || b.ctx.Err() != nil { // a loser takes no messages
		return found
	}
	found.message, found.late, found.more = e.takeMessageLocked(w.name, w.until)
	return found
}

// take decodes the message and returns its record. It returns nil if the branch has lost a race meanwhile, which gives
// the message back, or if the message does not decode, which sets it aside.
func (w *signalWait) take(g *store.Signal) *store.StepRow {
	var wrong error
	if w.decode != nil {
		wrong = w.decode(g.Payload) // code of the application, so without the mutex
	}
	row, aside := w.settle(g, wrong)
	if aside {
		w.b.e.log().Warn("kagzi: a message does not decode and is set aside", "signal", g.Name, "message_id", g.ID,
			"error", wrong)
	}
	return row
}

// settle decides what becomes of a message that was decoded; wrong says why it could not be. The record is deferred: if
// the process dies before it is written, nothing that follows from the message is recorded either, and a replay takes
// the message again.
func (w *signalWait) settle(g *store.Signal, wrong error) (row *store.StepRow, aside bool) {
	b, e := w.b, w.b.e
	e.Lock()
	defer e.Unlock()
	switch {
	case !e.underWayLocked():
		runtime.Goexit()
	case b.hasLost() || b.ctx.Err() != nil: // whatever its type makes of the message
		e.putBackLocked([]*store.Signal{g})
		return nil, false
	case wrong != nil:
		e.setAsideLocked(g, wrong)
		return nil, true
	}
	r := e.newRecord(w.id, store.KindSignal, store.Completed, 1, 1)
	r.Output, r.Input, r.Sequence, r.Signal, r.EndedAt, r.Read = g.Payload, g.Headers, g.Sequence, g.Name, g.ReceivedAt,
		g.ReceivedAt
	if b.now.After(r.EndedAt) {
		r.EndedAt = b.now
	}
	b.deferLocked(r, g)
	done := r.StepRow // a copy: the record belongs to the flush now
	done.FinishedAt = r.EndedAt
	return &done, false
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

// read reads messages of the signal from the table. If the database is away, it tries again until it succeeds.
func (w *signalWait) read() error {
	b, e := w.b, w.b.e
	for failures := 0; ; failures++ {
		e.exitIfStopped()
		if b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
		err := e.readMessages(w.name)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(outage.PauseAfter(err, failures)):
		case <-e.whenDone():
		}
	}
}
