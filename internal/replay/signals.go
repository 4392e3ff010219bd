package replay

import (
	"context"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A SignalSpec describes a wait for a message. Signals, requests, answers to requests and events share the wait, its
// timeout and its place in the inbox: they differ by the kind of the record and by the form of the names.
type SignalSpec struct {
	Kind    string        // of the record: store.KindSignal, store.KindRequest, store.KindAsk or store.KindEvent
	Name    string        // of the messages, with the key, as they are stored; with Ask it follows from the step
	Step    string        // name of the wait's record
	BadName error         // why the name is invalid; nil if it is valid
	Invalid error         // why the rest of the call is invalid; nil if it is valid
	Timeout time.Duration // zero: none

	// Decode decodes a payload. Of a message that is read it may also say why the payload is invalid.
	Decode func(payload []byte, fresh bool) error

	// Ask, of a wait for an answer or for an event, says what the step waits for, unless that was said, and sends it to
	// the run if it is there. It is called when the wait begins in an execution, and again after pauses, in case the
	// message was lost on its way. soon asks for a short pause. failures says how often in a row it has returned an
	// error.
	Ask func(ctx context.Context, step string, failures int) (soon bool, err error)

	Within time.Duration // after which Ask is called again, because no answer may come later; zero: any time
	Awaits string        // name of what a wait with Ask waits for; empty: the step
}

// A signalWait is a wait for a message that is under way. See doc_wakeups.go.
type signalWait struct {
	e     *Run
	b     *Branch
	id    string
	spec  *SignalSpec
	until time.Time // when it times out; the zero time: never
	taken bool      // a message was decoded, and is the result
	asks  asking    // of a wait for an answer
	of    resolver  // what the message resolves; nil: the wait is an operation of its own
}

// A resolver is an operation that waits for a message, and records what that says.
type resolver interface {
	// waitsFor says what it waits for.
	waitsFor() waits.Wait
	// resolution returns its record with the message, and why the message does not decode.
	resolution(g *store.Signal) (r *store.Record, wrong error)
}

// resolve waits on the branch for a message of that name to the operation id, and returns the row of its record. ask is
// as SignalSpec.Ask; nil: none.
func resolve(b *Branch, id, name string, of resolver,
	ask func(ctx context.Context, step string, failures int) (soon bool, err error),
) (*store.StepRow, error) {
	w := &signalWait{e: b.execution(), b: b, id: id, of: of, spec: &SignalSpec{
		Kind: store.KindFunction, Name: name, Ask: ask,
	}}
	return w.run(nil)
}

// Receive waits for a message and returns its record. If none arrived in time, it returns the recorded error.
func (b *Branch) Receive(spec SignalSpec) (*store.StepRow, error) {
	e := b.execution()
	defer b.operate().done()
	id, err := b.enter(spec.Step, spec.BadName)
	if err != nil {
		return nil, err
	}
	if spec.Ask != nil {
		spec.Name = store.AnswerName(b.keyOf(id))
	}
	w := &signalWait{e: e, b: b, id: id, spec: &spec}
	if spec.Invalid != nil {
		return nil, b.Misuse(failure.Wrap(spec.Invalid, "wait for %v", w.what()))
	}
	row := b.lookup(id, spec.Kind)
	if row == nil || row.Status == store.Running {
		if row, err = w.run(row); err != nil {
			return nil, err
		}
	}
	b.passed(row)
	if row.ErrorKind != "" {
		return nil, recordedError(e, row, "")
	}
	if w.taken {
		return row, nil
	}
	if row.Kind == store.KindRequest {
		e.hasRead(row.Sequence, store.Asked{Name: spec.Name})
	}
	if err := spec.Decode(row.Output, false); err != nil {
		e.nondeterministic(id, "%q has read a message, and %v; deploy code whose type decodes it, such as a "+
			"json.RawMessage, and Resume the run", id, err)
	}
	return row, nil
}

// run waits for a message. begun is the record of a wait with a timeout that has begun already, or nil.
func (w *signalWait) run(begun *store.StepRow) (*store.StepRow, error) {
	b, e := w.b, w.e
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
		case found.more, found.asks:
			if err := w.fetch(found); err != nil {
				return nil, err
			}
		case w.spec.Timeout > 0 && begun == nil:
			begun = w.begin(found.next)
			w.until = begun.WakeAt
		case found.late || caughtUp:
			return w.timeOut()
		case w.until.IsZero() || e.Now().Before(w.until):
			what := w.what()
			what.Until = w.ends()
			on := &wait{until: w.wakes(), looks: true, what: what, need: 1}
			if err := b.waitFor(on, found.next); err != nil {
				return nil, err
			}
		default: // a message that was stored in time may not have been delivered yet
			if err := w.catchUp(); err != nil {
				return nil, err
			}
			caughtUp = true
		}
	}
}

func (w *signalWait) what() waits.Wait {
	if w.of != nil {
		return w.of.waitsFor()
	}
	if w.spec.Kind == store.KindEvent {
		return waits.Wait{Kind: waits.Event, Name: w.spec.Awaits}
	}
	name, of := store.MessageName(w.spec.Name)
	return waits.Wait{Kind: waits.Kind(of), Name: name}
}

// record returns the record of the end of the wait, without its result.
func (w *signalWait) record() *store.Record {
	r := w.e.newRecord(w.id, w.spec.Kind, store.Completed, 1, 1)
	if w.spec.Kind == store.KindEvent {
		r.Awaited = w.b.keyOf(w.id)
	}
	return r
}

// A look is what a wait has found in the inbox.
type look struct {
	message *store.Signal // the oldest, which the wait now holds; nil if it may take none
	late    bool          // the oldest message arrived too late, so none can arrive in time any more
	more    bool          // the table may have messages that the inbox lacks
	asks    bool          // it is time to call Ask
	next    next          // the next arrival
}

// look removes the oldest message from the inbox, if it has arrived in time.
func (w *signalWait) look() (found look) {
	b, e := w.b, w.e
	e.Lock()
	defer e.Unlock()
	if !e.underWayLocked() {
		runtime.Goexit()
	}
	found.next = e.arrivalLocked(w.spec.Name).nextLocked()
	if b.isOver() { // a loser takes no messages
		return found
	}
	if w.spec.Kind == store.KindEvent {
		found.message, found.late, found.more = w.takeEventLocked()
	} else {
		found.message, found.late, found.more = e.takeMessageLocked(w.spec.Name, w.until)
	}
	found.asks = w.spec.Ask != nil && !e.Now().Before(w.asks.next)
	return found
}

// take decodes the message and returns its record. It returns nil if the branch has lost a race meanwhile, which gives
// the message back, or if the message does not decode, which sets it aside.
func (w *signalWait) take(g *store.Signal) *store.StepRow {
	r, wrong := w.read(g) // by code of the application, so without the mutex
	row, aside := w.settle(r, g, wrong)
	w.taken = row != nil
	if aside {
		name, _ := store.MessageName(g.Name)
		w.e.log().Warn("kagzi: a message does not decode and is set aside", "signal", name, "message_id", g.ID,
			"error", wrong)
	}
	return row
}

// read returns the record of the wait with the message, and why the message does not decode.
func (w *signalWait) read(g *store.Signal) (*store.Record, error) {
	if w.of != nil {
		return w.of.resolution(g)
	}
	r := w.record()
	r.Output, r.Input, r.EndedAt, r.Read = g.Payload, g.Headers, w.b.notBefore(g.ReceivedAt), g.ReceivedAt
	return r, w.spec.Decode(g.Payload, true)
}

// settle decides the fate of a message that was read; wrong says why it does not decode. r is its record. That is
// deferred: if the process dies before it is written, nothing that follows from the message is recorded either, and a
// replay takes the message again.
func (w *signalWait) settle(r *store.Record, g *store.Signal, wrong error) (row *store.StepRow, aside bool) {
	b, e := w.b, w.e
	e.Lock()
	defer e.Unlock()
	switch {
	case !e.underWayLocked():
		runtime.Goexit()
	case b.isOver(): // whatever its type makes of the message
		e.putBackLocked([]*store.Signal{g})
		return nil, false
	case !g.ExpiresAt.IsZero() && !e.Now().Before(g.ExpiresAt):
		e.setAsideLocked(g, store.ErrExpired)
		return nil, false
	case wrong != nil:
		e.setAsideLocked(g, wrong)
		return nil, true
	}
	r.Sequence, r.Signal = g.Sequence, g.Name
	b.deferLocked(r, g)
	if r.Kind == store.KindRequest {
		e.hasReadLocked(g.Sequence, store.Asked{Name: g.Name, ID: g.ID, ReplyTo: g.ReplyTo})
	}
	done := r.StepRow // a copy: the record belongs to the flush now
	done.FinishedAt = r.EndedAt
	return &done, false
}

// begin records that a wait with a timeout has begun. If the run is suspended for it, both are one transaction.
func (w *signalWait) begin(on next) *store.StepRow {
	r := w.e.newRecord(w.id, w.spec.Kind, store.Running, 1, 1)
	r.Wake = w.spec.Timeout
	if r.Wake > memoryWait && w.spec.Ask == nil {
		w.b.suspendWith(r, &wait{what: w.what(), need: 1}, on)
	}
	return w.b.record(r)
}

// timeOut records that no message arrived in time, and waits for the record: only then may the workflow act on it.
func (w *signalWait) timeOut() (*store.StepRow, error) {
	b, e := w.b, w.e
	if err := b.Err(); err != nil {
		return nil, err
	}
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	r := w.record()
	r.ErrorKind, r.Error, r.Permanent, r.EndedAt = string(kind.Timeout), "no message came in time", true, w.until
	switch w.spec.Kind {
	case store.KindEvent:
		r.Error = "the event was not published in time"
	case store.KindAsk:
		r.Error = "no answer came in time"
	}
	row := b.record(r)
	e.exitIfStopped()
	return row, nil
}

// fetch gets what look has not found in the inbox.
func (w *signalWait) fetch(found look) error {
	if found.more {
		return w.reread()
	}
	return w.ask()
}

// takeEventLocked is takeMessageLocked for an event. That is in time if it was published in time: its message may come
// later.
func (w *signalWait) takeEventLocked() (message *store.Signal, late, more bool) {
	message, _, more = w.e.takeMessageLocked(w.spec.Name, time.Time{})
	if message == nil || w.until.IsZero() {
		return message, false, more
	}
	if at := store.EventOf(message.Headers, nil).PublishedAt; at.After(w.until) {
		w.e.putBackLocked([]*store.Signal{message})
		return nil, true, false
	}
	return message, false, false
}

// catchUp gets what came before the time of the wait was over.
func (w *signalWait) catchUp() error {
	if w.spec.Kind == store.KindEvent { // the coordinator may not have sent the message yet
		if err := w.ask(); err != nil {
			return err
		}
	}
	return w.reread()
}

// reread reads messages of the signal from the table.
func (w *signalWait) reread() error {
	return w.untilDone(func(int) error { return w.e.readMessages(w.spec.Name) })
}

// untilDone calls f until it succeeds: the database may be away.
func (w *signalWait) untilDone(f func(failures int) error) error {
	b, e := w.b, w.e
	for failures := 0; ; failures++ {
		e.exitIfStopped()
		if err := b.Err(); err != nil {
			return err
		}
		err := f(failures)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(outage.PauseAfter(err, failures)):
		case <-e.Stopped():
		}
	}
}
