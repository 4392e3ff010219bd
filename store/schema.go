package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

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
