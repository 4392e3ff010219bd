package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// The run is locked from the record to the commit, so the server ends the transaction of a frozen process. The record may
// wait for locks until the call times out, whatever the role's lock_timeout is: the function has succeeded, and would be
// repeated after a failure.
const lastTimeouts = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`

// RecordIn writes records of one run as the last statements of the caller's transaction, and locks the run until that ends.
// It reports whether all were written. If not, the lease is lost, or an attempt has a result already.
func (s *Store) RecordIn(ctx context.Context, tx pgx.Tx, records ...*Record) (bool, error) {
	for _, r := range records {
		r.Outcome = Undecided
	}
	compensations, steps := part(records, (*Record).isCompensation)
	b := &pgx.Batch{}
	b.Queue(lastTimeouts, untimed.prologueArgs(ctx)[:2]...)
	reads := []func(pgx.Rows) error{nil}
	if compensations != nil {
		b.Queue(recordCompensations, compensationColumns.args(s.namespace, compensations)...)
		reads = append(reads, readRecorded(compensations))
	}
	b.Queue(recordSteps, recordColumns.args(s.namespace, steps)...)
	err := exchange(ctx, tx, untimed, b, append(reads, readRecorded(steps))...)
	refused := slices.ContainsFunc(records, func(r *Record) bool { return r.Outcome != Done })
	return err == nil && !refused, wrap("record step", err)
}
