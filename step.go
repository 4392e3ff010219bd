package kagzi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// visibleAfter is how long a step runs before its attempt is shown in the table.
const visibleAfter = time.Second

// Step executes fn once and remembers its result under name. fn's result must come through its return value:
// in a replay fn is not called. fn's ctx ends with the step's [Timeout], with the run's cancellation and when
// the worker must give the run up; [CurrentStep] tells fn which step it is. It carries no values of the ctx of
// [Worker.Run]. If fn returns after the Timeout, the attempt has failed with [KindTimeout], even if fn returned a result.
//
// A name has at most 255 bytes, without # and /. One that comes again on the same branch is counted, "pay" and
// "pay#2": steps of one name are told apart by their order alone.
//
// A failed attempt is repeated as the step's [RetryPolicy] says; the wait between attempts holds nothing. When
// no attempt is left, or the error is [Permanent] or of a kind that is, Step returns a *[StepError]. It returns
// another error only if the call is wrong, or if the branch was cancelled.
func Step[T any](ctx Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, _ pgx.Tx) (any, error) { return fn(ctx) }
	}
	return durable[T](ctx, name, call, opts, false)
}

// StepTx is [Step] with a transaction of the application's database: what fn does in tx commits together with
// the record that the step is done, or not at all: to roll back, return an error. fn must not end tx. Commit and Rollback
// of tx do nothing and return an error; if fn has called Rollback and returns no error, the attempt fails for good, because
// what fn has done was to be both undone and kept. That holds for a deferred Rollback, too, which cannot be told from
// another: leave it out. Savepoints, by tx.Begin, are fn's own.
//
// The transaction is READ COMMITTED unless an [Isolation] says otherwise. It holds a connection of the pool while fn runs. If
// the database refuses the commit, for a deferred constraint or a serialization failure, the attempt has failed.
//
// If the transaction loses its connection, the server cannot go on with it, or the record waits in vain for a lock of the
// run, nothing was committed: fn is called again, and the attempt is not counted, for up to a minute. Return the error that
// pgx gave, wrapped or not, for that to be seen.
// After a minute of such losses the attempt has failed like any other.
func StepTx[T any](ctx Context, name string, fn func(context.Context, pgx.Tx) (T, error), opts ...StepOption) (T, error) {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, tx pgx.Tx) (any, error) { return fn(ctx, tx) }
	}
	return durable[T](ctx, name, call, opts, true)
}

// Do is [Step] for a function without result. A variable that fn sets outside of itself is empty after a replay:
// what the workflow needs later, return from a [Step].
func Do(ctx Context, name string, fn func(context.Context) error, opts ...StepOption) error {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, _ pgx.Tx) (any, error) { return nil, fn(ctx) }
	}
	_, err := durable[any](ctx, name, call, opts, false)
	return err
}

// DoTx is [StepTx] for a function without result.
func DoTx(ctx Context, name string, fn func(context.Context, pgx.Tx) error, opts ...StepOption) error {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, fn(ctx, tx) }
	}
	_, err := durable[any](ctx, name, call, opts, true)
	return err
}

// StepInfo is what a step function may ask of its ctx.
type StepInfo struct {
	Run      RunID
	Workflow string
	Step     string // with its branches: "ship/pack"
	Attempt  int    // from 1; it goes on in a new attempt of the run and after Resume
	Key      string // the same in every attempt of this step: an idempotency key for other services
}

// A stepScope is what the context of one attempt of a step knows.
type stepScope struct {
	StepInfo
	sends sends
}

type stepKey struct{}

// scopeOf returns nil outside of a step.
func scopeOf(ctx context.Context) *stepScope {
	scope, _ := ctx.Value(stepKey{}).(*stepScope)
	return scope
}

// CurrentStep returns the step that ctx belongs to, the zero StepInfo outside of one.
func CurrentStep(ctx context.Context) StepInfo {
	if scope := scopeOf(ctx); scope != nil {
		return scope.StepInfo
	}
	return StepInfo{}
}

type stepFunc func(context.Context, pgx.Tx) (any, error)

// A resultType is what a step's function returns.
type resultType struct {
	of     reflect.Type            // nil if there is no result
	decode func(data []byte) error // of an encoded result, to see that it can be
	value  func() any              // what was decoded last
}

// durable is a step with its types put back on: the result comes decoded from its record, the first time too.
func durable[T any](ctx Context, name string, call stepFunc, opts []StepOption, tx bool) (T, error) {
	var zero T
	b, err := branchOf(ctx)
	if err != nil {
		return zero, err
	}
	var out T
	var from []byte // what out was decoded from
	decode := func(data []byte) error {
		var v T
		err := b.e.s.cfg.client.decode(data, &v)
		if err == nil {
			out, from = v, data
		}
		return err
	}
	row, err := b.step(name, call, resultType{reflect.TypeFor[T](), decode, func() any { return out }}, opts, tx)
	if err != nil {
		return zero, err
	}
	if from != nil && bytes.Equal(from, row.Output) { // it was decoded before it was recorded
		return out, nil
	}
	if err := decode(row.Output); err != nil {
		b.e.nondeterministic("the recorded result of step %q does not decode into %v: %v", row.StepID, reflect.TypeFor[T](), err)
	}
	return out, nil
}

// A stepCall is one durable step under way.
type stepCall struct {
	b         *branch
	id        string
	position  int64 // of the attempt, in the run's order
	call      stepFunc
	result    resultType // of call
	cfg       stepConfig
	tx        bool
	attempt   int
	first     int // attempt of this series
	away      awayCount
	undo      *compensation // of what the function has returned; nil if the step has none
	registers *store.Record // of undo
}

// step returns the record of the step's result, executing it as often as it takes.
func (b *branch) step(name string, call stepFunc, result resultType, opts []StepOption, tx bool) (*store.StepRow, error) {
	s, err := b.newStep(name, call, result, opts, tx)
	if err != nil {
		return nil, err
	}
	return s.run(b.lookup(s.id, store.KindFunction))
}

func (b *branch) newStep(name string, call stepFunc, result resultType, opts []StepOption, tx bool) (*stepCall, error) {
	id, err := b.enter("step", name)
	if err != nil {
		return nil, err
	}
	cfg, err := stepOptions(opts, tx)
	if err == nil && call == nil {
		err = errors.New("kagzi: the function is nil")
	}
	if err = cmp.Or(err, cfg.undoneBy.validate(result.of)); err != nil {
		return nil, b.misuse(failure.Wrap(err, "step %q", id))
	}
	return &stepCall{b: b, id: id, call: call, result: result, cfg: cfg, tx: tx, attempt: 1, first: 1}, nil
}

// run executes the step as often as it takes, given its latest record; nil if there is none.
func (s *stepCall) run(row *store.StepRow) (_ *store.StepRow, err error) {
	for {
		if row != nil {
			done, err := s.after(row)
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

// after takes in the record of an attempt: it returns true if that is the step's result, and else prepares the
// next attempt, having waited for its time.
func (s *stepCall) after(row *store.StepRow) (done bool, err error) {
	switch {
	case row.Status == store.Completed:
		return true, nil
	case row.Status == store.Running: // found in the history: its worker died. The attempt is made again.
		s.attempt, s.first = row.Attempt, row.FirstAttempt
	case !row.WakeAt.IsZero(): // another attempt follows
		if err := s.b.wait(row.WakeAt, "retry "+s.id, nil, 0); err != nil {
			return false, err
		}
		s.attempt, s.first = row.Attempt+1, row.FirstAttempt
	case !s.b.e.forgot(row):
		s.b.fails(s.id)
		return true, s.b.e.s.cfg.Errors.Recorded(row, "")
	default:
		s.attempt, s.first = row.Attempt+1, row.Attempt+1
	}
	return false, nil
}

// execute makes one attempt and records what came of it. It returns neither record nor error if the attempt is
// to be made again, because the database was away.
func (s *stepCall) execute() (*store.StepRow, error) {
	if err := s.b.begins(); err != nil {
		return nil, err
	}
	if err := s.announce(); err != nil {
		return nil, err
	}
	s.position = s.b.e.nextPosition()
	if s.tx {
		return s.executeTx()
	}
	ctx, cancel := s.begin()
	defer cancel()
	// Not of a transactional step: a row committed meanwhile would fail a transaction of a stricter isolation, each time.
	defer s.showLater()()
	begun := time.Now()
	data, err := s.callUser(ctx, nil)
	return s.settle(ctx, begun, data, err)
}

// newRecord prepares the record of the attempt.
func (s *stepCall) newRecord(status string) *store.Record {
	r := s.b.e.newRecord(s.id, store.KindFunction, status, s.attempt, s.first)
	r.Position = s.position
	return r
}

// begin returns the context of an attempt.
func (s *stepCall) begin() (context.Context, context.CancelFunc) {
	b, e := s.b, s.b.e
	ctx, cancel := context.WithCancel(b.ctx)
	if s.cfg.timeout > 0 {
		cancel()
		ctx, cancel = context.WithTimeoutCause(b.ctx, s.cfg.timeout, s.timedOut())
	}
	ctx = context.WithValue(ctx, stepKey{}, &stepScope{StepInfo: StepInfo{
		Run: e.runID, Workflow: e.run.Type, Step: s.id, Attempt: s.attempt, Key: string(e.runID) + "/" + s.id,
	}})
	e.s.failpoint("before step", e.run.RunID)
	return ctx, cancel
}

// showLater shows the attempt in the table if it is not over soon, which the function returned says.
func (s *stepCall) showLater() (over func() bool) {
	attempt, first, position := s.attempt, s.first, s.position // the step may be at its next attempt when the timer's function runs
	return time.AfterFunc(visibleAfter, func() {
		r := s.b.e.newRecord(s.id, store.KindFunction, store.Running, attempt, first)
		r.Position, r.Elapsed = position, visibleAfter
		s.b.e.show(r)
	}).Stop
}

// timedOut is the failure of an attempt that took too long.
func (s *stepCall) timedOut() error {
	return failure.Of(failure.KindTimeout, fmt.Errorf("step timed out after %v", s.cfg.timeout))
}

// settle records the outcome of user code, unless the code failed because its context ended: that says nothing of
// the step. It exits the goroutine if the execution has ended.
func (s *stepCall) settle(ctx context.Context, begun time.Time, data []byte, err error) (*store.StepRow, error) {
	b, e := s.b, s.b.e
	e.s.failpoint("after step", e.run.RunID)
	if err != nil {
		e.exitIfStopped()
		if b.ctx.Err() != nil {
			return nil, context.Cause(b.ctx)
		}
	}
	if b.muted() {
		return nil, errBranchCancelled
	}
	r := s.newRecord(store.Completed)
	r.Elapsed = time.Since(begun)
	if err != nil {
		s.fail(ctx, r, err)
	} else {
		r.Output = data
		for _, c := range s.registration() {
			b.deferRecord(c) // it goes with the step's
		}
	}
	row := b.record(r)
	e.s.failpoint("after record", e.run.RunID)
	e.exitIfStopped()
	return row, nil
}

// fail makes r the record of a failed attempt: with the time of the next one, or final.
func (s *stepCall) fail(ctx context.Context, r *store.Record, err error) {
	class := s.b.e.s.cfg.Errors.Classify(err)
	kind := class.Kind
	if failure.IsOf(context.Cause(ctx), failure.KindTimeout) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		kind = failure.KindTimeout
		err = failure.Of(kind, fmt.Errorf("%w (%v)", err, context.Cause(ctx)))
	} else if kind == failure.KindCancelled && !class.Cancelled {
		// The step's context has not ended. One that the function made, and cancelled, says no more than any other failure.
		kind = failure.KindUnknown
		err = failure.Of(kind, err)
	}
	r.Status, r.ErrorKind, r.Error = store.Failed, kind, failure.Text(err)
	defer func() {
		s.b.e.log().Warn("kagzi: step failed", "step", s.id, "attempt", s.attempt, "kind", kind, "error", text.OneLine(r.Error), "again", r.Wake >= 0)
	}()
	class = s.b.e.s.cfg.Errors.Classify(err)
	r.Permanent = class.Permanent
	if r.Permanent || !s.cfg.policy.allows(s.attempt-s.first+1) {
		return
	}
	r.Wake = s.cfg.policy.backoff(s.attempt-s.first+1, rand.Float64())
	r.Wake = max(r.Wake, class.After)
}

// callUser calls the step's function, if the run is this worker's, and encodes what it returns. A panic is an error. A
// Goexit cannot be stopped: it is recorded as the attempt's failure on the way out, and fails the branch.
func (s *stepCall) callUser(ctx context.Context, tx pgx.Tx) (data []byte, err error) {
	s.b.e.exitUnlessHeld(s.id)
	returned := false
	s.b.misusedInStep = nil
	s.b.inStep.Store(true)
	defer func() {
		s.b.inStep.Store(false)
		if returned {
			return
		}
		if v := recover(); v != nil {
			data, err = nil, failure.OfPanic(v, debug.Stack())
		} else if !s.b.e.stopped() {
			r := s.newRecord(store.Failed)
			r.ErrorKind, r.Error = failure.KindPanic, failure.Text(failure.OfGoexit())
			s.b.enqueue(r)
		}
	}()
	var v any
	if hooks := s.b.e.s.cfg.Hooks; hooks != nil {
		v, err = hooks.Call(ctx, s.id, s.result.of, func() (any, error) { return s.call(ctx, tx) })
	} else {
		v, err = s.call(ctx, tx)
	}
	if err == nil {
		err = s.b.misusedInStep // the record must say so: in a replay the function is not called
	}
	if at, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(at) {
		err = s.timedOut()
	}
	if err == nil {
		data, err = s.encode(v)
	}
	returned = true
	return data, err
}

// encode returns the function's result as it is recorded.
func (s *stepCall) encode(v any) ([]byte, error) {
	data, err := s.b.e.s.cfg.client.encode(what{"result of step", s.id}, v)
	if err != nil {
		return nil, unstorable(err)
	}
	if s.result.decode != nil {
		if err := s.result.decode(data); err != nil {
			return nil, failure.Permanent(failure.KindValidation, undecodable(what{"result of step", s.id}, v, s.result.of, err))
		}
	}
	if undo := s.cfg.undoneBy; undo.call != nil {
		if s.undo, err = s.b.e.s.cfg.client.newCompensation(store.CompensationID(s.id), undo.call(v)); err != nil {
			return nil, Permanent(failure.Wrap(err, "compensation of step %q", s.id))
		}
	}
	return data, nil
}

// executeTx makes one attempt of a transactional step. The record is its last statement before the commit, so
// that the run's row is locked briefly. It commits only if the record was written: then nobody else has a result.
func (s *stepCall) executeTx() (*store.StepRow, error) {
	b, e := s.b, s.b.e
	b.writeAll()
	tx, end, err := e.s.beginTx(b.ctx, s.cfg.isolation)
	if err != nil {
		e.exitIfStopped()
		if b.ctx.Err() != nil {
			return nil, context.Cause(b.ctx)
		}
		return s.trouble(err)
	}
	defer end(nil) // of a function that does not return, for one
	ctx, cancel := s.begin()
	defer cancel()
	begun := time.Now()
	user := stepTx{Tx: tx}
	data, err := s.callUser(ctx, &user)
	if err != nil && s.cutOff(ctx, tx, err) {
		end(err) // before the pause: others need the connection and the slot
		return s.again(err)
	}
	if err == nil && user.rolledBack.Load() {
		err = errRolledBack
	}
	if err == nil {
		err = unfit(tx)
	}
	if err != nil || b.muted() {
		end(err)
		return s.settle(ctx, begun, data, err)
	}
	e.s.failpoint("after step", e.run.RunID)
	r := s.newRecord(store.Completed)
	r.Elapsed, r.Output = time.Since(begun), data
	// The write does not end with ctx: its outcome would be unknown.
	write, stop := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer stop()
	written, err := e.s.store.RecordIn(write, tx, append(s.registration(), r)...)
	if err == nil && written {
		if err = tx.Commit(write); err == nil {
			e.s.failpoint("after record", e.run.RunID)
			e.exitIfStopped()
			return &r.StepRow, nil
		}
	}
	end(err)
	return s.afterTx(ctx, begun, err)
}

// unfit says why a step's transaction cannot be committed although its function succeeded, nil if it can.
func unfit(tx pgx.Tx) error {
	conn := tx.Conn()
	switch {
	case conn.IsClosed(): // or it would be repeated for ever, as if the database were away
		return failure.Of(failure.KindDatabase, errors.New("the step's transaction lost its connection, and its function did not say so: a query's context ended, for one"))
	case conn.PgConn().TxStatus() == 'E':
		return errors.New("a statement of the step failed, and its function did not say so: return the error, or let the statement fail in a savepoint (tx.Begin)")
	case conn.PgConn().TxStatus() == 'I': // ended by SQL: the record would not be a part of it
		return errStepTx
	}
	return nil
}

// txTimeout bounds the record and commit of a transactional step.
const txTimeout = 30 * time.Second

// afterTx finds out what became of a transaction that did not say, or that wrote no record: the step's row tells.
// What the database refused is the attempt's failure (a deferred constraint, a serialization failure). That it was away, or
// that the record waited in vain for a stranger's lock of the run, is not.
func (s *stepCall) afterTx(ctx context.Context, begun time.Time, cause error) (*store.StepRow, error) {
	e := s.b.e
	for {
		e.exitIfStopped()
		row, holds, err := e.s.store.StepResult(e.s.background, e.held(), s.id, s.attempt)
		switch {
		case err != nil:
			e.s.databaseTrouble(err)
			_, _ = s.trouble(err)
		case !holds:
			e.stop(stopLost, ErrLeaseLost)
			runtime.Goexit()
		case row != nil:
			return row, nil
		case cause == nil: // only the transaction itself can have ended the run that it records for
			return s.settle(ctx, begun, nil, failure.BadRequest(errors.New("the step's transaction ends its own run: cancel it in a transaction of its own")))
		case saysNothing(cause) && s.isUncounted():
			return s.again(cause)
		default:
			return s.settle(ctx, begun, nil, cause)
		}
	}
}

// trouble waits a little, for the attempt to be made again: that the database is away says nothing of the step.
func (s *stepCall) trouble(err error) (*store.StepRow, error) {
	if err != nil {
		s.b.e.log().Debug("kagzi: a transactional step is repeated", "step", s.id, "error", err)
	}
	select {
	case <-time.After(outage.Pause):
	case <-s.b.e.done:
		runtime.Goexit()
	}
	return nil, nil
}

// stepTx is the transaction as the step's function sees it: the engine ends it.
type stepTx struct {
	pgx.Tx
	rolledBack atomic.Bool // the function called Rollback
}

// A deferred Rollback counts as any other. On the stack it looks like one on the line of the return statement, so to tell
// them apart would be to guess whether what was to be rolled back is to be committed.
var errRolledBack = failure.BadRequest(errors.New("kagzi: the step's function called Rollback of its transaction and returned no error: " +
	"to roll back return an error, and leave Rollback out, deferred too, because Kagzi ends the transaction"))

var errStepTx = failure.BadRequest(errors.New("kagzi: the step's transaction is committed by Kagzi, with the step's record: return from the function instead"))

func (*stepTx) Commit(context.Context) error { return errStepTx }

func (t *stepTx) Rollback(context.Context) error {
	t.rolledBack.Store(true)
	return errStepTx
}

func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // an open transaction ends with its connection, too
}
