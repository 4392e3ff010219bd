package dbtest

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/migrations"
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
	if cfg.ConnConfig.RuntimeParams["role"] != "" {
		asOwner(cfg) // who may take on any role
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

// Roles creates the roles that migrations.Roles makes for a database. They are dropped when the test ends.
func Roles(t testing.TB, db *DB) (worker, client, viewer string) {
	t.Helper()
	prefix := "role_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	script, err := migrations.Roles(prefix)
	if err != nil {
		t.Fatal(err)
	}
	worker, client, viewer = prefix+"_worker", prefix+"_client", prefix+"_viewer"
	t.Cleanup(func() {
		all := strings.Join([]string{worker, client, viewer}, ", ")
		for _, sql := range []string{`DROP OWNED BY ` + all, `DROP ROLE ` + all} {
			if _, err := Owner(t, db.Pool).Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	Exec(t, db.Pool, script)
	return worker, client, viewer
}

// Role creates a role with every right on Kagzi's tables that a program needs. Row security applies to it. The role is
// dropped when the test ends.
func Role(t testing.TB, db *DB) string {
	t.Helper()
	role := "role_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	Exec(t, db.Pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := Owner(t, db.Pool).Exec(context.Background(), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	Exec(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	Exec(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi TO `+role+
		`; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO `+role)
	return role
}
