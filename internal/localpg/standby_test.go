//go:build unix

package localpg

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
)

// query returns the only value of a query.
func query[T any](t *testing.T, c *Cluster, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStandby(t *testing.T) {
	t.Parallel()
	c := start(t, Config{MaxConnections: 50})
	s, err := c.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	exec := func(c *Cluster, sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), c.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const there = `SELECT to_regclass('kept') IS NOT NULL`
	exec(c, "CREATE TABLE kept (n int)")
	await.True(t, "the standby has the table", func() bool { return query[bool](t, s, there) })
	if !query[bool](t, s, "SELECT pg_is_in_recovery()") {
		t.Error("the standby is no standby")
	}
	if err := s.Restart(t.Context(), Immediate); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if !query[bool](t, s, "SELECT pg_promote()") {
		t.Error("the standby was not promoted")
	}
	exec(s, "INSERT INTO kept VALUES (1)")
	if n := query[string](t, s, "SHOW max_connections"); n != "50" {
		t.Errorf("the standby has %s connections", n)
	}
}

func TestDirAndEnvironment(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "kagzi-dir-") // shorter than t.TempDir, which also hides it from other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Dir: dir, Environment: []string{"KAGZI_TEST=1"}})
	if data := query[string](t, c, "SHOW data_directory"); !strings.HasPrefix(data, dir+"/") {
		t.Errorf("the data is in %s, not in %s", data, dir)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.PID()))
	if err == nil && !strings.Contains(string(environ), "KAGZI_TEST=1") { // not all systems have the file
		t.Errorf("environment %q", environ)
	}
}
