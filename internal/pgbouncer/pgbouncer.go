//go:build unix

// Package pgbouncer runs pgbouncer in transaction mode for tests, in front of a server that also belongs to the test.
package pgbouncer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Pooler is a running pgbouncer. As a service would be, it is started again when it dies.
type Pooler struct {
	// DSN is the DSN of pgbouncer, for clients that prepare no statements.
	DSN string

	program   string
	args      []string
	dir       string
	said      *os.File
	end       context.CancelFunc
	supervise sync.WaitGroup

	mu  sync.Mutex
	pid int
}

// Start starts pgbouncer in front of the server of a DSN, and returns once it serves. Stop ends it.
func Start(ctx context.Context, dsn string) (_ *Pooler, err error) {
	p := &Pooler{}
	if p.program, err = exec.LookPath("pgbouncer"); err != nil {
		if p.program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, errors.New("pgbouncer is not installed: apt-get install pgbouncer, or brew install pgbouncer")
		}
	}
	// Not in the test's own directory, which only its owner may search: pgbouncer does not run as root.
	if p.dir, err = os.MkdirTemp("", "kagzi-pooler-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if err := os.Chmod(p.dir, 0o755); err != nil {
		return nil, err
	}
	ini := filepath.Join(p.dir, "pgbouncer.ini")
	if err := p.configure(dsn, ini); err != nil {
		return nil, err
	}
	if p.args = []string{ini}; os.Getuid() == 0 {
		p.args = []string{"-u", "nobody", ini}
	}
	if p.said, err = os.Create(filepath.Join(p.dir, "log")); err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.Background())
	p.end = end
	cmd, err := p.begin(running)
	if err != nil {
		return nil, err
	}
	p.supervise.Go(func() {
		for err := error(nil); err == nil; { // some versions die of a cancel request that meets a notification
			if _ = cmd.Wait(); running.Err() != nil {
				return
			}
			cmd, err = p.begin(running)
		}
	})
	if err := serves(ctx, p.DSN); err != nil {
		return nil, fmt.Errorf("pgbouncer does not serve: %w\n%s", err, p.Log())
	}
	return p, nil
}

// configure writes pgbouncer's configuration, and sets the DSN.
func (p *Pooler) configure(dsn, ini string) error {
	upstream, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return err
	}
	var password string
	if upstream.Password != "" { // pgbouncer rejects an empty password
		password = fmt.Sprintf("password='%s'", strings.ReplaceAll(upstream.Password, "'", "''"))
	}
	p.DSN = fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable&default_query_exec_mode=exec", upstream.User,
		port, upstream.Database)
	return os.WriteFile(ini, fmt.Appendf(nil, `[databases]
* = host=%s port=%d dbname=%s user=%s %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_login_retry = 1
default_pool_size = 6
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
`, upstream.Host, upstream.Port, upstream.Database, upstream.User, password, port), 0o644)
}

func (p *Pooler) begin(ctx context.Context) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, p.program, p.args...)
	cmd.Stdout, cmd.Stderr = p.said, p.said
	p.mu.Lock()
	defer p.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		p.pid = cmd.Process.Pid
	}
	return cmd, err
}

// PID returns the ID of the process that runs, or ran last.
func (p *Pooler) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Log returns the begin of what pgbouncer said.
func (p *Pooler) Log() string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(b[:min(len(b), 4000)])
}

// Stop ends pgbouncer and removes its files.
func (p *Pooler) Stop() error {
	if p.end != nil {
		p.end()
		p.supervise.Wait()
	}
	if p.said != nil {
		_ = p.said.Close()
	}
	return os.RemoveAll(p.dir)
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
