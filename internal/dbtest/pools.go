package dbtest

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OpenPool opens a further pool for a DSN. It is closed when the test ends, before the database is given back.
func OpenPool(t testing.TB, dsn string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Setting is a change for OpenPool: the pool's sessions begin with a setting of the server.
func Setting(name, value string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams[name] = value }
}

// Conns is a change for OpenPool: the pool has at most n connections.
func Conns(n int32) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.MaxConns = n }
}

// Role creates a role with every right on Kagzi's tables that a program needs. Row security applies to it. The role is
// dropped when the test ends.
func Role(t testing.TB, db *DB) string {
	t.Helper()
	role := "role_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	Exec(t, db.Pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := db.Pool.Exec(context.Background(), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	Exec(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	Exec(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi TO `+role+`; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO `+role)
	return role
}
