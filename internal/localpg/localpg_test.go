//go:build unix

package localpg

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
)

// A test that needs a process to kill starts this test binary again with this variable set.
const parentVariable = "LOCALPG_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		beParent()
	}
	os.Exit(m.Run())
}

// beParent starts a server, prints its directory and DSN, and waits until it is killed.
func beParent() {
	c, err := Start(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.dir.path)
	fmt.Println(c.SocketDSN())
	select {}
}

func start(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := cfg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func setting(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var value string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestStart(t *testing.T) {
	t.Parallel()
	start(t, Config{}) // fills the cache for the next start
	before := time.Now()
	c := start(t, Config{})
	took := time.Since(before)
	t.Logf("started in %v", took)
	if took > 30*time.Second {
		t.Errorf("start took %v, want about 1 s", took)
	}

	tcp, socket := connect(t, c.DSN()), connect(t, c.SocketDSN())
	for name, want := range map[string]string{
		"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on", "max_connections": "300",
	} {
		if got := setting(t, tcp, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := tcp.PgConn().Conn().RemoteAddr().Network(); got != "tcp" {
		t.Errorf("DSN leads over %s", got)
	}
	if got := socket.PgConn().Conn().RemoteAddr().Network(); got != "unix" {
		t.Errorf("SocketDSN leads over %s", got)
	}

	t.Run("TCPNeedsThePassword", func(t *testing.T) {
		dsn := strings.Replace(c.DSN(), c.password, "wrong", 1)
		if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
			_ = conn.Close(t.Context())
			t.Error("connected without the password")
		}
	})

	t.Run("StopRemovesEverything", func(t *testing.T) {
		dir, data := c.dir.path, c.dir.data()
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("second stop: %v", err)
		}
		if !missing(dir) {
			t.Errorf("%s is still there", dir)
		}
		if pids := serverProcesses(t, data); len(pids) > 0 {
			t.Errorf("processes %v still run", pids)
		}
		if err := c.Restart(t.Context(), Fast); err == nil {
			t.Error("restarted after stop")
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	c := start(t, Config{
		Durable:        true,
		MaxConnections: 17,
		Settings:       map[string]string{"shared_preload_libraries": "pg_stat_statements", "full_page_writes": "off"},
	})
	if strings.HasPrefix(c.dir.path, memoryDir) {
		t.Errorf("durable data in %s", c.dir.path)
	}
	conn := connect(t, c.DSN())
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "max_connections": "17",
		"shared_preload_libraries": "pg_stat_statements", "full_page_writes": "off",
	} {
		if got := setting(t, conn, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestBadSettingIsReported(t *testing.T) {
	t.Parallel()
	_, err := Config{Settings: map[string]string{"no_such_setting": "1"}}.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want the server's message", err)
	}
}

func TestStartsAtOnce(t *testing.T) {
	// With an empty cache, all of them make a template.
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c, err := Start(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if conn, err := pgx.Connect(t.Context(), c.DSN()); err != nil {
				t.Error(err)
			} else {
				_ = conn.Close(t.Context())
			}
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kept, err := os.ReadDir(cacheDir())
	if err != nil || len(kept) != 1 {
		t.Errorf("cache holds %v, %v; want one template", kept, err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]Mode{"Fast": Fast, "Immediate": Immediate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, Config{})
			dsn := c.DSN()
			conn := connect(t, dsn)
			if _, err := conn.Exec(t.Context(), "CREATE TABLE kept (n int)"); err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(t.Context(), mode); err != nil {
				t.Fatal(err)
			}
			if err := conn.Ping(t.Context()); err == nil {
				t.Error("a session outlived the restart")
			}
			if _, err := connect(t, dsn).Exec(t.Context(), "SELECT n FROM kept"); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("AfterTheServerDied", func(t *testing.T) {
		t.Parallel()
		c := start(t, Config{})
		if err := syscall.Kill(c.PID(), syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the server has ended", func() bool { return len(serverProcesses(t, c.dir.data())) == 0 })
		if err := c.Restart(t.Context(), Fast); err != nil {
			t.Fatal(err)
		}
		connect(t, c.DSN())
	})
}

func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the parent printed nothing")
	}
	dir := lines.Text()
	if !lines.Scan() {
		t.Fatalf("the parent printed only %s", dir)
	}
	data := filepath.Join(dir, "pg", "data")
	connect(t, lines.Text()) // so that the process of a session must end, too
	if len(serverProcesses(t, data)) == 0 {
		t.Fatal("found none of the server's processes")
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	await.True(t, "no process of the server is left", func() bool { return len(serverProcesses(t, data)) == 0 })
	await.True(t, "the directory has been swept", func() bool { sweep(); return missing(dir) })
}

func TestSweepKeepsARunningServer(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	sweep()
	if missing(c.dir.data()) {
		t.Error("a running server's data was swept away")
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	watched := exec.Command("sleep", "600")
	if err := watched.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watched.Process.Kill(); _ = watched.Wait() }()
	unwatch, err := watch(watched.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	unwatch()
	if err := watched.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("unwatch ended the watched process: %v", err)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	none := func(string) string { return "" }
	_, _, err := findPrograms(none, nil)
	if err == nil || !strings.Contains(err.Error(), installCommand()) {
		t.Errorf("got %v, want it to name %q", err, installCommand())
	}

	t.Run("NamedDirectoryIsTheOnlyOne", func(t *testing.T) {
		_, _, err := findPrograms(func(string) string { return "/nowhere" }, programDirs())
		if err == nil || !strings.Contains(err.Error(), "/nowhere") {
			t.Errorf("got %v, want it to name the directory", err)
		}
	})

	t.Run("NewestFirst", func(t *testing.T) {
		found := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/9.10/bin"}
		want := []string{found[0], found[2], found[1]}
		if slices.SortFunc(found, compareVersions); !slices.Equal(found, want) {
			t.Errorf("sorted to %v, want %v", found, want)
		}
	})
}

func TestPruneTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old": templateLife + time.Hour, "new": templateLife - time.Hour} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	pruneTemplates(dir)
	if !missing(filepath.Join(dir, "old")) || missing(filepath.Join(dir, "new")) {
		t.Error("did not remove exactly the old one")
	}
}

func TestOpenPrefersTheNamedServer(t *testing.T) {
	const named = "postgres://elsewhere/db"
	t.Setenv("KAGZI_TEST_DATABASE_URL", named)
	dsn, stop, err := Open(t.Context())
	if err != nil || dsn != named {
		t.Errorf("got %q, %v", dsn, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestOwnedByUs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link, open := filepath.Join(dir, "link"), filepath.Join(dir, "open")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if !ownedByUs(open) {
		t.Error("refused a directory of our own")
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, open, filepath.Join(dir, "missing")} {
		if ownedByUs(path) {
			t.Errorf("accepted %s", path)
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(open, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(open, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if ownedByUs(open) {
			t.Error("accepted somebody else's directory")
		}
	}
}

// serverProcesses returns the processes whose working directory is the data directory, without zombies.
func serverProcesses(t *testing.T, data string) []int {
	t.Helper()
	if missing("/proc/self/cwd") {
		t.Skip("needs /proc")
	}
	cwds, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, cwd := range cwds {
		target, err := os.Readlink(cwd)
		if err != nil || strings.TrimSuffix(target, " (deleted)") != data {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(cwd, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
