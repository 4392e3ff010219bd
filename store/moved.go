package store

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// Each table has the fence of a namespace that moves.
const findFence = `
SELECT EXISTS (
	SELECT FROM pg_catalog.pg_constraint c
	WHERE c.conrelid = to_regclass('kagzi.workflow_runs') AND c.conname = $1
)`

// movedWithin is how long Moved waits for a connection of a pool that has none left.
const movedWithin = time.Second

// Moved reports whether the namespace moves to another database, or has moved there. If all connections of the pool
// stay in use, perhaps by the caller's transaction, it does not ask, and returns false.
func (s *Store) Moved(ctx context.Context) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, movedWithin)
	conn, err := s.pool.Acquire(waiting)
	cancel()
	if err != nil {
		if all := s.pool.Stat(); ctx.Err() == nil && all.AcquiredConns() >= all.MaxConns() {
			err = nil
		}
		return false, err
	}
	defer conn.Release()
	return pg.AskOne[bool](ctx, conn, findFence, pg.FenceOf(s.namespace))
}
