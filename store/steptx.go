package store

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// The setting lasts until the end of the step's transaction. So WriteIn notices if the step's function has ended
// it and begun another.
const (
	beginCommitted    = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL kagzi_steptx.begun = 'on'`
	beginRepeatable   = `BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL kagzi_steptx.begun = 'on'`
	beginSerializable = `BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL kagzi_steptx.begun = 'on'`
)

// BeginStepTx returns the statements that begin the transaction of a step; an empty level is READ COMMITTED.
func BeginStepTx(level pgx.TxIsoLevel) string {
	switch level {
	case pgx.RepeatableRead:
		return beginRepeatable
	case pgx.Serializable:
		return beginSerializable
	}
	return beginCommitted
}

// The run is locked from the record to the commit, so the server ends the transaction of a frozen process. The record
// may wait for locks until the call times out, whatever the role's lock_timeout is: the function has succeeded, and
// would be repeated after a failure.
const lastTimeouts = `SELECT coalesce(current_setting('kagzi_steptx.begun', true) = 'on', false),
	set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`

// ErrTimeoutLeft reports that the statement_timeout or idle_in_transaction_session_timeout, which an application has
// set in its transaction, was over before WriteIn set its own.
var ErrTimeoutLeft = errors.New("the transaction has a statement_timeout or an idle_in_transaction_session_timeout " +
	"that is too short")

// WasIdle reports whether err says that a transaction was ended because it had been idle for too long.
func WasIdle(err error) bool { return pg.Code(err) == "25P03" }

// A StepCommit says what WriteIn found.
type StepCommit struct {
	// all records were written: the transaction may be committed. If not, the lease is lost, or an attempt has a result
	// already.
	Written bool
	Own     bool // the transaction is the one that BeginStepTx has begun
	News    bool // the run was cancelled or paused
}

// WriteIn writes records of one run as the last statements of the caller's transaction, and locks the run until that
// ends. It returns ErrUnfounded if one of the premises is missing, and ErrTimeoutLeft.
func (s Records) WriteIn(ctx context.Context, tx pgx.Tx, premises []Premise,
	records ...*Record,
) (c StepCommit, err error) {
	for _, r := range records {
		r.Outcome = Undecided
	}
	compensations, steps := part(records, (*Record).isCompensation)
	checks := append(checksOf(premises), check{of: records[0].RunID, run: records[0].RunID, kind: hasNews})
	b := &pgx.Batch{}
	b.Queue(lastTimeouts, pg.Untimed.PrologueArgs(ctx)[:2]...)
	b.Queue(checkPremises, checkColumns.args(s.namespace, checks)...)
	timed := false
	reads := []func(pgx.Rows) error{func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&c.Own, nil, nil, nil}, func() error { timed = true; return nil })
		return err
	}, func(rows pgx.Rows) error {
		c.News = rows.Next()
		return nil
	}}
	if compensations != nil {
		b.Queue(recordCompensations, compensationColumns.args(s.namespace, compensations)...)
		reads = append(reads, readRecorded(compensations))
	}
	b.Queue(recordSteps, recordColumns.args(s.namespace, steps)...)
	err = pg.Exchange(ctx, tx, pg.Untimed, b, append(reads, readRecorded(steps))...)
	switch {
	case isUnfounded(err):
		err = ErrUnfounded
	case !timed && (pg.Code(err) == "57014" || WasIdle(err)):
		err = ErrTimeoutLeft
	}
	refused := slices.ContainsFunc(records, func(r *Record) bool { return r.Outcome != Done })
	c.Written = err == nil && !refused
	return c, pg.Wrap("record step", err)
}
