// Package localpg starts a throwaway Postgres server for tests, examples and benchmarks, from the installed Postgres.
// The server belongs to the current process: it listens on loopback and on a Unix socket only, keeps its data in a
// temporary directory, and ends when the process does, even by kill -9.
//
// Most callers need only [Open]. A [Cluster] is a server that the caller can restart.
package localpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says how a throwaway server differs from the usual one. Its zero value is right for tests.
type Config struct {
	// Durable keeps the data on a disk, and fsync and full_page_writes on, as in production. It is for benchmarks.
	// Tests are faster without it, and lose data only if the machine itself crashes.
	Durable bool

	// MaxConnections is the server's max_connections. Zero means 300.
	MaxConnections int

	// Settings are further server settings by name, such as "shared_preload_libraries". They override
	// the settings of this package.
	Settings map[string]string

	// Environment has further variables of the server's environment, such as "LD_PRELOAD=…".
	Environment []string

	// Dir is the directory in which the server's own directory is made. Empty means that localpg chooses.
	Dir string
}

// A Mode says how Restart ends the server.
type Mode int

const (
	// Fast ends the sessions, rolls back their open transactions, and shuts down cleanly.
	Fast Mode = iota
	// Immediate ends the server as a crash would. The next start replays the log.
	Immediate
)

// A Cluster is a running Postgres server. Its methods are safe for concurrent use.
type Cluster struct {
	bin      string // directory of the programs
	dir      *directory
	password string
	settings []string
	environ  []string

	mu      sync.Mutex // held while the server is started or ended
	port    int
	server  *process
	stopped bool
}

// Open returns the DSN of the server that KAGZI_TEST_DATABASE_URL names, or else of a throwaway server that it starts.
// The caller must call stop when nothing uses the server any more; it ends a server that Open started.
func Open(ctx context.Context) (dsn string, stop func() error, err error) {
	if dsn := os.Getenv("KAGZI_TEST_DATABASE_URL"); dsn != "" {
		return dsn, func() error { return nil }, nil
	}
	// Autovacuum would change the statistics, and with them plans, in the middle of a test.
	c, err := Config{Settings: map[string]string{"autovacuum_naptime": "2147483s"}}.Start(ctx)
	if errors.Is(err, errNoPrograms) {
		return "", nil, fmt.Errorf("%w; or set KAGZI_TEST_DATABASE_URL to a running server's", err)
	}
	if err != nil {
		return "", nil, err
	}
	return c.DSN(), c.Stop, nil
}

// Start starts a server with the zero [Config].
func Start(ctx context.Context) (*Cluster, error) { return Config{}.Start(ctx) }

// Start starts a server and returns once it accepts connections. ctx governs the start only: the server runs
// until Stop, or until this process ends. If no Postgres is installed, the error says how to install it.
func (cfg Config) Start(ctx context.Context) (_ *Cluster, err error) {
	bin, version, err := findPrograms(os.Getenv, programDirs())
	if err != nil {
		return nil, err
	}
	owner, err := serverUser()
	if err != nil {
		return nil, fmt.Errorf("localpg: %w", err)
	}
	sweep()
	dir, err := newDirectory(owner, cfg.Durable, cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("localpg: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.remove())
		}
	}()
	c := &Cluster{bin: bin, dir: dir, settings: cfg.arguments(), environ: cfg.Environment}
	if c.password, err = initialize(ctx, bin, version, dir); err != nil {
		return nil, fmt.Errorf("localpg: %w", err)
	}
	if err := c.runAnywhere(ctx); err != nil {
		return nil, fmt.Errorf("localpg: %w", err)
	}
	return c, nil
}

// runAnywhere starts the server on a free port. A port cannot be reserved: another process may take it before the
// server does.
func (c *Cluster) runAnywhere(ctx context.Context) (err error) {
	for range 5 {
		if c.port, err = freePort(); err != nil {
			return err
		}
		if err = c.run(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return err
}

// DSN returns the URL of the server's database postgres over TCP, for its superuser. The password in it is
// known to this user's processes only.
func (c *Cluster) DSN() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketDSN is DSN over the Unix socket, over which connections open faster.
func (c *Cluster) SocketDSN() string {
	q := url.Values{"host": {c.dir.socket()}, "port": {strconv.Itoa(c.port)}, "sslmode": {"disable"}}
	return "postgres://postgres@/postgres?" + q.Encode()
}

// Restart ends the server and starts it again on the same port with the same data. It also starts a server
// that ended by itself. It returns once the server accepts connections.
func (c *Cluster) Restart(ctx context.Context, mode Mode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("localpg: restart of a stopped server")
	}
	how := shutdownFast
	if mode == Immediate {
		how = shutdownImmediate
	}
	c.server.end(how)
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("localpg: restart: %w", err)
	}
	return nil
}

// Stop ends the server and removes its data. It returns once both are gone. Further calls do nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	c.server.end(shutdownImmediate) // the data is not read again, so it need not be written
	return c.dir.remove()
}

// PID returns the process ID of the postmaster, for tests that send it signals.
func (c *Cluster) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.pid()
}

// LogFile returns the path of the server's log, which is there until Stop.
func (c *Cluster) LogFile() string { return c.dir.logFile() }

// arguments returns the settings as command-line arguments, in a fixed order.
func (cfg Config) arguments() []string {
	settings := map[string]string{
		"max_connections": strconv.Itoa(cmp.Or(cfg.MaxConnections, 300)),
		// People read the log when a test has failed, often in another time zone than the server's.
		"log_line_prefix": "%m [%p] %d ",
		"log_timezone":    "UTC",
		"timezone":        "UTC",
	}
	if cfg.Durable {
		// No checkpoint should fall into a measurement.
		settings["max_wal_size"] = "4GB"
	} else {
		// Without fsync a commit is still written to the operating system before it is acknowledged, so it
		// survives the end of the server, though not of the machine. synchronous_commit stays on: without it
		// Restart(Immediate) would lose acknowledged commits.
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, cfg.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// errPortTaken reports that another process listens on the port.
var errPortTaken = errors.New("port taken")

// run starts the server on c.port and waits until it is ready.
func (c *Cluster) run(ctx context.Context) error {
	args := append([]string{
		"-D", c.dir.data(),
		"-p", strconv.Itoa(c.port),
		"-h", "127.0.0.1",
		"-k", c.dir.socket(),
	}, c.settings...)
	offset := c.dir.logSize()
	server, err := startProcess(filepath.Join(c.bin, "postgres"), args, c.dir, c.environ...)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-server.done:
			said := c.dir.logFrom(offset)
			if strings.Contains(said, "could not create any TCP/IP sockets") {
				return errPortTaken
			}
			return fmt.Errorf("postgres ended: %w\n%s", server.err, said)
		case <-ctx.Done():
			server.end(shutdownImmediate)
			return fmt.Errorf("waiting for postgres: %w\n%s", context.Cause(ctx), c.dir.logFrom(offset))
		case <-tick.C:
		}
		if c.ready(server.pid()) {
			c.server = server
			return nil
		}
	}
}

// ready reports whether postmaster.pid says that the server with this process ID accepts connections. A test connection
// would prove nothing: another process that took the port might answer it.
func (c *Cluster) ready(pid int) bool {
	b, err := os.ReadFile(filepath.Join(c.dir.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 8 || strings.TrimSpace(lines[0]) != strconv.Itoa(pid) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby"
}

// freePort returns a port without a listener. It lies below the range of the ports of outgoing connections: during a
// restart, a client that dials a port in that range may get the same port, connect to itself, and keep the server out.
func freePort() (int, error) {
	var err error
	for range 50 {
		port := 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
