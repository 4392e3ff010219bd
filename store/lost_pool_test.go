package store

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// The server has ended all idle connections of a pool, as a restart does. A call meets one of them at most: there are more than it would
// try.
func TestPoolOfEndedConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	const size = 4 * maxTries
	for name, call := range map[string]func(s *Store) error{
		"Start": func(s *Store) error { _, err := s.Start(t.Context(), nil, many(1)); return err },
		"Pause": func(s *Store) error { _, err := s.Pause(t.Context(), nil, Pause{Queue: "queue"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			pool := dbtest.OpenPool(t, db.DSN, dbtest.Conns(size), func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["application_name"] = name })
			var all []*pgxpool.Conn
			for range size {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, conn)
			}
			for _, conn := range all {
				conn.Release()
			}
			exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, name)
			await.True(t, "the connections are gone", func() bool {
				return one[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, name) == 0
			})
			if err := call(New(pool, "test")); err != nil {
				t.Error(err)
			}
		})
	}
}
