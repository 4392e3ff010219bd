package store

import (
	"context"

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
