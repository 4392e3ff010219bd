package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// ErrRunFinished reports that the run is over.
var ErrRunFinished = errors.New("run is over")

// ErrRunActive reports that the run is not over.
var ErrRunActive = errors.New("run is not over")

// A run whose steps are being deleted does not count as existing.
const runStatus = `
SELECT r.status FROM kagzi.workflow_runs r
WHERE r.run_id = $2 AND r.namespace_id = $1 AND r.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'`

func (s *Store) status(ctx context.Context, tx pgx.Tx, id uuid.UUID) (string, error) {
	status, err := pg.AskOne[string](ctx, tx, runStatus, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrRunNotFound
	}
	return status, err
}

// change runs f in tx, or in a transaction of its own, which is repeated while that may help.
func (s *Store) change(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	if tx != nil {
		tx, err := pg.CheckIsolation(ctx, tx)
		if err != nil {
			return err
		}
		return f(ctx, tx)
	}
	return pg.Again(ctx, func(ctx context.Context) error {
		return pg.Transact(ctx, s.pool, pg.Untimed, func(tx pgx.Tx) error { return f(ctx, tx) })
	})
}

// InSavepoint runs f in a savepoint of tx, which it rolls back if f fails. With a nil tx, f gets a transaction of its
// own, which is repeated while that may help.
func (s *Store) InSavepoint(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	if tx == nil {
		return s.change(ctx, nil, f)
	}
	tx, err := pg.CheckIsolation(ctx, tx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return f(ctx, tx) })
}

var errRollback = errors.New("dry run")

// DryRun is InSavepoint, but always rolls back the changes of f.
func (s *Store) DryRun(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	err := s.InSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if err := f(ctx, tx); err != nil {
			return err
		}
		return errRollback
	})
	if errors.Is(err, errRollback) {
		return nil
	}
	return err
}
