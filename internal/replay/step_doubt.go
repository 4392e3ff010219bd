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
)

// errLostCall is why a step is in doubt of which the history has the intent alone.
var errLostCall = failure.Of(kind.InDoubt, errors.New("the worker was lost before the step's outcome was recorded"))

// executeOnce makes an attempt of a step with AtMostOnce. See doc_doubt.go.
func (s *stepCall) executeOnce(ctx context.Context) (*store.StepRow, error) {
	b, e := s.b, s.e
	b.hides() // the intent shows the attempt from its beginning
	b.showsLittle(s.underWay(ctx))
	r := s.newRecord(store.Running)
	r.ErrorKind = string(kind.InDoubt) // if nobody writes more of the call
	intent := b.record(r)
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	s.called = false
	defer s.withdraw()
	e.Failpoint("after intent", e.RunID)
	if err := b.Err(); err != nil {
		return nil, err
	}
	begun := time.Now()
	data, err := s.callUser(ctx, nil)
	b.hides()
	s.releaseAfter(err)
	if !s.called || !s.leavesDoubt(ctx, err) {
		return s.recordOnce(ctx, begun, data, err)
	}
	doubt := *intent
	s.doubts(&doubt, err, b.Err() != nil)
	e.exitIfStopped()
	if err := b.Err(); err != nil {
		return nil, err
	}
	return &doubt, nil
}

// recordOnce is recordOutcome. The outcome of a branch that has lost a race is recorded, too: it would be in doubt.
func (s *stepCall) recordOnce(ctx context.Context, begun time.Time, data []byte, err error) (*store.StepRow, error) {
	if !s.b.hasLost() || !s.called {
		return s.recordOutcome(ctx, begun, data, err)
	}
	r := s.newRecord(store.Completed)
	r.Elapsed, r.Output = time.Since(begun), data
	if err != nil {
		s.fail(ctx, r, err)
	}
	s.b.outbox.enqueue(&write{records: []*store.Record{r}})
	return nil, errBranchCancelled
}

// withdraw records that the function was not called although the intent is written, if that is so: a worker that gives
// the run up leaves no doubt. The next attempt calls it.
func (s *stepCall) withdraw() {
	if s.called {
		return
	}
	r := s.newRecord(store.Failed)
	r.ErrorKind, r.Error, r.Wake = string(kind.Cancelled), "the function was not called: the run was stopped before", 0
	s.b.outbox.enqueue(&write{records: []*store.Record{r}})
}

// leavesDoubt reports whether err, with which the function has returned, does not say that the call had no effect. The
// error of a function that was interrupted, or has panicked, says nothing.
func (s *stepCall) leavesDoubt(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	c := s.e.errors().Classify(err)
	return !c.Permanent || ctx.Err() != nil || c.Kind == kind.Panic || c.Kind == kind.Cancelled || c.Kind == kind.InDoubt
}

// doubts marks row, and that in the table, as in doubt because of err. left says that the branch is over, and does not
// wait until it is known what the call has done.
func (s *stepCall) doubts(row *store.StepRow, err error, left bool) {
	class := s.e.errors().Classify(err)
	row.ErrorKind, row.Error, row.Permanent = string(class.Kind), cmp.Or(class.Text(err), string(class.Kind)), left
	s.mark(row)
	s.e.log().Warn("kagzi: step is in doubt", "step", s.id, "attempt", s.attempt, "kind", class.Kind, "error",
		text.OneLine(row.Error), "reconciles", s.spec.Reconciles)
}

// mark writes that the attempt is in doubt.
func (s *stepCall) mark(row *store.StepRow) {
	r := s.newRecord(store.Running)
	r.Position, r.ErrorKind, r.Error, r.Permanent = row.Position, row.ErrorKind, row.Error, row.Permanent
	s.b.outbox.enqueue(&write{records: []*store.Record{r}})
}

// settleDoubt waits until it is known what the call of an attempt has done, whose intent is row, and returns the record
// that says so.
func (s *stepCall) settleDoubt(row *store.StepRow) (settled *store.StepRow, err error) {
	s.attempt, s.first, s.position = row.Attempt, row.FirstAttempt, row.Position
	row = new(*row) // the history does not change
	s.doubt = row
	defer func() {
		if err != nil { // the branch is over
			row.Permanent = true
			s.mark(row)
		}
	}()
	switch {
	case row.Error == "":
		s.doubts(row, errLostCall, false)
	case row.Permanent:
		row.Permanent = false
		s.mark(row)
	}
	w := &signalWait{e: s.e, b: s.b, id: s.id, of: s, spec: &SignalSpec{
		Kind: store.KindFunction, Name: store.DoubtName(s.e.RunID, s.b.keyOf(s.id), s.attempt),
	}}
	if s.spec.Reconciles {
		w.spec.Ask = s.reconcile
	}
	if settled, err = w.run(nil); err != nil {
		return nil, err
	}
	if s.resolved.Wake >= 0 { // the database says when the next attempt may begin
		if err = s.b.writeAll(); err != nil {
			return nil, err
		}
		settled.WakeAt = s.resolved.WakeAt
	}
	return settled, nil
}

// reconcile asks the application what the call in doubt has done. If it knows, reconcile sends that to the run, unless
// a person was faster.
func (s *stepCall) reconcile(_ context.Context, _ string, _ int) (soon bool, err error) {
	output, happened, err := s.callReconcile()
	if err != nil {
		s.e.log().Warn("kagzi: step stays in doubt", "step", s.id, "error", text.OneLine(failure.Text(err)))
		return false, nil
	}
	a := store.Answer{State: store.AnswerNotSent}
	if happened {
		a.State, a.Output = store.AnswerReplied, output
	}
	return false, s.e.Hints.SendReply(context.Background(), a.Resolution(s.e.RunID, s.b.keyOf(s.id), s.attempt))
}

func (s *stepCall) callReconcile() (output []byte, happened bool, err error) {
	s.e.exitUnlessHeld(s.id)
	ctx, cancel := s.begin()
	defer cancel()
	s.b.showsLittle(s.underWay(ctx))
	s.b.beginFunction()
	defer func() {
		s.b.endFunction()
		s.b.hides()
		if v := recover(); v != nil {
			err = failure.OfPanic(v, debug.Stack())
		}
	}()
	v, happened, err := s.spec.Function.Reconcile(ctx)
	if err == nil {
		err = s.b.misusedInFunction()
	}
	if err == nil && happened {
		output, _, err = s.spec.Function.Encode(s.id, v)
	}
	return output, happened, err
}

// resolution returns the record of the attempt in doubt, with what the message says of its call, and why the message
// cannot say that. A compensation is deferred before: from then on a cancel undoes the step.
func (s *stepCall) resolution(g *store.Signal) (r *store.Record, wrong error) {
	a := store.AnswerOf(g.Headers, g.Payload)
	r = s.newRecord(store.Failed)
	r.EndedAt = s.b.notBefore(g.ReceivedAt)
	switch a.State {
	case store.AnswerReplied:
		if wrong = s.spec.Function.Decodes(a.Output); wrong == nil && s.spec.Compensation != nil {
			s.compensation = s.spec.Compensation(a.Output).of(s.id)
			for _, c := range s.registration() {
				s.b.deferRecord(c)
			}
		}
		r.Status, r.Output = store.Completed, a.Output
	case store.AnswerRefused:
		r.ErrorKind, r.Error, r.Output, r.Permanent = a.ErrorKind, a.Error, a.Output, true
	default:
		r.ErrorKind, r.Error = s.doubt.ErrorKind, s.doubt.Error
		pause, again := nextAttempt(failure.Class{Kind: kind.Kind(r.ErrorKind)}, s.spec.Retry, s.attempt-s.first+1)
		switch {
		case a.ByPerson():
			r.Wake = 0
		case again:
			r.Wake = pause
		default:
			r.Permanent = true
		}
	}
	s.resolved = r
	return r, wrong
}
