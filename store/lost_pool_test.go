package store

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// All connections of a pool have the same fault: the server has ended them, as a restart does, or they began as it was
// read-only. There are more of them than a call has tries, and the server takes new ones. The pool itself looks at
// none.
func TestPoolOfFaultyConnections(t *testing.T) {
	t.Parallel()
	const size = 4 * pg.MaxTries
	db := dbtest.Database(t)
	for name, call := range map[string]func(s *Store) error{
		"Start": func(s *Store) error { _, err := s.Starts.Start(t.Context(), nil, many(1)); return err },
		"Publish": func(s *Store) error {
			_, err := s.Topics.Publish(t.Context(), nil, []*NewEvent{{Topic: "t", ID: "e"}})
			return err
		},
		"Pause": func(s *Store) error { _, err := s.Pauses.Pause(t.Context(), nil, Pause{Queue: "queue"}); return err },
	} {
		// pool returns a pool of that many connections, each prepared by begin.
		pool := func(t *testing.T, begin func(*pgx.Conn)) *pgxpool.Pool {
			pool := dbtest.OpenPool(t, db.DSN, dbtest.Conns(size), func(cfg *pgxpool.Config) {
				cfg.ConnConfig.RuntimeParams["application_name"] = name
				cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
			})
			var all []*pgxpool.Conn
			for range size {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				begin(conn.Conn())
				all = append(all, conn)
			}
			for _, conn := range all {
				conn.Release()
			}
			return pool
		}
		t.Run(name+"/Ended", func(t *testing.T) {
			s := New(pool(t, func(*pgx.Conn) {}), "test")
			exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, name)
			await.True(t, "the connections are gone", func() bool {
				return one[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`,
					name) == 0
			})
			if err := call(s); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+"/ReadOnly", func(t *testing.T) {
			s := New(pool(t, func(conn *pgx.Conn) { exec(t, conn, `SET default_transaction_read_only = on`) }), "test")
			if err := call(s); err != nil {
				t.Error(err)
			}
		})
	}
}
