package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// CheckedTx returns tx for changes of runs in it; a nil tx stays nil. It returns ErrIsolation if the isolation level is
// too strict: see pg.CheckIsolation.
func (s *Store) CheckedTx(ctx context.Context, tx pgx.Tx) (pgx.Tx, error) {
	if tx == nil {
		return nil, nil
	}
	return pg.CheckIsolation(ctx, tx)
}

// Read calls f with a connection of the pool, or in a savepoint of the caller's transaction, so that a failure leaves
// the transaction usable. The call has callTimeout, as others do.
func (s *Store) Read(ctx context.Context, tx pgx.Tx, f func(context.Context, pg.DB) error) error {
	return pg.Do(ctx, func(ctx context.Context) error {
		if tx == nil {
			return pg.OnConn(ctx, s.pool, func(conn *pgx.Conn) error { return f(ctx, conn) })
		}
		return pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { return f(ctx, part) })
	})
}

// InSavepoint runs f in a savepoint of tx, which it rolls back if f fails. With a nil tx, f gets a transaction of its
// own, which is repeated while that may help.
func (s *Store) InSavepoint(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	return s.inSavepoint(ctx, tx, f)
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
