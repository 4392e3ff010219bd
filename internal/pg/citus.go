package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The setting exists wherever the server has loaded Citus.
const onCitus = `SELECT coalesce(current_setting('citus.version', true), '') <> ''`

// IsOnCitus reports whether the server runs Citus, so that the tables may be distributed.
func IsOnCitus(ctx context.Context, db DB) (yes bool, err error) {
	if tx, ok := db.(pgx.Tx); ok {
		return HasCitus(ctx, tx.Conn())
	}
	err = OnConn(ctx, db, func(conn *pgx.Conn) error {
		yes, err = HasCitus(ctx, conn)
		return err
	})
	return yes, Wrap("find Citus", err)
}
