package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LeastConns is the smallest pool that a worker can use: one connection for claims and one for everything else.
const LeastConns = 2

// Connect opens a connection outside of the pool, with the pool's configuration after each change was applied to it,
// and with the pool's hooks. The caller closes it.
func Connect(ctx context.Context, pool *pgxpool.Pool, change ...func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	cfg := pool.Config()
	for _, f := range change {
		f(cfg.ConnConfig)
	}
	if cfg.BeforeConnect != nil { // for example sets a short-lived password
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err == nil && cfg.AfterConnect != nil { // for example sets a role
		if err = cfg.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx)
		}
	}
	return conn, err
}
