//go:build unix

package crash_test

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

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// graceful is the configuration of a worker that gives up its runs only because of Grace.
var graceful = kagzi.WorkerConfig{
	Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, LeaseTimeout: time.Hour,
	NoCoordinator: true,
}

// The network between a worker and the server loses all packets, and the server ends the worker's connections. The
// worker fences itself: it gives up its runs before other workers execute them.
func TestLostPathIsFencedWithinGrace(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	g, runs, _ := kit.Gated(t, kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(5))), graceful, 2)
	proxy.Freeze()
	// All but this connection, of another pool, are the worker's.
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(w.backend_pid) FROM kagzi.workers w`)
	lost := time.Now()
	other := kit.NewGate()
	w := kit.NewWorker(t, kit.NewClient(t, db.Pool), kit.RareHeartbeats)
	other.Handle(w)
	kit.StartLocal(t, w)
	g.LosesLeases(t, len(runs))
	fenced := time.Now()
	await.Receive(t, other.Begun)
	t.Logf("fenced after %v, executed elsewhere after %v", fenced.Sub(lost).Round(time.Millisecond),
		time.Since(lost).Round(time.Millisecond))
	close(other.Open)
	kit.CheckResults(t, g.Through(t, kit.NewClient(t, db.Pool), runs), func(int) string { return "opened" })
	proxy.Unfreeze()
}

// The server is down for longer than Grace. The worker keeps its runs, because no coordinator can declare it dead
// meanwhile.
func TestServerThatIsDownFencesNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*await.Patience)
	defer cancel()
	server, pool := kit.OwnServer(ctx, t, 10)
	c, logged := kit.LoggedClient(t, pool)
	cfg := graceful
	cfg.Coordinator.Grace = 9 * time.Second // the connection was there within two thirds of it, on a busy machine, too
	g, runs, _ := kit.Gated(t, c, cfg, 2)
	dbtest.Exec(t, pool, `CHECKPOINT`) // a claim's commit does not wait for the disk
	if err := syscall.Kill(server.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	down := time.Now()
	await.True(t, "more than Grace passes", func() bool {
		return time.Since(down) > cfg.Coordinator.Grace+2*time.Second
	})
	if err := server.Restart(ctx, localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the worker has another connection", func() bool {
		var yes bool
		err := pool.QueryRow(ctx, `SELECT server_start = pg_postmaster_start_time() FROM kagzi.workers`).Scan(&yes)
		return err == nil && yes
	})
	if len(g.Cause) > 0 || logged.Has("giving up the runs") {
		t.Errorf("the worker gave its runs up:\n%s", logged)
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestWorkerOutlivesAReadOnlyServer makes the server read-only below a worker, as a failover does for a while.
func TestWorkerOutlivesAReadOnlyServer(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	server, pool := kit.OwnServer(ctx, t, 10)
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
	c, logged := kit.LoggedClient(t, pool)
	g, runs, stop := kit.Gated(t, c, graceful, 2)
	set(`ALTER SYSTEM SET default_transaction_read_only = on`)
	await.True(t, "nothing can be written", func() bool {
		_, err := kagzi.Start(ctx, c, kit.Nothing, 1)
		return err != nil
	})
	close(g.Open)
	logged.WantLine(t, "the database does not answer", "read-only")
	set(`ALTER SYSTEM RESET default_transaction_read_only`)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
	logged.WantLine(t, "the database is back")
	set(`ALTER SYSTEM SET default_transaction_read_only = on`)
	stop()
	w := kit.NewWorker(t, kit.NewClient(t,
		dbtest.OpenPool(t, server.DSN(), dbtest.Setting("default_transaction_read_only", "on"))), graceful)
	kit.NewGate().Handle(w)
	kit.MustContain(t, w.Run(ctx), "read-only", "primary")
}

// A heard is a workflow of two steps. In the worker that has a gate, the code between the steps waits for the test.
type heard struct {
	wf      kagzi.Workflow[int, string]
	between chan struct{} // who has a gate is there
	left    chan struct{} // who has a gate has returned, or was ended

	mu    sync.Mutex
	calls []string
}

func (s *heard) handle(w *kagzi.Worker, who string, gate chan struct{}) {
	kagzi.Handle(w, s.wf, func(ctx kagzi.Context, _ int) (string, error) {
		if gate != nil {
			defer close(s.left)
		}
		for i, name := range []string{"one", "two"} {
			if i == 1 && gate != nil {
				s.between <- struct{}{}
				<-gate
			}
			if err := kagzi.Do(ctx, name, func(context.Context) error {
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

// A worker loses its connection to the server while a function is between two steps, and another worker completes the
// run. The first must not call the step that is recorded by then, however it lost the connection: a refused connection
// does not prove that the server is down, and a heartbeat may wait for its answer for longer than Grace.
func TestNoStepIsCalledWhileNothingIsHeard(t *testing.T) {
	t.Parallel()
	during := func(statement string) func(*testing.T, *pgxpool.Pool, *pgproxy.Proxy) {
		return func(t *testing.T, direct *pgxpool.Pool, proxy *pgproxy.Proxy) {
			hold := proxy.HoldAck(pgproxy.Contains(statement))
			t.Cleanup(hold.Release)
			kit.RefreshAll(t, direct) // has it send a heartbeat
			await.Receive(t, hold.Done())
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
			c := kit.NewClient(t, dbtest.OpenPool(t, u.String(), dbtest.Conns(5)))
			s := &heard{
				wf: kagzi.Define[int, string]("heard"), between: make(chan struct{}, 1),
				left: make(chan struct{}),
			}
			gate := make(chan struct{})
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{NoCoordinator: true, DrainTimeout: time.Second})
			s.handle(w, "old", gate)
			runs := kit.StartRuns(t, kit.NewClient(t, db.Pool), s.wf, 1)
			stop := kit.StartLocal(t, w)
			open := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(open)
			await.Receive(t, s.between)
			await.True(t, "the first step is recorded", func() bool {
				return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs
					WHERE status = 'COMPLETED'`) == 1
			})
			kit.WaitListening(t, db.Pool, 1)
			cut(t, db.Pool, proxy)
			dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(w.backend_pid) FROM kagzi.workers w
				WHERE backend_pid IS NOT NULL`)
			other := kit.NewWorker(t, kit.NewClient(t, db.Pool), kit.RareHeartbeats)
			s.handle(other, "new", nil)
			kit.StartLocal(t, other)
			kit.CheckResults(t, runs, func(int) string { return "ok" })
			open()
			if name == "Refused" {
				stop()
			} else {
				proxy.Unfreeze()
				await.Receive(t, s.left)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := strings.Join(s.calls, ", "); got != "old one, new two" {
				t.Errorf("called: %s", got)
			}
		})
	}
}

// All connections of a worker's pool are opened while the database is read-only. Such sessions stay read-only, so the
// worker must replace them.
func TestConnectionsOfAReadOnlySpellAreNotKept(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	pool := dbtest.OpenPool(t, db.DSN, dbtest.Conns(2))
	c, logged := kit.LoggedClient(t, pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: 100 * time.Millisecond})
	kagzi.Handle(w, kit.Nothing, func(kagzi.Context, int) (string, error) { return "", nil })
	kit.StartWorker(t, w)
	admin := kit.NewClient(t, db.Pool)
	kit.CheckResults(t, kit.StartRuns(t, admin, kit.Nothing, 1), func(int) string { return "" })
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
	logged.WantLine(t, "the database does not answer", "read-only")
	set(` RESET default_transaction_read_only`)
	kit.CheckResults(t, kit.StartRuns(t, admin, kit.Nothing, 1), func(int) string { return "" })
	logged.WantLine(t, "the database is back")
}
