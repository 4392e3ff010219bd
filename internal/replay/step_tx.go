package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// If an attempt of a transactional step loses its connection, or its record is not written in time, it is repeated and
// not counted, for at most uncountedTime. Without this bound, a query that brings the server down would do so for ever.
// uncountedPause is the longest pause between two of these tries.
const (
	uncountedTime  = time.Minute
	uncountedPause = 10 * time.Second
)

// An uncounted is the series of tries of one attempt that failed because of the database.
type uncounted struct {
	attempt int       // number of the attempt
	since   time.Time // when the first of these tries failed
	times   int       // failed tries. isUncounted increments it.
}

// executeTx makes one attempt of a transactional step. See doc_steps.go.
func (s *stepCall) executeTx() (*store.StepRow, error) {
	if s.spec.Isolation != "" && s.spec.Isolation != pgx.ReadCommitted {
		defer s.e.holdProgress()()
	}
	if err := s.b.writeAll(); err != nil {
		return nil, err
	}
	t := &stepTx{}
	if err := t.open(s.b.context(), s); err != nil {
		s.e.exitIfStopped()
		if err := s.b.Err(); err != nil {
			return nil, err
		}
		s.retryAfterOutage(err)
		return nil, nil
	}
	defer func() { t.end(nil) }() // also if the function exits its goroutine
	ctx, cancel := s.begin()
	defer cancel()
	begun := time.Now()
	s.b.showsLittle(s.underWay(ctx))
	defer s.b.hides()
	if s.isLate() {
		return nil, nil
	}
	data, err := s.callInTx(ctx, t)
	if s.repeats(ctx, t, err) {
		return nil, nil
	}
	if t.failed != nil {
		return s.afterTx(ctx, begun, err)
	}
	if err == nil {
		err = uncommittable(t.Tx)
	}
	if err != nil || s.b.hasLost() {
		t.end(err)
		return s.recordOutcome(ctx, begun, data, err)
	}
	s.e.Failpoint("after step", s.e.RunID)
	r := s.newRecord(store.Completed)
	r.Elapsed, r.Output = time.Since(begun), data
	err = t.commit(ctx, s, append(slices.Concat(s.registration(), forgetting(s)), r)...)
	if err == nil {
		s.e.Failpoint("after record", s.e.RunID)
		s.e.exitIfStopped()
		return &r.StepRow, nil
	}
	t.end(err)
	return s.afterTx(ctx, begun, err)
}

// repeats reports whether the attempt is to be made again, uncounted, because of its error. Then it ends the
// transaction.
func (s *stepCall) repeats(ctx context.Context, t *stepTx, err error) bool {
	if s.putsOff(err) {
		t.end(err)
		return true
	}
	s.releaseAfter(err)
	if err == nil || t.failed != nil || !s.wasInterrupted(ctx, t.Tx, err) {
		return false
	}
	t.end(err) // before the pause, because others need the connection and the slot
	s.repeatUncounted(err)
	return true
}

// callInTx calls the step's function in its transaction.
func (s *stepCall) callInTx(ctx context.Context, t *stepTx) ([]byte, error) {
	data, err := s.callUser(ctx, t)
	switch {
	case t.failed != nil && !errors.Is(err, t.failed):
		err = t.failed
	case err == nil && t.rolledBack.Load():
		err = errRolledBack
	}
	return data, err
}

// open begins a transaction.
func (t *stepTx) open(ctx context.Context, s *stepCall) (err error) {
	// before it begins: a stricter isolation shows it nothing that is written later
	builds, sent := s.e.premisesNow()
	tx, end, err := s.e.beginTx(ctx, s.spec.Isolation)
	if err == nil {
		t.Tx, t.end, t.builds, t.sent = tx, end, builds, sent
	}
	return err
}

// commit writes the records of the step as the last statements before the commit, so that the run's row is locked only
// briefly. The transaction commits only if they were written: then no other result exists. If they were not, commit
// returns errUnwritten.
func (t *stepTx) commit(ctx context.Context, s *stepCall, records ...*store.Record) error {
	// The write goes on when ctx ends: otherwise its outcome would be unknown.
	write, stop := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer stop()
	c, err := s.e.Store.Records.WriteIn(write, t.Tx, t.builds, records...)
	switch {
	case err == nil && !c.Own:
		return errOtherTx
	case err == nil && !c.Written:
		return errUnwritten
	case err == nil:
		err = t.Tx.Commit(write)
	}
	switch {
	case err == nil:
	case madeReadOnly(t.Tx, err):
		return errMadeReadOnly
	default:
		return err
	}
	s.e.isCommitted(&records[len(records)-1].StepRow, t.sent, true)
	if c.News {
		s.e.tellNews()
	}
	return nil
}

// uncommittable returns why a step's transaction cannot be committed although its function succeeded, or nil.
func uncommittable(tx pgx.Tx) error {
	conn := tx.Conn()
	switch {
	case conn.IsClosed(): // otherwise the step would be repeated for ever, as if the database were away
		return failure.Of(kind.Database, errors.New("the step's transaction lost its connection, and its function "+
			"did not say so: a query's context ended, for one"))
	case conn.PgConn().TxStatus() == 'E':
		return errors.New("a statement of the step failed, and its function did not say so: return the error, or let " +
			"the statement fail in a savepoint (tx.Begin)")
	case conn.PgConn().TxStatus() == 'I':
		// the function ended the transaction by SQL: the record would not be part of it
		return errStepTx
	}
	return nil
}

// txTimeout bounds the record and commit of a transactional step.
const txTimeout = 30 * time.Second

// afterTx resolves a transaction that wrote no record or whose outcome is unknown, by the step's row in the table. If
// the database refused the transaction (a deferred constraint, a serialization failure), the attempt has failed. If the
// database was away, or another transaction's lock of the run kept the record from being written, the attempt is not
// counted.
func (s *stepCall) afterTx(ctx context.Context, begun time.Time, cause error) (*store.StepRow, error) {
	e := s.e
	if errors.Is(cause, store.ErrUnfounded) {
		e.stopAfter(store.Unfounded)
	}
	for {
		e.exitIfStopped()
		row, holds, err := e.Store.Records.StepResult(context.Background(), e.held(), s.id, s.attempt)
		switch {
		case err != nil:
			e.Trouble(err)
			s.retryAfterOutage(err)
		case !holds:
			e.stop(stopLost, standing.ErrLeaseLost)
			runtime.Goexit()
		case row != nil:
			e.isCommitted(row, 0, false)
			return row, nil
		case errors.Is(cause, errUnwritten): // only the transaction itself can have ended its run
			return s.recordOutcome(ctx, begun, nil, failure.BadRequest(errors.New("the step's transaction ends its "+
				"own run: cancel it in a transaction of its own")))
		case isDatabaseFault(cause) && s.isUncounted():
			s.repeatUncounted(cause)
			return nil, nil
		default:
			return s.recordOutcome(ctx, begun, nil, cause)
		}
	}
}

// retryAfterOutage pauses before the attempt is repeated: the database is away, which says nothing about the step.
func (s *stepCall) retryAfterOutage(err error) {
	s.e.log().Debug("kagzi: a transactional step is repeated", "step", s.id, "error", err)
	select {
	case <-time.After(outage.Pause):
	case <-s.e.Stopped():
		runtime.Goexit()
	}
}

// wasInterrupted reports whether the function failed with err because its transaction lost its connection, or because
// the server could not go on. Nothing was committed, and the step is not at fault. An error of the same class from
// elsewhere, such as another database, leaves the transaction as it was. A function that was idle for too long is at
// fault itself.
func (s *stepCall) wasInterrupted(ctx context.Context, tx pgx.Tx, err error) bool {
	conn := tx.Conn()
	hit := conn.IsClosed() || conn.PgConn().TxStatus() == 'E'
	class := pg.Classify(err)
	return hit && ctx.Err() == nil && !s.e.errors().Classify(err).Permanent &&
		(class == pg.ClassAway || class == pg.ClassUnable || class == pg.ClassMoved) &&
		!store.WasIdle(err) && !madeReadOnly(tx, err) && s.isUncounted()
}

// madeReadOnly reports whether err says that the step's function has made its transaction read-only. If so, the
// transaction has ended.
func madeReadOnly(tx pgx.Tx, err error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return pg.MadeReadOnly(ctx, tx.Conn(), err)
}

// isDatabaseFault reports whether err, with which the record or the commit failed after the function had succeeded, is
// no fault of the step: the database was away, or another transaction held a lock for too long.
func isDatabaseFault(err error) bool {
	if errors.Is(err, store.ErrTimeoutLeft) {
		return false
	}
	switch pg.Classify(err) {
	case pg.ClassAway, pg.ClassUnable, pg.ClassLocked, pg.ClassMoved, pg.ClassLate:
		return true
	}
	return false
}

// isUncounted reports whether the attempt, which failed because of the database, may be repeated without being counted.
func (s *stepCall) isUncounted() bool {
	if s.uncounted.times == 0 || s.uncounted.attempt != s.attempt {
		s.uncounted = uncounted{attempt: s.attempt, since: time.Now()}
	}
	s.uncounted.times++
	most := uncountedTime
	if hooks := s.e.Hooks; hooks != nil {
		most = cmp.Or(hooks.UncountedTime, most)
	}
	return time.Since(s.uncounted.since) < most
}

// repeatUncounted pauses before the attempt is repeated, longer each time.
func (s *stepCall) repeatUncounted(err error) {
	s.e.log().Warn("kagzi: a transactional step is repeated because of the database; the attempt is not counted",
		"step", s.id, "attempt", s.attempt, "error", err)
	select {
	case <-time.After(min(outage.Pause<<min(s.uncounted.times-1, 10), uncountedPause)):
	case <-s.e.Stopped():
		runtime.Goexit()
	}
}

// CheckIsolation refuses a level that Postgres does not have, and any level for a step without a transaction.
func CheckIsolation(level pgx.TxIsoLevel, tx bool) error {
	switch {
	case !tx:
		return fmt.Errorf("kagzi: Isolation %s is for a transaction, which this step does not have: use StepTx or "+
			"DoTx, or leave the option out", text.Quote(string(level)))
	case level == pgx.ReadUncommitted:
		return errors.New("kagzi: Postgres has no READ UNCOMMITTED, and treats it as READ COMMITTED: leave " +
			"Isolation out")
	case level != pgx.ReadCommitted && level != pgx.RepeatableRead && level != pgx.Serializable:
		return fmt.Errorf("kagzi: there is no isolation level %s: give Isolation(pgx.RepeatableRead) or "+
			"Isolation(pgx.Serializable)", text.Quote(string(level)))
	}
	return nil
}

// A stepTx is the transaction that the step's function gets: the function cannot end it. A checkpoint commits it, and
// another one takes its place.
type stepTx struct {
	pgx.Tx                     // open sets it, and the fields below
	end        func(err error) // rolls it back unless it is committed: see Env.beginTx
	builds     []store.Premise // its premises
	sent       int64           // the number of the last premise when it began
	savepoints atomic.Int64    // of the function that are open
	failed     error           // why a checkpoint has left no transaction; nil: none has. Set by saveInTx, for good.
	rolledBack atomic.Bool     // the function called Rollback. Set by Rollback, for good.
}

// errUnwritten says that the records of a step were not written: its worker does not hold the run any more, or the
// transaction itself has ended the run.
var errUnwritten = errors.New("kagzi: the step's records cannot be written: the run was taken over, or has ended")

// errRolledBack is the failure of an attempt that called Rollback and returned no error. A deferred Rollback counts,
// too: on the stack it looks like one in the line of the return statement, so its intention could only be guessed.
var errRolledBack = failure.BadRequest(errors.New("kagzi: the step's function called Rollback of its transaction and " +
	"returned no error: " +
	"to roll back return an error, and leave Rollback out, deferred too, because Kagzi ends the transaction"))

var errStepTx = failure.BadRequest(errors.New("kagzi: the step's transaction is committed by Kagzi, with the step's " +
	"record: return from the function instead"))

// errOtherTx and errMadeReadOnly are failures of attempts whose function has changed its transaction by SQL.
var (
	errOtherTx = failure.BadRequest(errors.New("kagzi: the step's function has ended its transaction by SQL and " +
		"begun another one (COMMIT or ROLLBACK, also AND CHAIN), " +
		"so the step's record would not be a part of it: leave these statements out, because Kagzi commits"))
	errMadeReadOnly = failure.BadRequest(errors.New("kagzi: the step's function has made its transaction read-only, " +
		"so the step cannot be recorded in it: " +
		"leave SET TRANSACTION READ ONLY out"))
)

func (*stepTx) Commit(context.Context) error { return errStepTx }

// Begin begins a savepoint.
func (t *stepTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	t.savepoints.Add(1)
	return &savepoint{Tx: tx, ends: sync.OnceFunc(func() { t.savepoints.Add(-1) })}, nil
}

// A savepoint is one of the step's function.
type savepoint struct {
	pgx.Tx
	ends func()
}

func (s *savepoint) Commit(ctx context.Context) error {
	defer s.ends()
	return s.Tx.Commit(ctx)
}

func (s *savepoint) Rollback(ctx context.Context) error {
	defer s.ends()
	return s.Tx.Rollback(ctx)
}

func (t *stepTx) Rollback(context.Context) error {
	t.rolledBack.Store(true)
	return errStepTx
}
