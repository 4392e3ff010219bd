package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// The time is in microseconds, so that the result does not depend on settings.
const databaseTime = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// readTime reads the answer to databaseTime.
func readTime(row pgx.Row) (time.Time, error) {
	var now int64
	err := row.Scan(&now)
	return time.UnixMicro(now).UTC(), err
}

// DatabaseTime returns the database's time.
func DatabaseTime(ctx context.Context, db pg.DB) (now time.Time, err error) {
	err = pg.Do(ctx, func(ctx context.Context) (err error) {
		now, err = readTime(db.QueryRow(ctx, databaseTime))
		return err
	})
	return now, pg.Wrap("read the time", err)
}
