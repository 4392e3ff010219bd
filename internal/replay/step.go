package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A StepSpec describes a step.
type StepSpec struct {
	Name    string
	BadName error // why the name is invalid; nil if it is valid
	Invalid error // why the rest of the call is invalid; nil if it is valid

	Tx         bool // the step is transactional
	Isolation  pgx.TxIsoLevel
	Timeout    time.Duration // of an attempt; zero: none
	Retry      RetryPolicy
	Limits     []LimitUse   // what the step takes of its limits
	Repeatable bool         // the result may be used before it is written. See doc_steps.go.
	Result     reflect.Type // type of Call's result, for hooks of tests

	// Input encodes the step's input, which is recorded for people. It is nil if no input is recorded. invalid is
	// returned if the call is wrong; failed is the attempt's error.
	Input func() (input []byte, invalid, failed error)

	AtMostOnce bool // see doc_doubt.go
	Reconciles bool // Function.Reconcile may be called

	Function StepFunction
	// Compensation returns the compensation of a recorded result, or nil if the result cannot be decoded. It is nil if
	// the step has no compensation.
	Compensation func(output []byte) *Registration
}

// A LimitUse is what a step takes of a limit.
type LimitUse struct {
	Name  string
	Units int
}

// A StepFunction is a step's function and the type of its result.
type StepFunction interface {
	// Call calls the function. tx is nil if the step has no transaction.
	Call(ctx context.Context, tx pgx.Tx) (any, error)
	// Encode encodes the result of Call for the record id, and returns the result's compensation, or nil. Its error is
	// the attempt's.
	Encode(id string, result any) (output []byte, r *Registration, err error)
	// Reconcile finds out whether a call that is in doubt has happened, and with what result.
	Reconcile(ctx context.Context) (result any, happened bool, err error)
	// Decodes returns why the output is no result of the step; nil if it is one.
	Decodes(output []byte) error
}

// A stepCall is a durable step under way. Only the branch's goroutine uses it. See doc_steps.go.
type stepCall struct {
	e        *Run
	b        *Branch
	id       string
	position int64 // of the attempt in the run's order. Set by execute.
	spec     *StepSpec
	input    []byte // encoded; nil: there is none, or it is not encoded yet. Set by encodeInput.
	// why the input could not be encoded, which fails the attempt; nil if there is no such error. Set by encodeInput.
	unencoded error
	attempt   int // number of the attempt that is next or under way. Set by settleOrRetry.
	// first attempt of this series. A Resume, or an attempt of the run that forgets the failure, begins a new series.
	first        int
	permit       *heldPermit // of the limit; nil if the attempt has none. Set by acquire.
	uncounted    uncounted
	compensation *compensation // of the function's result; nil if there is none. Set by callUser.
	called       bool          // the attempt's function. Set by attemptOnce, reset by executeOnce.
	intended     time.Time     // when the intent of the attempt was written; zero: it has none. Set by executeOnce.
	// the record of compensation; nil if this call does not register it. Set by registration.
	registers  *store.Record
	checkpoint checkpoint // of its attempts
}

// Step executes a step, unless the history has its result, and returns the result's record: it makes attempts until one
// is final. It does not change spec.
func (b *Branch) Step(spec *StepSpec) (*store.StepRow, error) {
	defer b.operate().done()
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(spec.Invalid, spec.checkRepeatable()); err != nil {
		return nil, b.Misuse(failure.Wrap(err, "step %q", id))
	}
	s := &stepCall{e: b.execution(), b: b, id: id, spec: spec, attempt: 1, first: 1}
	for row := b.lookup(id, store.KindFunction); ; { // the step's latest record, or nil
		if row != nil && row.Status == store.Running && (spec.AtMostOnce || row.ErrorKind != "") {
			if row, err = s.settleDoubt(row); err != nil {
				return nil, err
			}
		}
		if row != nil {
			done, err := s.settleOrRetry(row)
			if done {
				s.pass(row)
				return row, err
			}
			if err != nil {
				return nil, err
			}
		}
		if row, err = s.execute(); err != nil {
			return nil, err
		}
	}
}

// settleOrRetry returns true if row, the record of an attempt, is the step's result. Otherwise it waits until the next
// attempt may begin, and prepares it.
func (s *stepCall) settleOrRetry(row *store.StepRow) (done bool, err error) {
	switch {
	case row.Status == store.Completed:
		return true, nil
	case row.Status == store.Running: // found in the history: its worker died. The attempt is made again.
		s.attempt, s.first = row.Attempt, row.FirstAttempt
	case !row.WakeAt.IsZero(): // another attempt follows
		if err := s.b.wait(row.WakeAt, waits.Wait{Kind: waits.Retry, Name: s.id}, next{}); err != nil {
			return false, err
		}
		s.attempt, s.first = row.Attempt+1, row.FirstAttempt
	case !s.e.forgot(row):
		if failure.IsGoexit(row.ErrorKind, row.Error) {
			runtime.Goexit() // as the function did, so that a replay ends here, too
		}
		failsBy(s)
		return true, recordedError(s.e, row, "")
	default:
		s.attempt, s.first = row.Attempt+1, row.Attempt+1
	}
	return false, nil
}

// execute makes one attempt and records its outcome. It returns neither record nor error if the attempt must be
// repeated because of the database.
func (s *stepCall) execute() (*store.StepRow, error) {
	// before begins: a replay without a record of the step must return the same error
	if err := s.encodeInput(); err != nil {
		return nil, err
	}
	// before begins: the answer to a record may say that the run is paused
	if err := s.awaitResults(); err != nil {
		return nil, err
	}
	if err := s.b.begins(); err != nil {
		return nil, err
	}
	failed, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.release(0)
	if err := s.announce(); err != nil {
		return nil, err
	}
	if err := s.awaitResults(); err != nil { // of other branches, meanwhile
		return nil, err
	}
	if _, paused := s.e.pause(); paused { // as the answer to such a result may have said: begins parks
		return nil, nil
	}
	s.position = s.e.nextPosition()
	if s.spec.Tx && failed == nil {
		return s.executeTx()
	}
	ctx, cancel := s.begin()
	defer cancel()
	begun := time.Now()
	// The table does not show transactional steps: a row committed meanwhile would fail each transaction of a stricter
	// isolation.
	s.b.shows(s.underWay(ctx), begun, s.b)
	defer s.b.hides()
	if failed != nil {
		return s.recordOutcome(ctx, begun, nil, failed)
	}
	if s.isLate() {
		return nil, nil
	}
	if s.spec.AtMostOnce {
		return s.executeOnce(ctx)
	}
	data, err := s.callUser(ctx, nil)
	s.b.hides() // or it would show an attempt whose end is being recorded
	if s.putsOff(err) {
		return nil, nil
	}
	s.releaseAfter(err)
	return s.recordOutcome(ctx, begun, data, err)
}

// encodeInput encodes the step's input once for all attempts. It returns an error if the call is wrong.
func (s *stepCall) encodeInput() error {
	if s.spec.Input == nil || s.input != nil {
		return nil
	}
	var invalid error
	s.input, invalid, s.unencoded = s.spec.Input()
	if invalid != nil {
		return s.b.Misuse(failure.Wrap(invalid, "step %q", s.id))
	}
	return nil
}

// newRecord returns a record of the attempt.
func (s *stepCall) newRecord(status string) *store.Record {
	r := s.e.newRecord(s.id, store.KindFunction, status, s.attempt, s.first)
	r.Position, r.Input = s.position, s.input
	return r
}

// begin returns the context of an attempt, with the step's timeout.
func (s *stepCall) begin() (context.Context, context.CancelFunc) {
	e := s.e
	ctx, cancel := context.WithCancel(s.b.context())
	if s.spec.Timeout > 0 {
		cancel()
		ctx, cancel = context.WithTimeoutCause(s.b.context(), s.spec.Timeout, s.timedOut())
	}
	s.checkpoint.next()
	ctx = e.stepContext(ctx, s.identity())
	e.Failpoint("before step", e.RunID)
	return ctx, cancel
}

func (s *stepCall) identity() StepIdentity {
	return StepIdentity{
		Run: s.b.RunID(), Workflow: s.e.Type, Step: s.id, Key: s.b.keyOf(s.id),
		Attempt: s.attempt, Try: s.checkpoint.try,
		Headers: s.b.Headers(), By: reporter{s},
	}
}

func (s *stepCall) underWay(ctx context.Context) attemptUnderWay {
	return attemptUnderWay{id: s.id, number: s.attempt, first: s.first, position: s.position, input: s.input, ctx: ctx}
}

// timedOut returns the failure of an attempt that exceeded the step's timeout.
func (s *stepCall) timedOut() error {
	return failure.Of(kind.Timeout, fmt.Errorf("step timed out after %v", s.spec.Timeout))
}

// recordOutcome records the outcome of the step's function, unless it failed because the branch's context ended: such
// an error says nothing about the step. It exits the goroutine if the execution has stopped.
func (s *stepCall) recordOutcome(ctx context.Context, begun time.Time, data []byte, err error) (*store.StepRow, error) {
	b, e := s.b, s.e
	e.Failpoint("after step", e.RunID)
	if err != nil {
		e.exitIfStopped()
		if err := b.Err(); err != nil {
			return nil, err
		}
	}
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	r := s.newRecord(store.Completed)
	r.Elapsed, r.EndedAt = time.Since(begun), s.onceEnded()
	if err != nil {
		s.fail(ctx, r, err)
	} else {
		r.Output = data
		for _, c := range forgetting(s) {
			b.deferRecord(c) // written with the step's record, as a registration is
		}
		if row := s.speculate(r); row != nil {
			e.exitIfStopped()
			return row, nil
		}
		for _, c := range s.registration() {
			b.deferRecord(c)
		}
	}
	row := b.record(r)
	e.Failpoint("after record", e.RunID)
	e.exitIfStopped()
	return row, nil
}

// fail makes r the record of a failed attempt: a final one, or one with the time of the next attempt.
func (s *stepCall) fail(ctx context.Context, r *store.Record, err error) {
	class := s.e.errors().Classify(err)
	failed := class.Kind
	if errors.Is(context.Cause(ctx), kind.Timeout) && (errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)) {
		failed = kind.Timeout
		err = failure.Of(failed, fmt.Errorf("%w (%v)", err, context.Cause(ctx)))
	} else if failed == kind.Cancelled && !class.Cancelled {
		// The step's context has not ended: the function cancelled a context of its own. That is a failure like any
		// other.
		failed = kind.Unknown
		err = failure.Of(failed, err)
	}
	defer func() {
		s.e.log().WarnContext(ctx, "kagzi: step failed", "step", s.id, "attempt", s.attempt, "kind", failed, "error",
			text.OneLine(r.Error), "again", r.Wake >= 0)
	}()
	class = s.e.errors().Classify(err)
	r.Status, r.ErrorKind, r.Error, r.Output = store.Failed, string(failed), class.Text(err), class.Details
	r.Permanent = class.Permanent
	if pause, again := nextAttempt(class, s.spec.Retry, s.attempt-s.first+1); again {
		r.Wake = pause
	}
}

// callUser calls the step's function, if this worker holds the run, and encodes the result. It turns a panic into an
// error. It cannot stop a Goexit: that fails the branch, and is recorded as the attempt's failure.
func (s *stepCall) callUser(ctx context.Context, tx pgx.Tx) (data []byte, err error) {
	s.e.exitUnlessHeld(s.id)
	if s.unencoded != nil {
		return nil, s.unencoded
	}
	returned := false
	s.b.beginFunction()
	s.checkpoint.begin(tx)
	defer func() {
		s.checkpoint.end()
		s.b.endFunction()
		if returned {
			return
		}
		if v := recover(); v != nil {
			data, err = nil, failure.OfPanic(v, debug.Stack())
		} else if s.spec.AtMostOnce && s.called {
			d := doubt{stepCall: s, row: s.newRecord(store.Running).StepRow}
			d.begin(failure.OfGoexit(), true)
		} else if !s.e.stopped() {
			r := s.newRecord(store.Failed)
			r.ErrorKind, r.Error = string(kind.Panic), failure.Text(failure.OfGoexit())
			s.b.enqueue(r)
		}
	}()
	if i := s.e.interceptors(); i.ofAttempts() {
		data, err = i.attempt(ctx, s.identity(), func(inner context.Context) ([]byte, error) {
			return s.attemptOnce(inner, tx, ctx)
		})
	} else {
		data, err = s.attemptOnce(ctx, tx, ctx)
	}
	returned = true
	return data, err
}

// attemptOnce calls the step's function with ctx and encodes its result. attempt is the attempt's context, from which
// ctx descends.
func (s *stepCall) attemptOnce(ctx context.Context, tx pgx.Tx, attempt context.Context) (data []byte, err error) {
	var v any
	s.called = true
	if hooks := s.e.Hooks; hooks != nil && hooks.Call != nil {
		v, err = hooks.Call(ctx, s.id, s.spec.Result, func() (any, error) { return s.spec.Function.Call(ctx, tx) })
	} else {
		v, err = s.spec.Function.Call(ctx, tx)
	}
	if err == nil {
		err = s.b.misusedInFunction() // recorded, because a replay does not call the function
	}
	if at, ok := attempt.Deadline(); err == nil && ok && !time.Now().Before(at) && !s.spec.AtMostOnce {
		err = s.timedOut()
	}
	if err == nil {
		var r *Registration
		data, r, err = s.spec.Function.Encode(s.id, v)
		s.compensation = r.of(s.id)
		if err != nil && s.spec.AtMostOnce { // the call has happened
			err = failure.Of(kind.InDoubt, err)
		}
	}
	return data, err
}

// announce records that the step may register a compensation, unless one is registered under its name. A cancel that
// finds the record waits for the step. See store/doc_compensations.go.
func (s *stepCall) announce() error {
	if s.spec.Compensation == nil {
		return nil
	}
	id := store.CompensationID(s.id)
	r := s.b.registrations(id)
	if r.areKnown() {
		return nil
	}
	rec := s.b.nextRegistration(r, id, nil)
	s.b.record(rec)
	if rec.Outcome == store.Undecided { // the branch has lost a race: the step could not be compensated
		return errBranchCancelled
	}
	r.recorded(rec)
	return nil
}

// registration returns the record of the step's compensation, to be written with the step's success. It returns none if
// there is no compensation or it is recorded already.
func (s *stepCall) registration() []*store.Record {
	if s.compensation == nil {
		return nil
	}
	id := store.CompensationID(s.id)
	r := s.b.registrations(id)
	if r.isNext(s.compensation) {
		return nil
	}
	s.registers = s.b.nextRegistration(r, id, s.compensation)
	return []*store.Record{s.registers}
}

// pass updates the branch and its registrations after the step has ended with row.
func (s *stepCall) pass(row *store.StepRow) {
	if s.spec.Compensation != nil && row.Status == store.Completed && row.RunAttempt > 0 {
		r := s.b.registrations(store.CompensationID(s.id))
		switch {
		case s.registers != nil:
			r.recorded(s.registers)
		case r.areAllPassed():
			// new code in front of the step has registered a compensation since: that is the last one
			s.registerAgain(r, row)
		default:
			r.passNext()
		}
	}
	s.b.passed(row)
}

// registerAgain registers the compensation of the recorded result, unless it is registered.
func (s *stepCall) registerAgain(r *registrations, row *store.StepRow) {
	if c := s.spec.Compensation(row.Output).of(s.id); c != nil && !r.passes(c) {
		s.b.register(r, c)
	}
}
