package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
)

// A conn is what the nouns of a Store share. Its methods are parts of the transactions of several nouns.
type conn struct {
	pool      *pgxpool.Pool
	namespace string
}

// change runs f in tx, or in a transaction of its own, which is repeated while that may help.
func (s *conn) change(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
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

// inSavepoint runs f in a savepoint of tx, which it rolls back if f fails. With a nil tx, f gets a transaction of its
// own, which is repeated while that may help.
func (s *conn) inSavepoint(ctx context.Context, tx pgx.Tx, f func(context.Context, pgx.Tx) error) error {
	if tx == nil {
		return s.change(ctx, nil, f)
	}
	tx, err := pg.CheckIsolation(ctx, tx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return f(ctx, tx) })
}

// bulkTimeout is the timeout of the calls that transfer the inputs and results of many runs.
const bulkTimeout = 20 * time.Second

// wakeIn returns the time until a wake-up in microseconds, or -1 if there is none.
func wakeIn(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return pg.Micros(d)
}

// newID returns a UUIDv7: such IDs are ordered by their time of creation.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
