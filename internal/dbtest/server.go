package dbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/migrations"
)

// cleanupTimeout bounds the checks and the cleanup after a test.
const cleanupTimeout = 3 * time.Minute

// A server has the databases of the test binary.
type server struct {
	dsn         string // of the database in which CREATE DATABASE is executed
	nodes       []node // of a cluster, the coordinator first; nil if the server is none
	stop        func() error
	prefix      string // of the names of this binary's databases
	template    string // name of the migrated database that the others are copies of
	app         string // the user of the tests' pools, a worker and a client; "" if they belong to the owner
	fingerprint string // of a database whose schema no test has changed

	mu   sync.Mutex  // guards all below
	made int         // number of databases made so far, for their names
	free []*database // ready for the next test

	owners map[string]*pgxpool.Pool // of the owner, by database, if the tests' pools are those of another user
}

// shared is the test binary's server.
var shared = localpg.Shared[*server]{Start: startServer}

// stopSharedServer ends the server if it was started.
func stopSharedServer() error {
	return shared.Stop(func(s *server) error {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		for _, d := range s.free {
			d.close()
		}
		return errors.Join(s.dropAll(ctx), s.stop())
	})
}

func startServer(ctx context.Context) (_ *server, err error) {
	s := &server{prefix: "kagzi_test_" + strings.ToLower(rand.Text())[:10] + "_"}
	s.template = s.prefix + "template"
	if url := os.Getenv(clusterVariable); url != "" {
		err = s.openCluster(ctx, url)
	} else {
		s.dsn, s.stop, err = localpg.Open(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.dropAll(ctx), s.stop())
		}
	}()
	if err := s.everywhere(ctx, "CREATE DATABASE "+s.template+" TEMPLATE template0"); err != nil {
		return nil, err
	}
	if err := s.fillTemplate(ctx); err != nil || s.nodes == nil {
		return s, err
	}
	return s, s.closeTemplate(ctx)
}

// fillTemplate migrates the template.
func (s *server) fillTemplate(ctx context.Context) error {
	if s.nodes != nil {
		if err := s.joinNodes(ctx); err != nil {
			return err
		}
	}
	pool, err := pgxpool.New(ctx, withDatabase(s.dsn, s.template))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if s.nodes != nil {
		if _, err := migrations.Distribute(ctx, pool); err != nil {
			return err
		}
	}
	if os.Getenv(rolesVariable) != "" {
		if err := s.makeRoles(ctx, pool); err != nil {
			return err
		}
	}
	return pool.QueryRow(ctx, fingerprint).Scan(&s.fingerprint)
}

// execOn executes statements on a new connection. Tests that search for leftover goroutines or sessions would find a
// connection that is kept open.
func execOn(ctx context.Context, dsn string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// take returns a database that no test uses.
func (s *server) take(ctx context.Context, empty bool) (*database, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 && !empty {
		d := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return d, nil
	}
	s.made++
	d := &database{name: fmt.Sprintf("%s%d", s.prefix, s.made)}
	s.mu.Unlock()
	d.dsn = withDatabase(s.dsn, d.name)
	d.appDSN = d.dsn
	template := s.template
	if s.app != "" && !empty { // who migrates is the owner
		d.appDSN = withUser(d.dsn, s.app)
	}
	if empty {
		template = "template0"
	}
	return d, s.everywhere(ctx, "CREATE DATABASE "+d.name+" TEMPLATE "+template)
}

// giveBack makes the database of a finished test ready for the next test. It drops the database if that is impossible,
// for example because the test changed the schema.
func (s *server) giveBack(ctx context.Context, d *database, c *cleaner) error {
	ready, err := s.reset(ctx, c)
	c.release()
	if err != nil || !ready || s.app != "" && d.appDSN == d.dsn {
		return s.drop(ctx, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, d)
	return nil
}

// dropPatience is the longest that a test waits until its database is dropped.
const dropPatience = 5 * time.Second

// drop drops a database and ends the sessions connected to it. The server asks all of its sessions first, and a session
// whose client another test has stopped does not answer. In that case drop leaves the database to dropAll.
func (s *server) drop(ctx context.Context, d *database) error {
	d.close()
	ctx, cancel := context.WithTimeout(ctx, dropPatience)
	defer cancel()
	err := s.everywhere(ctx, "DROP DATABASE IF EXISTS "+d.name+" WITH (FORCE)")
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// endSessions ends the sessions of the current database but for those with the processes $1, and returns how many there
// were. They end a little later. It leaves those that a server of a cluster keeps to another one, or to itself: a
// connection of the pool would use its own in the next test, and fail.
const endSessions = `
	SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL ($1::int[])
		AND backend_type = 'client backend' AND application_name !~ '^citus_internal'`

// endPatience is the longest that a test waits until the sessions that it left behind have ended, and until its
// connections are back in the pool.
const endPatience = time.Minute

// endSessions ends all sessions of the database but the cleaner's, and returns once they have rolled back and released
// their locks. pg_terminate_backend could wait for that, but would do so for one session after the other, a tenth of a
// second each.
func (c *cleaner) endSessions(ctx context.Context) error {
	for end := time.Now().Add(endPatience); ; time.Sleep(time.Millisecond) {
		var n int
		if err := c.QueryRow(ctx, endSessions, c.sessions()).Scan(&n); err != nil || n == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d sessions of the test do not end", n)
		}
	}
}

// emptyDatabase removes everything that tests usually leave. The fingerprint reveals any other change. DELETE of a few
// rows takes a fraction of the time of TRUNCATE, which gives a table and its indexes new files.
const emptyDatabase = `
	DO $$
	DECLARE t regclass;
	BEGIN
		PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', true);
		IF to_regnamespace('kagzi_audit') IS NOT NULL THEN
			DROP SCHEMA kagzi_audit CASCADE;
		END IF;
		FOR t IN SELECT oid FROM pg_class
			WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
		LOOP
			EXECUTE 'DROP TABLE IF EXISTS ' || t || ' CASCADE';
		END LOOP;
		FOR t IN SELECT oid FROM pg_class
			WHERE relnamespace = 'kagzi'::regnamespace AND relkind = 'r' AND relname <> 'schema_migrations'
		LOOP
			IF pg_table_size(t) > 256 * 1024 THEN
				EXECUTE 'TRUNCATE ' || t;
			ELSE
				EXECUTE 'DELETE FROM ' || t;
			END IF;
		END LOOP;
	END $$`

// fingerprint is a hash of everything that a test may have created, changed or dropped. For each object that is not
// Postgres's own, it has the version of the row in the catalog. Copies of a database have the same fingerprint.
// TRUNCATE and VACUUM also write to pg_class, so it has only the columns of pg_class that they do not change.
// Statistics count as a change, because they would decide the plans of the next test.
const fingerprint = `
	WITH things (thing) AS (
		SELECT concat_ws(' ', 'relation', oid, relname, relkind, relowner, relpersistence, relrowsecurity, reloptions,
			relacl) AS thing
		FROM pg_class WHERE oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace
			AND relpersistence <> 't'
		UNION ALL SELECT concat_ws(' ', 'schema', oid, xmin) FROM pg_namespace WHERE oid >= 16384 AND nspname !~ '^pg_'
		UNION ALL SELECT concat_ws(' ', 'column', attrelid, attnum, xmin) FROM pg_attribute WHERE attrelid >= 16384
			AND attrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r' AND relpersistence <> 't')
		UNION ALL SELECT concat_ws(' ', 'constraint', oid, xmin) FROM pg_constraint WHERE oid >= 16384
		UNION ALL SELECT concat_ws(' ', 'index', indexrelid, xmin) FROM pg_index WHERE indexrelid >= 16384
		UNION ALL SELECT concat_ws(' ', 'trigger', oid, xmin) FROM pg_trigger
		UNION ALL SELECT concat_ws(' ', 'function', oid, xmin) FROM pg_proc WHERE oid >= 16384
		UNION ALL SELECT concat_ws(' ', 'type', oid, xmin) FROM pg_type WHERE oid >= 16384
		UNION ALL SELECT concat_ws(' ', 'extension', oid, xmin) FROM pg_extension
		UNION ALL SELECT concat_ws(' ', 'event trigger', oid, xmin) FROM pg_event_trigger
		UNION ALL SELECT concat_ws(' ', 'publication', oid, xmin) FROM pg_publication
		UNION ALL SELECT concat_ws(' ', 'setting', setrole, setconfig) FROM pg_db_role_setting
			JOIN pg_database d ON d.oid = setdatabase AND datname = current_database()
		UNION ALL SELECT DISTINCT concat_ws(' ', 'statistics', starelid) FROM pg_statistic WHERE starelid >= 16384
		UNION ALL SELECT concat_ws(' ', 'version', version_id, is_applied) FROM kagzi.schema_migrations
	)
	SELECT md5(string_agg(thing, E'\n' ORDER BY thing COLLATE "C")) FROM things`

// reset ends the test's sessions and empties the database. It reports whether the schema is unchanged.
func (s *server) reset(ctx context.Context, c *cleaner) (ready bool, err error) {
	if err := c.endSessions(ctx); err != nil {
		return false, err
	}
	if _, err := c.Exec(ctx, emptyDatabase); err != nil {
		return false, err
	}
	var found string
	if err := c.QueryRow(ctx, fingerprint).Scan(&found); err != nil {
		return false, err
	}
	return found == s.fingerprint, nil
}

// dropAll drops this binary's databases. A throwaway server does not need that, but it takes hardly any time.
func (s *server) dropAll(ctx context.Context) (err error) {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, _ := conn.Query(ctx, `SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)`, s.prefix)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.everywhere(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	if s.app == "" {
		return nil
	}
	for _, role := range append(rolesOf(s.prefix), s.app) {
		// first what the role owns or may do in this database and outside of any
		for _, sql := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			if _, err := conn.Exec(ctx, sql+role); err != nil {
				return err
			}
		}
	}
	return nil
}

// withDatabase returns the DSN, of either form, for another database of the same server.
func withDatabase(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		u.Path = "/" + name
		return u.String()
	}
	return dsn + " dbname=" + name // the last value of a key counts
}
