package engine

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// How long an attempt of a transactional step that loses its connection, or whose record is not written in time, is made
// again without being counted, and the longest pause between two of them. Without a bound, a function whose query brings
// the server down would do so for ever.
const (
	uncountedTime  = time.Minute
	uncountedPause = 10 * time.Second
)

// An uncounted is the series of tries of one attempt that failed because of the database.
type uncounted struct {
	attempt int
	since   time.Time
	times   int
}

// executeTx makes one attempt of a transactional step. The record is its last statement before the commit, so
// that the run's row is locked briefly. It commits only if the record was written: then nobody else has a result.
func (s *stepCall) executeTx() (*store.StepRow, error) {
	b, e := s.b, s.b.e
	b.writeAll()
	tx, end, err := e.env.beginTx(b.ctx, s.spec.Isolation)
	if err != nil {
		e.exitIfStopped()
		if b.ctx.Err() != nil {
			return nil, context.Cause(b.ctx)
		}
		return s.retryAfterOutage(err)
	}
	defer end(nil) // of a function that does not return, for one
	ctx, cancel := s.begin()
	defer cancel()
	begun := time.Now()
	user := stepTx{Tx: tx}
	data, err := s.callUser(ctx, &user)
	if err != nil && s.wasInterrupted(ctx, tx, err) {
		end(err) // before the pause: others need the connection and the slot
		return s.repeatUncounted(err)
	}
	if err == nil && user.rolledBack.Load() {
		err = errRolledBack
	}
	if err == nil {
		err = uncommittable(tx)
	}
	if err != nil || b.hasLost() {
		end(err)
		return s.recordOutcome(ctx, begun, data, err)
	}
	e.env.failpoint("after step", e.run.RunID)
	r := s.newRecord(store.Completed)
	r.Elapsed, r.Output = time.Since(begun), data
	// The write does not end with ctx: its outcome would be unknown.
	write, stop := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer stop()
	written, err := e.env.store.RecordIn(write, tx, append(s.registration(), r)...)
	if err == nil && written {
		if err = tx.Commit(write); err == nil {
			e.env.failpoint("after record", e.run.RunID)
			e.exitIfStopped()
			return &r.StepRow, nil
		}
	}
	end(err)
	return s.afterTx(ctx, begun, err)
}

// unfit says why a step's transaction cannot be committed although its function succeeded, nil if it can.
func uncommittable(tx pgx.Tx) error {
	conn := tx.Conn()
	switch {
	case conn.IsClosed(): // or it would be repeated for ever, as if the database were away
		return failure.Of(kind.Database, errors.New("the step's transaction lost its connection, and its function did not say so: a query's context ended, for one"))
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
		row, holds, err := e.env.store.StepResult(e.env.background, e.held(), s.id, s.attempt)
		switch {
		case err != nil:
			e.env.databaseTrouble(err)
			_, _ = s.retryAfterOutage(err)
		case !holds:
			e.stop(stopLost, ErrLeaseLost)
			runtime.Goexit()
		case row != nil:
			return row, nil
		case cause == nil: // only the transaction itself can have ended the run that it records for
			return s.recordOutcome(ctx, begun, nil, failure.BadRequest(errors.New("the step's transaction ends its own run: cancel it in a transaction of its own")))
		case isDatabaseFault(cause) && s.isUncounted():
			return s.repeatUncounted(cause)
		default:
			return s.recordOutcome(ctx, begun, nil, cause)
		}
	}
}

// trouble waits a little, for the attempt to be made again: that the database is away says nothing of the step.
func (s *stepCall) retryAfterOutage(err error) (*store.StepRow, error) {
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

// wasInterrupted reports whether the function failed with err because its transaction lost its connection, or because the
// server could not go on. Nothing was committed, and the step is not at fault. An error of the same class from elsewhere, such
// as another database, leaves the transaction as it was.
func (s *stepCall) wasInterrupted(ctx context.Context, tx pgx.Tx, err error) bool {
	conn := tx.Conn()
	hit := conn.IsClosed() || conn.PgConn().TxStatus() == 'E'
	class := store.Classify(err)
	return hit && ctx.Err() == nil && !s.b.e.env.errors.Classify(err).Permanent && (class == store.ClassAway || class == store.ClassUnable) && s.isUncounted()
}

// isDatabaseFault reports whether err, with which the record or the commit failed after the function had succeeded, is no
// fault of the step: the database was away, or somebody else held a lock for too long.
func isDatabaseFault(err error) bool {
	switch store.Classify(err) {
	case store.ClassAway, store.ClassUnable, store.ClassLocked, store.ClassLate:
		return true
	}
	return false
}

// isUncounted reports whether the attempt, which failed by no fault of its own, may be made again without being counted.
func (s *stepCall) isUncounted() bool {
	if s.uncounted.times == 0 || s.uncounted.attempt != s.attempt {
		s.uncounted = uncounted{attempt: s.attempt, since: time.Now()}
	}
	s.uncounted.times++
	most := uncountedTime
	if hooks := s.b.e.env.hooks; hooks != nil {
		most = cmp.Or(hooks.UncountedTime, most)
	}
	return time.Since(s.uncounted.since) < most
}

// again waits, longer each time, for the attempt to be made again.
func (s *stepCall) repeatUncounted(err error) (*store.StepRow, error) {
	s.b.e.log().Warn("kagzi: a transactional step is repeated because of the database; the attempt is not counted", "step", s.id, "attempt", s.attempt, "error", err)
	select {
	case <-time.After(min(outage.Pause<<min(s.uncounted.times-1, 10), uncountedPause)):
	case <-s.b.e.done:
		runtime.Goexit()
	}
	return nil, nil
}

// beginTx begins a transaction for a step, leaving the pool the connections that the engine needs. Its level is always
// said: the database's or role's default may be a stricter one. end rolls it back unless it is committed, and frees its slot;
// it is told what the transaction failed with, and may be called again.
func (env *environment) beginTx(ctx context.Context, level pgx.TxIsoLevel) (tx pgx.Tx, end func(error), err error) {
	select {
	case env.txSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	tx, err = env.store.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: cmp.Or(level, pgx.ReadCommitted)})
	if err != nil {
		<-env.txSlots
		return nil, nil, err
	}
	var once sync.Once
	return tx, func(err error) {
		once.Do(func() {
			store.DropReadOnly(tx.Conn(), err)
			rollback(tx)
			<-env.txSlots
		})
	}, nil
}

func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // an open transaction ends with its connection, too
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
