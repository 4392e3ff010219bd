package namespaces

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
)

// dieInCopy calls Move, and ends its goroutine in the copy, as the death of the process does.
func dieInCopy(t *testing.T, from, to *kagzi.Client) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := Move(t.Context(), from, to, MoveConfig{Own: func(context.Context, pgx.Tx, pgx.Tx) error {
			runtime.Goexit()
			return nil
		}})
		t.Errorf("Move did not die: %v", err)
	}()
	await.Opened(t, done)
}

// moveAtLast calls Move until it succeeds: the server may need a moment to end the sessions of an earlier call.
func moveAtLast(t *testing.T, from, to *kagzi.Client) {
	t.Helper()
	await.True(t, "the namespace has moved", func() bool {
		_, err := Move(t.Context(), from, to, MoveConfig{})
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}

// After a move that died before its copy, a program that uses the other database too early leaves rows there. They are
// not taken for those of the copy: the source keeps its own.
func TestMoveIntoStrayRows(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	id := startOne(t, c, greet.With("ada"))
	dieInCopy(t, c, d)
	startOne(t, d, greet.With("early"))
	before := rowsOf(t, a, "acme")
	_, err := Move(t.Context(), c, d, MoveConfig{})
	if err == nil || !strings.Contains(err.Error(), "has rows of the namespace already") {
		t.Errorf("Move returned %v", err)
	}
	if n := rowsOf(t, a, "acme"); n != before {
		t.Fatalf("the source has %d rows, and had %d", n, before)
	}
	for _, table := range []string{"workflow_runs", "audit_log", "run_events"} {
		dbtest.Exec(t, b, `DELETE FROM kagzi.`+table)
	}
	_, err = Move(t.Context(), c, d, MoveConfig{})
	ok(t, err)
	run(t, b, Config{Handle: handleGreet})
	awaitStatus(t, d, id, kagzi.StatusCompleted)
}

// If the answer to the commit of the copy is lost, or the caller gives up meanwhile, the source takes no writes beside
// the target, and another call ends the move.
func TestMoveWithoutAnswer(t *testing.T) {
	t.Parallel()
	commit := func() pgproxy.Match {
		return pgproxy.After(pgproxy.Contains("FROM STDIN"), pgproxy.Exactly("commit"))
	}
	for _, how := range []struct {
		name string
		arm  func(p *pgproxy.Proxy) *pgproxy.Drop
		held bool // until the caller has given up
	}{
		{"lost", func(p *pgproxy.Proxy) *pgproxy.Drop { return p.DropAck(commit()) }, false},
		{"late", func(p *pgproxy.Proxy) *pgproxy.Drop { return p.HoldAck(commit()) }, true},
		{"not sent", func(p *pgproxy.Proxy) *pgproxy.Drop { return p.DropRequest(commit()) }, false},
		{"sent late", func(p *pgproxy.Proxy) *pgproxy.Drop { return p.HoldRequest(commit(), nil) }, true},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			a, db := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Database(t, dbtest.AsOwner())
			proxy := pgproxy.Start(t, db.DSN)
			c, d := elsewhere(t, a, "acme"), elsewhere(t, dbtest.OpenPool(t, proxy.DSN()), "acme")
			id := startOne(t, c, greet.With("ada"))
			drop := how.arm(proxy)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			moved := make(chan error, 1)
			go func() { _, err := Move(ctx, c, d, MoveConfig{}); moved <- err }()
			if how.held {
				await.True(t, "the commit is held", drop.Holds)
				cancel()
			}
			err := await.Receive(t, moved)
			t.Log(err)
			if err == nil {
				t.Fatal("Move has succeeded")
			}
			started, err := c.StartMany(t.Context(), []kagzi.Call{greet.With("bob")})
			if err != nil && !errors.Is(err, ErrMoved) {
				t.Errorf("start: %v", err)
			}
			drop.Release()
			await.Opened(t, drop.Done())
			moveAtLast(t, c, elsewhere(t, db.Pool, "acme"))
			run(t, db.Pool, Config{Handle: handleGreet})
			for _, r := range started {
				awaitStatus(t, d, r.ID, kagzi.StatusCompleted)
			}
			awaitStatus(t, d, id, kagzi.StatusCompleted)
			if n := rowsOf(t, a, "acme"); n != 0 {
				t.Errorf("%d rows were left behind", n)
			}
		})
	}
}

// The caller gives up at any point. Then the namespace goes on in one database, at the latest after another call.
func TestMoveCancelledAnywhere(t *testing.T) {
	t.Parallel()
	for _, point := range []struct {
		target bool
		match  string
	}{
		{false, "INSERT INTO kagzi.pauses"},
		{false, "ADD CONSTRAINT"},
		{false, "TEMP TABLE kagzi_moving"},
		{false, "COPY (SELECT"},
		{true, "ALTER SEQUENCE"},
		{true, "DELETE FROM kagzi.pauses"},
		{false, `DELETE FROM "kagzi".`},
	} {
		t.Run(point.match, func(t *testing.T) {
			t.Parallel()
			source, target := dbtest.Database(t, dbtest.AsOwner()), dbtest.Database(t, dbtest.AsOwner())
			c, d := elsewhere(t, source.Pool, "acme"), elsewhere(t, target.Pool, "acme")
			id := startOne(t, c, greet.With("ada"))
			behind := source
			if point.target {
				behind = target
			}
			proxy := pgproxy.Start(t, behind.DSN)
			from, to := c, elsewhere(t, dbtest.OpenPool(t, proxy.DSN()), "acme")
			if !point.target {
				from, to = to, d
			}
			drop := proxy.HoldRequest(pgproxy.Contains(point.match), nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			moved := make(chan error, 1)
			go func() { _, err := Move(ctx, from, to, MoveConfig{}); moved <- err }()
			await.True(t, "the statement is held", drop.Holds)
			cancel()
			drop.Release()
			t.Log(await.Receive(t, moved))
			at := c
			if _, err := c.StartMany(t.Context(), []kagzi.Call{greet.With("bob")}); err != nil {
				if !errors.Is(err, ErrMoved) {
					t.Errorf("start: %v", err)
				}
				moveAtLast(t, c, d)
				at = d
			} else if n := rowsOf(t, target.Pool, "acme"); n != 0 {
				t.Errorf("both databases are in use: %d rows have arrived", n)
			}
			run(t, at.Core().Store.Pool(), Config{Handle: handleGreet})
			awaitStatus(t, at, id, kagzi.StatusCompleted)
		})
	}
}

// threeDatabases returns pools of three databases, and a client of the namespace acme in each.
func threeDatabases(t *testing.T) (pools []*pgxpool.Pool, clients []*kagzi.Client) {
	t.Helper()
	for range 3 {
		pool := dbtest.Pool(t, dbtest.AsOwner())
		pools, clients = append(pools, pool), append(clients, elsewhere(t, pool, "acme"))
	}
	return pools, clients
}

// A call that has lost its lock does nothing more: another one may have taken the namespace elsewhere meanwhile.
func TestMoveWithoutLock(t *testing.T) {
	t.Parallel()
	pools, clients := threeDatabases(t)
	id := startOne(t, clients[0], greet.With("ada"))
	_, err := Move(t.Context(), clients[0], clients[1], MoveConfig{Own: func(ctx context.Context, _, _ pgx.Tx) error {
		for _, pool := range pools[:2] {
			dbtest.Exec(t, pool, `SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' AND
				l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`)
		}
		moveAtLast(t, clients[0], clients[2])
		return nil
	}})
	if err == nil {
		t.Error("the call that had lost its lock has succeeded")
	}
	t.Log(err)
	for i, want := range []bool{false, false, true} {
		if n := rowsOf(t, pools[i], "acme"); n > 0 != want {
			t.Errorf("database %d has %d rows", i, n)
		}
	}
	if _, err := clients[0].StartMany(t.Context(), []kagzi.Call{greet.With("bob")}); !errors.Is(err, ErrMoved) {
		t.Errorf("start in the database that the namespace has left: %v, want ErrMoved", err)
	}
	run(t, pools[2], Config{Handle: handleGreet})
	awaitStatus(t, clients[2], id, kagzi.StatusCompleted)
}

// A database that a namespace has left refuses it until it is back, also if the move back fails.
func TestMoveBackFails(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	id := startOne(t, c, greet.With("ada"))
	_, err := Move(t.Context(), c, d, MoveConfig{})
	ok(t, err)
	refused := errors.New("no")
	if _, err := Move(t.Context(), d, c, MoveConfig{Own: func(context.Context, pgx.Tx, pgx.Tx) error {
		if _, err := c.StartMany(t.Context(), []kagzi.Call{greet.With("stale")}); !errors.Is(err, ErrMoved) {
			t.Errorf("start during the copy: %v, want ErrMoved", err)
		}
		return refused
	}}); !errors.Is(err, refused) {
		t.Errorf("error %v, want that of Own", err)
	}
	if _, err := c.StartMany(t.Context(), []kagzi.Call{greet.With("stale")}); !errors.Is(err, ErrMoved) {
		t.Errorf("start in the database that the namespace has left: %v, want ErrMoved", err)
	}
	_, err = Move(t.Context(), d, c, MoveConfig{})
	ok(t, err)
	run(t, a, Config{Handle: handleGreet})
	awaitStatus(t, c, id, kagzi.StatusCompleted)
	awaitStatus(t, c, startOne(t, c, greet.With("bob")), kagzi.StatusCompleted)
}

// Names of namespaces and settings of the sessions change nothing.
func TestMoveWithStrangeSettings(t *testing.T) {
	t.Parallel()
	mode := func(mode pgx.QueryExecMode) func(*pgxpool.Config) {
		return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
	}
	for name, change := range map[string]func(*pgxpool.Config){
		`it's "quoted" \'; DROP`:        dbtest.Setting("search_path", "kagzi,public"),
		"%s %I %1$L $1 $$ {}":           mode(pgx.QueryExecModeExec),
		strings.Repeat("日本語 ", 20):      mode(pgx.QueryExecModeSimpleProtocol),
		"idle":                          dbtest.Setting("idle_in_transaction_session_timeout", "2s"),
		"a namespace with few sessions": dbtest.Conns(2),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := dbtest.Database(t, dbtest.AsOwner()), dbtest.Database(t, dbtest.AsOwner())
			a, b := dbtest.OpenPool(t, source.DSN, change), dbtest.OpenPool(t, target.DSN, change)
			c, d := elsewhere(t, a, name), elsewhere(t, b, name)
			id := startOne(t, c, greet.With("ada"))
			dieInCopy(t, c, d)
			if _, err := c.StartMany(t.Context(), []kagzi.Call{greet.With("bob")}); !errors.Is(err, ErrMoved) {
				t.Errorf("start in a fenced namespace: %v, want ErrMoved", err)
			}
			ok(t, CancelMove(t.Context(), c, d))
			startOne(t, c, greet.With("bob"))
			dieInCopy(t, c, d)
			moveAtLast(t, c, d)
			moveAtLast(t, d, c)
			if info, err := c.Get(t.Context(), id); err != nil || info.Status != kagzi.StatusPending {
				t.Errorf("%+v, error %v", info, err)
			}
		})
	}
}

// All rows arrive, with every column but those that each database has for itself.
func TestMoveCopiesAll(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	var j kit.Journal
	run(t, a, Config{Handle: moreHandlers(&j)})
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	for _, namespace := range []string{"acme", "globex"} {
		for _, call := range []kagzi.Call{
			nap.With(0), nap.With(time.Hour), failing.With(1), listen.With(1), waitsEvent.With(1), sleeper.With(1),
			parent.With(1), goes.With(2), undone.With(1),
		} {
			startOne(t, elsewhere(t, a, namespace), call, kagzi.Key("k"))
			startOne(t, elsewhere(t, a, namespace), call)
		}
	}
	await.True(t, "runs have recorded steps, and some have failed", func() bool {
		return dbtest.QueryOne[bool](t, a, `SELECT (
			SELECT count(*) FROM kagzi.step_runs s WHERE s.namespace_id = 'acme') >= 10 AND (
			SELECT count(*) FROM kagzi.workflow_runs r WHERE r.namespace_id = 'acme' AND r.status = 'FAILED') >= 2`)
	})
	all := func(ctx context.Context, tx pgx.Tx) (rows []string, err error) {
		var tables []string
		for table := range strings.FieldsSeq(tablesOfNamespaces) {
			tables = append(tables, fmt.Sprintf(`SELECT '%s ' || (to_jsonb(x) - 'change_id' - 'part')::text AS row
				FROM kagzi.%[1]s x WHERE x.namespace_id = 'acme'`, table))
		}
		answer, err := tx.Query(ctx, strings.Join(tables, " UNION ALL ")+" ORDER BY 1")
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(answer, pgx.RowTo[string])
	}
	_, err := Move(t.Context(), c, d, MoveConfig{Own: func(ctx context.Context, from, to pgx.Tx) error {
		want, err := all(ctx, from)
		ok(t, err)
		got, err := all(ctx, to)
		ok(t, err)
		left := map[string]int{}
		for _, row := range got {
			left[row]++
		}
		for _, row := range want {
			if left[row]--; left[row] < 0 {
				t.Errorf("has not arrived: %s", row)
			}
		}
		if len(got) != len(want)+1 || len(want) < 30 { // one entry says that the namespace has moved
			t.Errorf("%d rows have arrived of %d", len(got), len(want))
		}
		return nil
	}})
	ok(t, err)
}

const tablesOfNamespaces = `audit_log awaited_events consumers event_waits events key_changes limit_places limits pauses
	queues run_events run_keys schedules signals start_items start_windows step_runs subscriptions worker_events workers
	workflow_runs`

// A worker of the source executes a step for longer than Move waits. It finds its rows until it has given up its runs,
// ends none of them, and can be stopped. The target executes the step again.
func TestMoveBesideAWorker(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	logged := &testlog.Buffer{}
	c := kit.NewClientWith(t, a, kagzi.ClientConfig{Namespace: "acme", Logger: logged.Logger()})
	d := elsewhere(t, b, "acme")
	cfg := kagzi.WorkerConfig{StaleAfter: 4 * time.Second, Heartbeat: 200 * time.Millisecond}
	gate, again := kit.NewGate(), kit.NewGate()
	gate.IgnoresContext = true
	w := kit.NewWorker(t, c, cfg)
	gate.Handle(w)
	stop := kit.StartWorker(t, w)
	id := startOne(t, c, gate.Workflow.With(1))
	await.Receive(t, gate.Begun)
	var until time.Time
	readUntil := func(ctx context.Context, from, _ pgx.Tx) error {
		return from.QueryRow(ctx, `SELECT max(heartbeat_at + stale_after) FROM kagzi.workers`).Scan(&until)
	}
	_, err := Move(t.Context(), c, d, MoveConfig{Wait: time.Millisecond, Own: readUntil})
	ok(t, err)
	if now := dbtest.QueryOne[time.Time](t, a, `SELECT clock_timestamp()`); now.Before(until) {
		t.Errorf("the rows went %v before the worker gave up its runs", until.Sub(now))
	}
	await.True(t, "the worker finds no row of itself", func() bool { return logged.Has("declared dead") })
	if await.BecomesTrue(time.Second, func() bool { return strings.Count(logged.String(), "declared dead") > 1 }) {
		t.Error("the worker says again and again that it was declared dead")
	}
	close(gate.Open)
	next := kit.NewWorker(t, d, cfg)
	again.Handle(next)
	close(again.Open)
	kit.StartWorker(t, next)
	awaitStatus(t, d, id, kagzi.StatusCompleted)
	begun := time.Now()
	if err := stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	t.Logf("the worker of the source needed %v to stop", time.Since(begun))
	if n := rowsOf(t, a, "acme"); n != 0 {
		t.Errorf("%d rows are in the source", n)
	}
}

// Calls at once take the namespace to one database.
func TestMovesAtOnce(t *testing.T) {
	t.Parallel()
	pools, clients := threeDatabases(t)
	id := startOne(t, clients[0], greet.With("ada"))
	errs := make(chan error, 10)
	for i := range 6 {
		go func() {
			_, err := Move(t.Context(), clients[i%3], clients[(i+1)%3], MoveConfig{})
			errs <- err
		}()
	}
	for range 6 {
		t.Log(await.Receive(t, errs))
	}
	at := -1
	for i, pool := range pools {
		if rowsOf(t, pool, "acme") > 0 {
			if at >= 0 {
				t.Errorf("databases %d and %d have rows", at, i)
			}
			at = i
		}
	}
	run(t, pools[at], Config{Handle: handleGreet})
	awaitStatus(t, clients[at], id, kagzi.StatusCompleted)
}

// The rows that an interrupted move has left behind are never taken for the namespace: it may have gone on to a third
// database, and the programs may give another one as the target.
func TestMoveLeftovers(t *testing.T) {
	t.Parallel()
	source := dbtest.Database(t, dbtest.AsOwner())
	b, e := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	proxy := pgproxy.Start(t, source.DSN)
	c, d, third := elsewhere(t, source.Pool, "acme"), elsewhere(t, b, "acme"), elsewhere(t, e, "acme")
	id := startOne(t, c, greet.With("ada"))
	drop := proxy.DropRequest(pgproxy.Contains(`DELETE FROM "kagzi".`))
	if _, err := Move(t.Context(), elsewhere(t, dbtest.OpenPool(t, proxy.DSN()), "acme"), d, MoveConfig{}); err == nil {
		t.Error("the move was not interrupted")
	}
	await.Opened(t, drop.Done())
	moveAtLast(t, d, third)
	for _, to := range []*kagzi.Client{d, elsewhere(t, dbtest.Pool(t, dbtest.AsOwner()), "acme")} {
		if _, err := Move(t.Context(), c, to, MoveConfig{}); err == nil {
			t.Error("what was left behind has moved")
		}
		if err := CancelMove(t.Context(), c, to); err == nil {
			t.Error("what was left behind goes on")
		}
	}
	if _, err := c.StartMany(t.Context(), []kagzi.Call{greet.With("bob")}); !errors.Is(err, ErrMoved) {
		t.Errorf("start in the database that the namespace has left: %v, want ErrMoved", err)
	}
	moveAtLast(t, c, third)
	if n := rowsOf(t, source.Pool, "acme"); n != 0 {
		t.Errorf("%d rows were left behind", n)
	}
	run(t, e, Config{Handle: handleGreet})
	awaitStatus(t, third, id, kagzi.StatusCompleted)
}

// A session that reads a table, such as a dump, keeps Move from fencing it. Other namespaces go on, and this one does
// once Move has failed.
func TestMoveBesideADump(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d, other := elsewhere(t, a, "acme"), elsewhere(t, b, "acme"), elsewhere(t, a, "globex")
	id := startOne(t, c, greet.With("ada"))
	dump := dbtest.BeginWith(t, a, `LOCK TABLE kagzi.workflow_runs IN ACCESS SHARE MODE`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	moved := make(chan error, 1)
	go func() { _, err := Move(ctx, c, d, MoveConfig{}); moved <- err }()
	longest := time.Duration(0)
	for running := true; running; {
		begun := time.Now()
		startOne(t, other, greet.With("bob"))
		longest = max(longest, time.Since(begun))
		select {
		case err := <-moved:
			t.Log(err)
			if err == nil {
				t.Error("Move has succeeded")
			}
			running = false
		default:
		}
	}
	t.Logf("a start of another namespace took up to %v", longest)
	startOne(t, c, greet.With("bob"))
	ok(t, dump.Rollback(t.Context()))
	moveAtLast(t, c, d)
	run(t, b, Config{Handle: handleGreet})
	awaitStatus(t, d, id, kagzi.StatusCompleted)
}

// Steps that end while the source refuses their records are recorded once the move is given up. None of them counts as
// failed.
func TestMoveGivenUpFailsNoRun(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	logged := &testlog.Buffer{}
	c := kit.NewClientWith(t, a, kagzi.ClientConfig{Namespace: "acme", Logger: logged.Logger()})
	d := elsewhere(t, b, "acme")
	plain, inTx := kagzi.DefineDo[int]("plain", kit.NoRetry), kagzi.DefineDo[int]("in-tx", kit.NoRetry)
	begun, open := make(chan int, 100), make(chan struct{})
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.HandleDo(w, plain, func(ctx kagzi.Context, _ int) error {
		return kagzi.Do(ctx, "step", func(context.Context) error { begun <- 1; <-open; return nil }, kit.NoRetry)
	})
	kagzi.HandleDo(w, inTx, func(ctx kagzi.Context, _ int) error {
		step := func(context.Context, pgx.Tx) error { begun <- 1; <-open; return nil }
		return kagzi.DoTx(ctx, "step", step, kit.NoRetry)
	})
	kit.StartWorker(t, w)
	ids := []kagzi.RunID{startOne(t, c, plain.With(1)), startOne(t, c, inTx.With(1))}
	await.Receive(t, begun)
	await.Receive(t, begun)
	refused := errors.New("no")
	endSteps := func(context.Context, pgx.Tx, pgx.Tx) error {
		close(open)
		await.True(t, "both records are refused", func() bool {
			return logged.Has("what=flush") && logged.Has("a transactional step is repeated because of the database")
		})
		return refused
	}
	if _, err := Move(t.Context(), c, d, MoveConfig{Wait: time.Millisecond, Own: endSteps}); !errors.Is(err, refused) {
		t.Errorf("error %v, want that of Own", err)
	}
	for _, id := range ids {
		awaitStatus(t, c, id, kagzi.StatusCompleted)
	}
}

// Starts in transactions of the caller, open while Move begins: what was written before the fence moves, and what
// comes after it is refused.
func TestMoveBesideOpenTransactions(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	startOne(t, c, greet.With("ada"))
	early, late := dbtest.Begin(t, a), dbtest.Begin(t, a)
	_, err := late.Exec(t.Context(), `SELECT 1`)
	ok(t, err)
	id := startOne(t, c, greet.With("early"), kagzi.InTx(early))
	moved := make(chan error, 1)
	go func() { _, err := Move(t.Context(), c, d, MoveConfig{}); moved <- err }()
	await.True(t, "the fence waits", func() bool {
		return dbtest.QueryOne[bool](t, a, `SELECT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock'
			AND NOT granted)`)
	})
	ok(t, early.Commit(t.Context()))
	ok(t, await.Receive(t, moved))
	_, err = c.StartMany(t.Context(), []kagzi.Call{greet.With("late")}, kagzi.InTx(late))
	if !errors.Is(err, ErrMoved) {
		t.Errorf("start in an open transaction: %v, want ErrMoved", err)
	}
	run(t, b, Config{Handle: handleGreet})
	awaitStatus(t, d, id, kagzi.StatusCompleted)
}

// Namespaces whose moves were interrupted do not keep others from a worker.
func TestMovesInterruptedBesideOthers(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	for i := range 6 {
		name := fmt.Sprint("tenant ", i)
		startOne(t, elsewhere(t, a, name), greet.With("ada"))
		dieInCopy(t, elsewhere(t, a, name), elsewhere(t, b, name))
	}
	dbtest.Exec(t, a, `DELETE FROM kagzi.pauses`) // so that these namespaces have due runs
	run(t, a, Config{Handle: handleGreet})
	for i := range 3 {
		c := elsewhere(t, a, fmt.Sprint("other ", i))
		awaitStatus(t, c, startOne(t, c, greet.With("ada")), kagzi.StatusCompleted)
	}
	if n := dbtest.QueryOne[int64](t, a, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING'`); n != 6 {
		t.Errorf("%d runs wait, want those of the 6 namespaces that move", n)
	}
}

// A user who does not own the tables cannot move a namespace, which goes on.
func TestMoveWithoutRights(t *testing.T) {
	t.Parallel()
	source, b := dbtest.Database(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	a := dbtest.OpenPool(t, source.DSN, dbtest.Setting("role", dbtest.Role(t, source)))
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	id := startOne(t, c, greet.With("ada"))
	if _, err := Move(t.Context(), c, d, MoveConfig{}); err == nil || !strings.Contains(err.Error(), "must be owner") {
		t.Errorf("error %v, want one about rights", err)
	}
	run(t, source.Pool, Config{Handle: handleGreet})
	awaitStatus(t, c, id, kagzi.StatusCompleted)
}
