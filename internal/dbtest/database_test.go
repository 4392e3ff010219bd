package dbtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The next test gets the connections of the last one, without anything that the last test left in a session.
func TestConnectionsAreKept(t *testing.T) {
	finish := func(r *recorder) {
		t.Helper()
		if got := r.finish(); len(got) > 0 {
			t.Error(got)
		}
	}
	session := func(db *DB) (pid int) { return count(t, db, `SELECT pg_backend_pid()`) }

	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	role := "pg_monitor"
	if s.app != "" {
		role = rolesOf(s.prefix)[0] // the only roles that the tests' user may take on are those that it is in
	}
	r := &recorder{TB: t}
	db := Database(r)
	name, pid := db.Name, session(db)
	for _, sql := range []string{
		"SET statement_timeout = 1234", "LISTEN something", "SELECT pg_advisory_lock(7)",
		"CREATE TEMPORARY TABLE mine (n int)",
		"DECLARE c CURSOR WITH HOLD FOR SELECT 1", "SET ROLE " + role,
	} {
		exec(t, db.Pool, sql)
	}
	finish(r)

	db = Database(r)
	if db.Name != name || session(db) != pid {
		t.Fatalf("database %s and session %d came after %s and %d", db.Name, session(db), name, pid)
	}
	for _, sql := range []string{
		`SELECT count(*) FROM pg_settings WHERE name = 'statement_timeout' AND setting <> '0'`,
		`SELECT count(*) FROM pg_listening_channels()`,
		`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`,
		`SELECT count(*) FROM pg_class WHERE relname = 'mine'`,
		`SELECT count(*) FROM pg_cursors WHERE name = 'c'`, `SELECT (current_user <> session_user)::int`,
	} {
		if n := count(t, db, sql); n != 0 {
			t.Errorf("%d left: %s", n, sql)
		}
	}
	db.Pool.Close()
	finish(r)

	db = Database(r)
	if now := session(db); now == pid {
		t.Errorf("session %d outlived its pool", now)
	} else if _, err := Connect(t, db.DSN).Exec(t.Context(), `SELECT pg_terminate_backend($1, 5000)`, now); err != nil {
		t.Fatal(err)
	}
	finish(r)

	exec(t, Database(r).Pool, "SELECT 1") // on a connection that works
	finish(r)

	// A session reports its statistics before the next test begins.
	db = Database(r)
	const rolledBack = `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`
	before := count(t, db, rolledBack)
	for range 20 {
		exec(t, db.Pool, "BEGIN; ROLLBACK")
	}
	finish(r)
	db = Database(r)
	if n := count(t, db, rolledBack); n < before+20 &&
		count(t, db, `SELECT current_setting('server_version_num')::int`) >= 150000 {
		t.Errorf("%d of 20 transactions that were rolled back are reported", n-before)
	}
	finish(r)
	exec(t, db.Pool, "SELECT 1")
	s, err = shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.take(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if pool, err := d.open(t.Context(), poolConns); err != nil || pool == db.Pool || d.name != db.Name {
		t.Errorf("database %s: the pool that was used after its test's end is given out, for %s: %v", db.Name,
			d.name, err)
	}
	if err := s.drop(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// Something of an earlier test, such as a notification on its way, uses the pool while the cleaner works. The cleaner
// ends the session that this opens, so the pool has a connection that is lost.
func TestPoolUsedDuringTheCleanup(t *testing.T) {
	t.Parallel()
	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.take(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *pgxpool.Pool {
		t.Helper()
		pool, err := d.open(t.Context(), poolConns)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, "SELECT 1")
		return pool
	}
	pool := open()
	c, err := d.clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "SELECT 1") // on another connection: the cleaner has the first
	if again, err := s.reset(t.Context(), c); err != nil || !again {
		t.Errorf("can be used again: %v, %v", again, err)
	}
	c.release()
	if next := open(); next == pool {
		t.Error("the next test gets the pool with the lost connection")
	}
	if err := s.drop(t.Context(), d); err != nil {
		t.Error(err)
	}
}
