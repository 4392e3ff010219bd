//go:build unix

package kagzi

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// graceful is a configuration in which a worker gives its runs up for no other reason than Grace.
var graceful = WorkerConfig{Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, LeaseTimeout: time.Hour, NoCoordinator: true}

// TestLostPathIsFencedWithinGrace loses the path between a worker and a server that ends its connections and goes on: no
// packet comes through any more, and nobody is told. The worker gives its runs up by itself, and with others' executions of
// them its own does not overlap.
func TestLostPathIsFencedWithinGrace(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	g, runs, _ := gated(t, newTestClient(t, openPool(t, proxy.DSN(), 5)), graceful, 2)
	proxy.Freeze()
	// All but this connection, of another pool, are the worker's.
	execSQL(t, db.Pool, `SELECT pg_terminate_backend(w.backend_pid) FROM kagzi.workers w`)
	lost := time.Now()
	other := newGate()
	w := newTestWorker(t, newTestClient(t, db.Pool), mute)
	other.handle(w)
	startLocal(t, w)
	g.losesLeases(t, len(runs))
	fenced := time.Now()
	receive(t, other.begun)
	t.Logf("fenced after %v, executed elsewhere after %v", fenced.Sub(lost).Round(time.Millisecond), time.Since(lost).Round(time.Millisecond))
	close(other.open)
	checkResults(t, g.through(t, newTestClient(t, db.Pool), runs), func(int) string { return "opened" })
	proxy.Unfreeze()
}

// TestServerThatIsDownFencesNobody stops the server for longer than Grace: nobody can take the worker for dead then.
func TestServerThatIsDownFencesNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	server, pool := ownServer(ctx, t, 10)
	c, logged := loggedClient(t, pool)
	g, runs, _ := gated(t, c, graceful, 2)
	execSQL(t, pool, `CHECKPOINT`) // a claim's commit does not wait for the disk
	if err := syscall.Kill(server.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	down := time.Now()
	waitFor(t, "more than Grace passes", func() bool { return time.Since(down) > 5*time.Second })
	if err := server.Restart(ctx, localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the worker has another connection", func() bool {
		var yes bool
		err := pool.QueryRow(ctx, `SELECT server_start = pg_postmaster_start_time() FROM kagzi.workers`).Scan(&yes)
		return err == nil && yes
	})
	if len(g.cause) > 0 || logged.has("giving up the runs") {
		t.Errorf("the worker gave its runs up:\n%s", logged)
	}
	close(g.open)
	checkResults(t, runs, func(int) string { return "opened" })
}

// TestWorkerOutlivesAReadOnlyServer makes the server read-only below a worker, as a failover does for a while.
func TestWorkerOutlivesAReadOnlyServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server, pool := ownServer(ctx, t, 10)
	admin, err := pgxpool.New(ctx, server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	set := func(sql string) {
		for _, q := range []string{`SET default_transaction_read_only = off`, sql, `SELECT pg_reload_conf()`} {
			if _, err := admin.Exec(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, logged := loggedClient(t, pool)
	g, runs, stop := gated(t, c, graceful, 2)
	set(`ALTER SYSTEM SET default_transaction_read_only = on`)
	waitFor(t, "nothing can be written", func() bool {
		_, err := Start(ctx, c, nothing, 1)
		return err != nil
	})
	close(g.open)
	logged.wantLine(t, "the database does not answer", "read-only")
	set(`ALTER SYSTEM RESET default_transaction_read_only`)
	checkResults(t, runs, func(int) string { return "opened" })
	logged.wantLine(t, "the database is back")
	set(`ALTER SYSTEM SET default_transaction_read_only = on`)
	stop()
	w := newTestWorker(t, newTestClient(t, poolWith(t, server.DSN(), "default_transaction_read_only", "on")), graceful)
	newGate().handle(w)
	mustContain(t, w.Run(ctx), "read-only", "primary")
}

// A heard is a workflow of two steps, whose code between them goes on when the test says so, in the worker that has a gate.
type heard struct {
	wf      Workflow[int, string]
	between chan struct{} // who has a gate is there
	left    chan struct{} // who has a gate has returned, or was ended

	mu    sync.Mutex
	calls []string
}

func (s *heard) handle(w *Worker, who string, gate chan struct{}) {
	Handle(w, s.wf, func(ctx Context, _ int) (string, error) {
		if gate != nil {
			defer close(s.left)
		}
		for i, name := range []string{"one", "two"} {
			if i == 1 && gate != nil {
				s.between <- struct{}{}
				<-gate
			}
			if err := Do(ctx, name, func(context.Context) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.calls = append(s.calls, who+" "+name)
				return nil
			}); err != nil {
				return "", err
			}
		}
		return "ok", nil
	})
}

// TestNoStepIsCalledWhileNothingIsHeard cuts a worker off whose function is between two steps. Another one completes the
// run. The first must not call what is recorded by then, however it was cut off: a connection that is refused is no proof
// that the server is down, and a beat under way may wait for its answer for longer than Grace.
func TestNoStepIsCalledWhileNothingIsHeard(t *testing.T) {
	t.Parallel()
	during := func(statement string) func(*testing.T, *pgxpool.Pool, *pgproxy.Proxy) {
		return func(t *testing.T, direct *pgxpool.Pool, proxy *pgproxy.Proxy) {
			hold := proxy.HoldAck(pgproxy.Contains(statement))
			t.Cleanup(hold.Release)
			refreshAll(t, direct) // has it beat
			receive(t, hold.Done())
			proxy.Freeze()
		}
	}
	for name, cut := range map[string]func(*testing.T, *pgxpool.Pool, *pgproxy.Proxy){
		"Heartbeat": during("SET heartbeat_at"),
		"States":    during("q.wakeups, q.cancel_requested_at, q.deadline_at, q.available_at"),
		"Refused": func(t *testing.T, _ *pgxpool.Pool, proxy *pgproxy.Proxy) {
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		},
		"RefusedByOneOfTwoHosts": func(_ *testing.T, _ *pgxpool.Pool, proxy *pgproxy.Proxy) {
			proxy.Freeze()
			proxy.CutAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			proxy := pgproxy.Start(t, db.DSN)
			t.Cleanup(proxy.Unfreeze)
			u, err := url.Parse(proxy.DSN())
			if err != nil {
				t.Fatal(err)
			}
			if name == "RefusedByOneOfTwoHosts" {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				u.Host = l.Addr().String() + "," + u.Host
				_ = l.Close()
			}
			c := newTestClient(t, openPool(t, u.String(), 5))
			s := &heard{wf: Define[int, string]("heard"), between: make(chan struct{}, 1), left: make(chan struct{})}
			gate := make(chan struct{})
			w := newTestWorker(t, c, WorkerConfig{NoCoordinator: true, DrainTimeout: time.Second})
			s.handle(w, "old", gate)
			runs := startRuns(t, newTestClient(t, db.Pool), s.wf, 1)
			stop := startLocal(t, w)
			open := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(open)
			receive(t, s.between)
			waitListening(t, db.Pool, 1)
			cut(t, db.Pool, proxy)
			execSQL(t, db.Pool, `SELECT pg_terminate_backend(w.backend_pid) FROM kagzi.workers w WHERE backend_pid IS NOT NULL`)
			other := newTestWorker(t, newTestClient(t, db.Pool), mute)
			s.handle(other, "new", nil)
			startLocal(t, other)
			checkResults(t, runs, func(int) string { return "ok" })
			open()
			if name == "Refused" {
				stop()
			} else {
				proxy.Unfreeze()
				receive(t, s.left)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := strings.Join(s.calls, ", "); got != "old one, new two" {
				t.Errorf("called: %s", got)
			}
		})
	}
}

// TestConnectionsOfAReadOnlySpellAreNotKept has every connection of a worker's pool begin while the database is read-only:
// such a session stays read-only for good, so the worker goes on only with others.
func TestConnectionsOfAReadOnlySpellAreNotKept(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	pool := openPool(t, db.DSN, 2)
	c, logged := loggedClient(t, pool)
	w := newTestWorker(t, c, WorkerConfig{PollInterval: 100 * time.Millisecond})
	Handle(w, nothing, func(Context, int) (string, error) { return "", nil })
	startWorker(t, w)
	admin := newTestClient(t, db.Pool)
	checkResults(t, startRuns(t, admin, nothing, 1), func(int) string { return "" })
	conn := dbtest.Connect(t, db.DSN) // that can write
	set := func(change string) {
		if _, err := conn.Exec(t.Context(), `ALTER DATABASE `+db.Name+change); err != nil {
			t.Fatal(err)
		}
	}
	set(` SET default_transaction_read_only = on`)
	pool.Reset()
	all := pool.AcquireAllIdle(t.Context()) // none is left that can write
	for len(all) < 2 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	for _, conn := range all {
		conn.Release()
	}
	logged.wantLine(t, "the database does not answer", "read-only")
	set(` RESET default_transaction_read_only`)
	checkResults(t, startRuns(t, admin, nothing, 1), func(int) string { return "" })
	logged.wantLine(t, "the database is back")
}
