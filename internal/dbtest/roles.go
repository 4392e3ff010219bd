package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/migrations"
)

// If the environment has this variable, the pools and DSNs that tests get belong to a user with the rights of Kagzi's
// worker and client, and no others. Statements of the test itself ([Exec], [QueryOne], [Connect]) are the owner's. A
// database without tables ([Empty]) is the owner's.
const rolesVariable = "KAGZI_TEST_ROLES"

// appPassword is that of the user of the tests' pools, on a throwaway server.
const appPassword = "app"

func rolesOf(prefix string) []string {
	return []string{prefix + "worker", prefix + "client", prefix + "viewer"}
}

// makeRoles creates the roles of the databases that are copies of pool's, and the user of the tests' pools. It may also
// use what a test creates as the owner, such as the tables of its steps.
func (s *server) makeRoles(ctx context.Context, pool *pgxpool.Pool) error {
	script, err := migrations.Roles(s.prefix[:len(s.prefix)-1])
	if err != nil {
		return err
	}
	s.app = s.prefix + "app"
	for _, sql := range []string{
		script,
		fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE %sworker, %[3]sclient`, s.app, appPassword, s.prefix),
		`DO $$ BEGIN
			-- before 15, only superusers may set them: use AsOwner
			IF current_setting('server_version_num')::int >= 150000 THEN
				EXECUTE 'GRANT SET ON PARAMETER deadlock_timeout, lc_messages TO ` + s.app + `';
			END IF;
		END $$`,
		`GRANT CREATE ON SCHEMA public TO ` + s.app,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO ` + s.app,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO ` + s.app,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO ` + s.app,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the tests' roles: %w", err)
		}
	}
	return nil
}

// withUser returns the DSN for the user of the tests' pools.
func withUser(dsn, app string) string {
	if u, err := url.Parse(dsn); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		u.User = url.UserPassword(app, appPassword)
		return u.String()
	}
	return dsn + " user=" + app + " password=" + appPassword
}

// ownerDSN returns the owner's DSN for one of the user of the tests' pools, and any other as it is.
func ownerDSN(dsn string) string {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil || !isApp(cfg) {
		return dsn
	}
	s, _ := shared.Get() // it has made the user
	owner, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return dsn
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return fmt.Sprintf("%s user=%s password=%s", dsn, owner.ConnConfig.User, owner.ConnConfig.Password)
	}
	u.User = url.UserPassword(owner.ConnConfig.User, owner.ConnConfig.Password)
	return u.String()
}

// isApp reports whether a pool is of the user of the tests' pools.
func isApp(cfg *pgxpool.Config) bool {
	if os.Getenv(rolesVariable) == "" {
		return false
	}
	s, err := shared.Get()
	return err == nil && s.app != "" && cfg.ConnConfig.User == s.app
}

// asOwner changes the configuration of a pool of the tests' user to the owner's.
func asOwner(cfg *pgxpool.Config) {
	if !isApp(cfg) {
		return
	}
	if s, err := shared.Get(); err == nil {
		if owner, err := pgxpool.ParseConfig(s.dsn); err == nil {
			cfg.ConnConfig.User, cfg.ConnConfig.Password = owner.ConnConfig.User, owner.ConnConfig.Password
		}
	}
}

// Owner returns a pool of the owner for the database of a pool of the tests' user, and any other pool as it is. It is
// closed before the database is given back.
func Owner(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	if !isApp(pool.Config()) {
		return pool
	}
	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.owner(pool.Config().ConnConfig.Database)
	if err != nil {
		t.Fatal(err)
	}
	return owner
}

// owner returns the owner's pool for a database.
func (s *server) owner(name string) (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[name] == nil {
		pool, err := pgxpool.New(context.Background(), withDatabase(s.dsn, name))
		if err != nil {
			return nil, err
		}
		if s.owners == nil {
			s.owners = map[string]*pgxpool.Pool{}
		}
		s.owners[name] = pool
	}
	return s.owners[name], nil
}

// closeOwner closes the owner's pool for a database.
func (s *server) closeOwner(name string) {
	s.mu.Lock()
	pool := s.owners[name]
	delete(s.owners, name)
	s.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}
