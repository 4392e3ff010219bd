package replay

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// errLostCall is why a step is in doubt of which the history has the intent alone.
var errLostCall = failure.Of(kind.InDoubt, errors.New("the worker was lost before the step's outcome was recorded"))

// A doubt is an attempt of a step with AtMostOnce that was called, and of which it is not known what the call has done.
// Only the branch's goroutine uses it. See doc_doubt.go.
type doubt struct {
	*stepCall
	row      store.StepRow // as the table has it
	resolved *store.Record // what is recorded in the end. Set by resolution.
}

// executeOnce makes an attempt of a step with AtMostOnce.
func (s *stepCall) executeOnce(ctx context.Context) (*store.StepRow, error) {
	b, e := s.b, s.e
	b.hides() // the intent shows the attempt from its beginning
	b.showsLittle(s.underWay(ctx))
	r := s.newRecord(store.Running)
	r.ErrorKind = string(kind.InDoubt) // if nothing more is written of the call
	b.record(r)
	s.called, s.intended = false, r.StartedAt
	ended := r.Outcome != store.Done // there is no intent
	defer func() {
		if !s.called && !ended {
			b.enqueueAnyway(withdrawal(s))
		}
	}()
	e.Failpoint("after intent", e.RunID)
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	begun := time.Now()
	data, err := s.callUser(ctx, nil)
	b.hides()
	class := e.errors().Classify(err)
	putOff := s.called && !leavesDoubt(class, ctx, err) && s.putsOff(err)
	s.releaseAfter(err)
	switch {
	case putOff && !b.hasLost():
		r := withdrawal(s)
		r.ErrorKind, r.Error = string(class.Kind), class.Text(err)
		row := b.record(r)
		e.exitIfStopped()
		return row, b.Err()
	case !s.called: // an interceptor has refused it, or its input could not be encoded
		ended = true
	case leavesDoubt(class, ctx, err):
		d := doubt{stepCall: s, row: r.StepRow}
		d.begin(err, b.Err() != nil)
		e.exitIfStopped()
		return &d.row, b.Err()
	case b.hasLost():
		b.enqueueAnyway(s.outcome(ctx, begun, data, err)) // else it would be in doubt
		return nil, errBranchCancelled
	}
	return s.recordOutcome(ctx, begun, data, err)
}

// failsBy notes that the branch is given the step's failure.
func failsBy(s *stepCall) {
	s.e.Lock()
	defer s.e.Unlock()
	s.b.failsLocked(s.id).keep(s.spec.AtMostOnce)
}

// onceEnded returns when the attempt ended that is about to be recorded, by the database's clock. It is zero for one
// without an intent: the database says it then.
func (s *stepCall) onceEnded() time.Time {
	now := s.e.Now()
	if s.intended.IsZero() || s.intended.After(now) {
		return s.intended
	}
	return now
}

// outcome returns the record of a call that has ended after its branch.
func (s *stepCall) outcome(ctx context.Context, begun time.Time, data []byte, err error) *store.Record {
	r := s.newRecord(store.Completed)
	r.Elapsed, r.Output, r.EndedAt = time.Since(begun), data, s.onceEnded()
	if err != nil {
		s.fail(ctx, r, err)
	}
	return r
}

// withdrawal records that the function was not called although the intent is written: a worker that gives the run up
// leaves no doubt. The next attempt calls it. An attempt that a limit puts off is withdrawn, too, with its own error.
func withdrawal(s *stepCall) *store.Record {
	r := s.newRecord(store.Failed)
	r.ErrorKind, r.Error, r.Wake = string(kind.Cancelled), "the function was not called: the run was stopped before", 0
	r.FirstAttempt++ // it uses up none
	return r
}

// leavesDoubt reports whether err, which is of the class and with which the function has returned, does not say that
// the call had no effect. Only an error that is marked says that, and not that of a function which was interrupted, or
// has panicked.
func leavesDoubt(c failure.Class, ctx context.Context, err error) bool {
	return err != nil && (!c.Marked || ctx.Err() != nil || c.Kind == kind.Panic || c.Kind == kind.Cancelled ||
		c.Kind == kind.InDoubt)
}

// begin marks the attempt as in doubt because of err. left says that the branch is over, and does not wait until it is
// known what the call has done.
func (d *doubt) begin(err error, left bool) {
	class := d.e.errors().Classify(err)
	d.row.ErrorKind, d.row.Error = string(class.Kind), cmp.Or(class.Text(err), string(class.Kind))
	d.mark(left)
	d.e.log().Warn("kagzi: step is in doubt", "step", d.id, "attempt", d.attempt, "kind", class.Kind, "error",
		text.OneLine(d.row.Error), "reconciles", d.spec.Reconciles)
}

// mark writes that the attempt is in doubt.
func (d *doubt) mark(left bool) { d.b.enqueueAnyway(d.marked(left)) }

func (d *doubt) marked(left bool) *store.Record {
	d.row.Permanent = left
	r := d.newRecord(store.Running)
	r.Position, r.ErrorKind, r.Error, r.Permanent = d.row.Position, d.row.ErrorKind, d.row.Error, left
	return r
}

// settleDoubt waits until it is known what the call of an attempt has done, whose intent is row, and returns the record
// that says so.
func (s *stepCall) settleDoubt(row *store.StepRow) (settled *store.StepRow, err error) {
	s.attempt, s.first, s.position = row.Attempt, row.FirstAttempt, row.Position
	d := &doubt{stepCall: s, row: *row}
	if row.Error == "" {
		d.begin(errLostCall, false)
	}
	if row.Permanent { // nothing has waited: Resolve may have recorded the outcome since
		if now := s.b.record(d.marked(false)); now.Status != store.Running {
			return now, nil
		}
	}
	settled, err = d.wait()
	if err != nil { // the branch is over
		d.mark(true)
		return nil, err
	}
	return settled, nil
}

func (d *doubt) wait() (*store.StepRow, error) {
	ask := d.reconcile
	if !d.spec.Reconciles {
		ask = nil
	}
	settled, err := resolve(d.b, d.id, store.DoubtName(d.e.RunID, d.b.keyOf(d.id), d.attempt), d, ask)
	if err != nil || d.resolved.Wake < 0 {
		return settled, err
	}
	err = d.b.writeAll()
	settled.WakeAt = d.resolved.WakeAt // the database says when the next attempt may begin
	return settled, err
}

func (d *doubt) waitsFor() waits.Wait { return waits.Wait{Kind: waits.Doubt, Name: d.id} }

// reconcile asks the application what the call has done. If it knows, reconcile sends that to the run, unless an
// operator was faster.
func (d *doubt) reconcile(context.Context, string, int) (soon bool, err error) {
	output, happened, err := d.callReconcile()
	if err != nil {
		d.e.log().Warn("kagzi: step stays in doubt", "step", d.id, "error", text.OneLine(failure.Text(err)))
		return false, nil
	}
	a := store.Answer{State: store.AnswerNotSent}
	if happened {
		a.State, a.Output = store.AnswerReplied, output
	}
	return false, d.e.Hints.SendReply(context.Background(), a.Resolution(d.e.RunID, d.b.keyOf(d.id), d.attempt))
}

func (d *doubt) callReconcile() (output []byte, happened bool, err error) {
	d.e.exitUnlessHeld(d.id)
	ctx, cancel := d.stepCall.begin()
	defer cancel()
	d.b.showsLittle(d.underWay(ctx))
	d.b.beginFunction()
	defer func() {
		d.b.endFunction()
		d.b.hides()
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
	}()
	v, happened, err := d.spec.Function.Reconcile(ctx)
	if err == nil {
		err = d.b.misusedInFunction()
	}
	if err == nil && happened {
		output, _, err = d.spec.Function.Encode(d.id, v)
	}
	return output, happened, err
}

// resolution returns the record of the attempt, with what the message says of its call, and why the message cannot say
// that. A compensation is deferred before: from then on a cancel undoes the step.
func (d *doubt) resolution(g *store.Signal) (r *store.Record, wrong error) {
	a := store.AnswerOf(g.Headers, g.Payload)
	r = d.newRecord(store.Failed)
	r.EndedAt = d.b.notBefore(g.ReceivedAt)
	switch a.State {
	case store.AnswerReplied:
		wrong = d.spec.Function.Decodes(a.Output)
		if over := d.b.hasLost() || d.b.Err() != nil; wrong == nil && d.spec.Compensation != nil && !over {
			d.compensation = d.spec.Compensation(a.Output).of(d.id)
			for _, c := range d.registration() {
				d.b.deferRecord(c)
			}
		}
		r.Status, r.Output = store.Completed, a.Output
	case store.AnswerRefused:
		r.ErrorKind, r.Error, r.Output, r.Permanent = a.ErrorKind, a.Error, a.Output, true
	default:
		r.ErrorKind, r.Error = d.row.ErrorKind, d.row.Error
		pause, again := nextAttempt(failure.Class{Kind: kind.Kind(r.ErrorKind)}, d.spec.Retry, d.attempt-d.first+1)
		switch {
		case a.ByPerson():
			r.Wake = 0
		case again:
			r.Wake = pause
		default:
			r.Permanent = true
		}
	}
	d.resolved = r
	return r, wrong
}
