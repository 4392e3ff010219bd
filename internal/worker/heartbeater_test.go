package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/kind"
)

// begun runs w until the test ends, and returns its session.
func begun(t *testing.T, w *kagzi.Worker) *worker.Session {
	t.Helper()
	sessions := make(chan testhook.Session, 1)
	kit.HooksOf(t, w).Begun = func(s testhook.Session) { sessions <- s }
	kit.StartLocal(t, w)
	return worker.SessionOf(await.Receive(t, sessions))
}

// A halfOpen is a connection that, once silent, drops all data in both directions without an error to either side, as
// when a firewall forgets it.
type halfOpen struct {
	net.Conn
	heartbeats atomic.Bool // heartbeats go through it
	silent     atomic.Bool
}

func (c *halfOpen) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("SET heartbeat_at")) {
		c.heartbeats.Store(true)
	}
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *halfOpen) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// TestHalfOpenConnectionOfTheHeartbeater silences only the heartbeater's connection: the heartbeater replaces it before
// it must give up the runs under way.
func TestHalfOpenConnectionOfTheHeartbeater(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []*halfOpen
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &halfOpen{Conn: conn}
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return c, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	g, runs, _ := kit.Gated(t, kit.NewClient(t, pool), kagzi.WorkerConfig{
		Heartbeat: 200 * time.Millisecond, StaleAfter: 24 * time.Second,
		Coordinator: kagzi.CoordinatorConfig{Grace: 15 * time.Second},
	}, 3)
	await.True(t, "the heartbeater's connection is silent", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			if c.heartbeats.Load() {
				c.silent.Store(true)
				return true
			}
		}
		return false
	})
	from := dbtest.QueryOne[time.Time](t, db.Pool, `SELECT clock_timestamp()`)
	await.True(t, "heartbeats are sent again", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT heartbeat_at > $1::timestamptz + interval '400 ms'
			FROM kagzi.workers`, from)
	})
	if len(g.Cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.Cause)
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestSlowConnections has each connection take longer to open than a heartbeat waits for it, as on a machine under
// load. The worker starts. When the server has ended its connection, it opens another one, and keeps its runs.
func TestSlowConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-time.After(9200 * time.Millisecond): // the Grace of this test leaves nine seconds
			return dial(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := kit.NewWorker(t, kit.NewClient(t, pool), kagzi.WorkerConfig{
		NoCoordinator: true, Coordinator: kagzi.CoordinatorConfig{Grace: 27 * time.Second},
	})
	g := kit.NewGate()
	g.Handle(w)
	runs := kit.StartRuns(t, kit.NewClient(t, db.Pool), g.Workflow, 1)
	kit.StartLocal(t, w)
	await.Receive(t, g.Begun)
	const backend = `SELECT coalesce(backend_pid, 0) FROM kagzi.workers`
	first := dbtest.QueryOne[int](t, db.Pool, backend)
	if first == 0 {
		t.Error("the worker has registered without a connection of its own")
	}
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend($1)`, first)
	await.True(t, "the worker has another connection", func() bool {
		pid := dbtest.QueryOne[int](t, db.Pool, backend)
		return pid != 0 && pid != first
	})
	if len(g.Cause) > 0 {
		t.Errorf("a step's context ended: %v", <-g.Cause)
	}
	close(g.Open)
	kit.CheckResults(t, runs, func(int) string { return "opened" })
}

// TestFencedRunsAreYieldedOverNewConnections shows that runs which a worker gave up in an outage go on afterwards,
// although the outage broke every connection and the leases have minutes left.
func TestFencedRunsAreYieldedOverNewConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	g, runs, _ := kit.Gated(t, kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(6))), kit.Quick, 2)
	proxy.Freeze()
	g.LosesLeases(t, len(runs))
	proxy.CutAll()
	proxy.Unfreeze()
	close(g.Open)
	kit.CheckResults(t, g.Through(t, kit.NewClient(t, db.Pool), runs), func(int) string { return "opened" })
}

// TestRunsOfADeadWorkerIDAreYielded shows that runs which a worker holds under an ID that was declared dead go on under
// its new ID: no coordinator releases the old ID's runs a second time, and the leases have minutes left.
func TestRunsOfADeadWorkerIDAreYielded(t *testing.T) {
	t.Parallel()
	const declareDead = `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`
	const holder = `SELECT w.status FROM kagzi.workflow_runs r JOIN kagzi.workers w ON w.worker_id = r.locked_by`

	t.Run("BegunBeforeItKnew", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		g, runs, _ := kit.Gated(t, kit.NewClient(t, db.Pool), kit.Quick, 3)
		dbtest.Exec(t, db.Pool, declareDead)
		g.LosesLeases(t, len(runs))
		close(g.Open)
		kit.CheckResults(t, runs, func(int) string { return "opened" })
	})
	t.Run("ClaimedBeforeAndAnsweredAfter", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		c := kit.NewClient(t, db.Pool)
		w := kit.NewWorker(t, c, kit.Quick)
		g := kit.NewGate()
		g.Handle(w)
		runs := kit.StartRuns(t, c, g.Workflow, 1)
		claimed, answer := kit.HangAt(t, w, "after claim")
		kit.StartLocal(t, w)
		defer answer()
		await.Receive(t, claimed)
		dbtest.Exec(t, db.Pool, declareDead)
		await.True(t, "the worker is registered again", func() bool {
			return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'ONLINE'`) == 1
		})
		answer()
		await.Receive(t, g.Begun)
		if status := dbtest.QueryOne[string](t, db.Pool, holder); status != "ONLINE" {
			t.Errorf("the run is executed by a worker that is %s", status)
		}
		close(g.Open)
		kit.CheckResults(t, runs, func(int) string { return "opened" })
	})
}

// TestRunForAnotherVersionWakesItsWorker starts a run in a process whose worker has a free slot, but no handler of the
// run's version: the worker in another process that has one must be notified, and not find the run at its next claim.
func TestRunForAnotherVersionWakesItsWorker(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	wf := kagzi.Define[int, int]("wf")
	var clients []*kagzi.Client
	for version := 1; version <= 2; version++ {
		c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(6)))
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: time.Hour})
		kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) { return version, nil }, kagzi.Version(version))
		s := begun(t, w)
		clients = append(clients, c)
		await.True(t, "the worker waits for its next claim", func() bool {
			return !worker.ClaimsWithin(s, time.Minute) && worker.Listens(s)
		})
	}
	for want := 1; want <= 2; want++ {
		run, err := kagzi.Start(ctx, clients[0], wf, 0, kagzi.Version(want))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := run.Result(ctx); got != want || err != nil {
			t.Fatalf("got %d, %v; want %d: the worker was not notified", got, err, want)
		}
	}
}

// TestFenceOfAnIdleWorker shows that a fenced worker without runs does not report a loss.
func TestFenceOfAnIdleWorker(t *testing.T) {
	t.Parallel()
	c, logged := kit.LoggedClient(t, kit.Unreachable(t))
	s := worker.New(configOf(t, idleWorker(t, c, kagzi.WorkerConfig{})))
	worker.Fence(s, "it is late")
	logged.WantLine(t, "WARN", "others may take this worker for dead: claiming no runs", "it is late", "worker="+
		s.ID().String())
	if logged.Has("ERROR") {
		t.Error("an error was logged")
	}
}

// TestLeaseThatCannotBeExtendedCostsNoOther has the database refuse to extend the lease of one of three runs: the other
// two are extended over the same connection, a cancel of one of them is noticed, and the log names the refused run.
func TestLeaseThatCannotBeExtendedCostsNoOther(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := kit.LoggedClient(t, db.Pool)
	g, runs, _ := kit.Gated(t, c, kagzi.WorkerConfig{
		Heartbeat: 50 * time.Millisecond, StaleAfter: time.Hour, LeaseTimeout: time.Hour,
		Coordinator: kagzi.CoordinatorConfig{NoGrace: true},
	}, 3)
	bad, cancelled := runs[1], runs[2]
	backend := dbtest.QueryOne[int](t, db.Pool, `SELECT backend_pid FROM kagzi.workers`)
	dbtest.Exec(t, db.Pool, fmt.Sprintf(`
		CREATE FUNCTION public.damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'damaged'
			USING ERRCODE = 'XX001'; END $$;
		CREATE TRIGGER damaged BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW
			WHEN (NEW.run_id = '%s'
				AND OLD.available_at < NEW.available_at) EXECUTE FUNCTION public.damaged()`, bad.ID()))
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() + interval '5 minutes'`)
	await.True(t, "the others are extended", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE available_at > now() + interval '50 minutes'`) == 2
	})
	if !dbtest.QueryOne[bool](t, db.Pool, `SELECT available_at < now() + interval '6 minutes' FROM kagzi.workflow_runs
		WHERE run_id = $1`, string(bad.ID())) {
		t.Error("INVALID: it was extended, too")
	}
	logged.WantLine(t, "the database refuses an operation of the worker", worker.Extending, string(bad.ID()))
	// without a notification
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET cancel_requested_at = now() WHERE run_id = $1`,
		string(cancelled.ID()))
	if cause := await.Receive(t, g.Cause); kagzi.KindOf(cause) != kind.Cancelled {
		t.Errorf("the cause is %v, want that it was cancelled", cause)
	}
	if now := dbtest.QueryOne[int](t, db.Pool, `SELECT backend_pid FROM kagzi.workers`); now != backend {
		t.Errorf("the heartbeater has another connection")
	}
	close(g.Open)
	kit.CheckResults(t, runs[:2], func(int) string { return "opened" })
}
