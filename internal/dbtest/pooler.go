//go:build unix

package dbtest

import (
	"context"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pooler starts pgbouncer in transaction mode in front of db, and returns the DSN of pgbouncer. It ends with the test.
func Pooler(t testing.TB, db *DB) string {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		if program, err = osexec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("pgbouncer is not installed: apt-get install pgbouncer, or brew install pgbouncer")
		}
	}
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir, which only its owner may search: pgbouncer does not run as root.
	dir, err := os.MkdirTemp("", "kagzi-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	upstream := cfg.ConnConfig
	ini := filepath.Join(dir, "pgbouncer.ini")
	var password string
	if upstream.Password != "" { // pgbouncer rejects an empty password
		password = fmt.Sprintf("password='%s'", strings.ReplaceAll(upstream.Password, "'", "''"))
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d dbname=%s user=%s %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
`, upstream.Host, upstream.Port, upstream.Database, upstream.User, password, port)
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{ini}
	if os.Getuid() == 0 {
		args = []string{"-u", "nobody", ini}
	}
	said, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	begin := func(ctx context.Context) (*osexec.Cmd, error) {
		cmd := osexec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr = said, said
		return cmd, cmd.Start()
	}
	ctx, end := context.WithCancel(context.Background())
	cmd, err := begin(ctx)
	if err != nil {
		end()
		t.Fatal(err)
	}
	// As a service would be, it is started again if it dies: some versions do of a cancel request that meets a notification.
	var supervisor sync.WaitGroup
	supervisor.Go(func() {
		for err == nil {
			if _ = cmd.Wait(); ctx.Err() != nil {
				return
			}
			cmd, err = begin(ctx)
		}
	})
	t.Cleanup(func() {
		end()
		supervisor.Wait()
		said.Close()
		if t.Failed() {
			log, _ := os.ReadFile(said.Name())
			t.Logf("pgbouncer said:\n%s", log[:min(len(log), 4000)])
		}
	})
	dsn := fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable&default_query_exec_mode=exec", upstream.User, port, upstream.Database)
	if err := serves(t.Context(), dsn); err != nil {
		t.Fatalf("pgbouncer does not serve: %v", err)
	}
	return dsn
}

// serves waits until the server of dsn accepts a connection. After a minute it returns the last error.
func serves(ctx context.Context, dsn string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, dsn); err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return err
}
