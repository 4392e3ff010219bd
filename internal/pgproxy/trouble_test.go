package pgproxy_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// dial connects through the proxy.
func dial(t *testing.T, proxy *pgproxy.Proxy) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// wantAnswer fails the test unless the connection answers.
func wantAnswer(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT 7").Scan(&n); err != nil || n != 7 {
		t.Fatalf("SELECT 7: %d, %v", n, err)
	}
}

func TestTroubleDelay(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	const delay = 40 * time.Millisecond
	slow := proxy.Impose(pgproxy.Trouble{Delay: delay})
	begin := time.Now()
	wantAnswer(t, conn)
	// The request and the answer, of the preparation and of the execution.
	if took := time.Since(begin); took < 4*delay || slow.Count() < 4 {
		t.Errorf("the answer took %v, %d writes were delayed", took, slow.Count())
	}
	slow.Lift()
	slow.Lift()
	before := slow.Count()
	wantAnswer(t, conn)
	if slow.Count() != before {
		t.Error("a trouble goes on that was lifted")
	}
}

func TestTroubleChunk(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	cut := proxy.Impose(pgproxy.Trouble{Chunk: 1})
	defer cut.Lift()
	conn := dial(t, proxy) // the greeting, too
	var s string
	if err := conn.QueryRow(t.Context(), "SELECT $1::text", strings.Repeat("é", 5000)).Scan(&s); err != nil ||
		s != strings.Repeat("é", 5000) {
		t.Fatalf("%d bytes came back, %v", len(s), err)
	}
	if cut.Count() == 0 {
		t.Error("nothing was cut")
	}
}

// One connection is frozen, and another is not.
func TestTroubleFrozenConn(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	frozen, free := dial(t, proxy), dial(t, proxy)
	if conns := proxy.Conns(); len(conns) != 2 || conns[0].Number != 1 || conns[1].Number != 2 {
		t.Fatalf("connections %+v", conns)
	}
	ice := proxy.Impose(pgproxy.Trouble{Frozen: true, Only: func(c pgproxy.Conn) bool { return c.Number == 1 }})
	answered := make(chan error, 1)
	go func() {
		_, err := frozen.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	for ice.Count() == 0 {
		wantAnswer(t, free)
	}
	select {
	case err := <-answered:
		t.Fatalf("the frozen connection answered: %v", err)
	default:
	}
	ice.Lift()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// Two troubles freeze the proxy; it thaws when both are over.
func TestTroublesOverlap(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	first, second := proxy.Impose(pgproxy.Trouble{Frozen: true}), proxy.Impose(pgproxy.Trouble{Frozen: true})
	proxy.Freeze()
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	await.True(t, "the proxy knows", func() bool { return first.Count() > 0 })
	first.Lift()
	proxy.Unfreeze()
	select {
	case err := <-answered:
		t.Fatalf("answered although the second trouble goes on: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	second.Lift()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestTroubleDeaf(t *testing.T) {
	t.Parallel()
	db, proxy := setup(t)
	conn := dial(t, proxy)
	if _, err := conn.Exec(t.Context(), "LISTEN news"); err != nil {
		t.Fatal(err)
	}
	if conns := proxy.Conns(); len(conns) != 1 || !pgproxy.Listens(conns[0]) || conns[0].Latest != "LISTEN news" {
		t.Fatalf("connections %+v", conns)
	}
	deaf := proxy.Impose(pgproxy.Trouble{Deaf: pgproxy.Everything, Only: pgproxy.Listens})
	notify := func(payload string) {
		if _, err := db.Pool.Exec(t.Context(), "SELECT pg_notify('news', $1)", payload); err != nil {
			t.Fatal(err)
		}
	}
	notify("lost")
	for deaf.Count() == 0 {
		wantAnswer(t, conn)
	}
	deaf.Lift()
	notify("heard")
	n, err := conn.WaitForNotification(t.Context())
	if err != nil || n.Payload != "heard" {
		t.Errorf("notification %+v, %v", n, err)
	}
}

func TestTroubleRefuse(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	shut := proxy.Impose(pgproxy.Trouble{Refuse: true})
	if other, err := pgx.Connect(t.Context(), proxy.DSN()); err == nil {
		_ = other.Close(t.Context())
		t.Error("a connection is made that is refused")
	}
	wantAnswer(t, conn)
	if shut.Count() == 0 {
		t.Error("nothing was refused")
	}
	shut.Lift()
	wantAnswer(t, dial(t, proxy))
}

// The server knows a connection by its port.
func TestConnPort(t *testing.T) {
	t.Parallel()
	server, err := localpg.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	proxy := pgproxy.Start(t, server.DSN())
	conn := dial(t, proxy)
	var port int
	if err := conn.QueryRow(t.Context(), "SELECT client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()").
		Scan(&port); err != nil {
		t.Fatal(err)
	}
	if conns := proxy.Conns(); len(conns) != 1 || conns[0].Port != port {
		t.Errorf("the server says port %d, the proxy %+v", port, conns)
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	raw, err := net.Dial("tcp", addressOf(t, proxy))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	await.True(t, "the proxy knows", func() bool { return len(proxy.Conns()) > 0 })
	other := dial(t, proxy)
	if n := proxy.Reset(func(c pgproxy.Conn) bool { return c.Number == 1 }); n != 1 {
		t.Fatalf("%d connections were reset", n)
	}
	if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer gets %v", err)
	}
	wantAnswer(t, other)
	if n := proxy.Cut(nil); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
}

func addressOf(t *testing.T, proxy *pgproxy.Proxy) string {
	t.Helper()
	cfg, err := pgconn.ParseConfig(proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	_, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	return address
}

// The proxy knows whether the server had committed when the answer was lost.
func TestDropCommitted(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"INSERT INTO kept VALUES (1)": true, "INSERT INTO kept SELECT 1/0": false, "BEGIN": false,
		"BEGIN; INSERT INTO kept VALUES (1); COMMIT": true,
	} {
		_, proxy := setup(t)
		conn := dial(t, proxy)
		drop := proxy.DropAck(pgproxy.Exactly(sql))
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err == nil {
			t.Fatalf("%s: no error", sql)
		}
		wait(t, drop)
		if drop.Committed() != want {
			t.Errorf("%s: committed is %v", sql, drop.Committed())
		}
		if drop.Cancel() {
			t.Errorf("%s: a loss is cancelled that has happened", sql)
		}
	}
}

func TestDropCancel(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	first, second := proxy.DropAck(pgproxy.Contains("SELECT 7")), proxy.DropAck(pgproxy.Contains("SELECT 8"))
	if !first.Cancel() {
		t.Error("nothing was cancelled")
	}
	wantAnswer(t, conn)
	if _, err := conn.Exec(t.Context(), "SELECT 8"); err == nil {
		t.Error("the other loss was cancelled, too")
	}
	wait(t, second)
}

func TestUnanswered(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "SELECT pg_sleep(600)")
		asked <- err
	}()
	await.True(t, "the proxy knows", func() bool { return proxy.Unanswered() == 1 })
	cancel()
	if err := <-asked; err == nil {
		t.Error("no error")
	}
	await.True(t, "the proxy knows", func() bool { return proxy.Unanswered() == 0 })
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	_, err := conn.Exec(t.Context(), "SELECT 1/0")
	var failed *pgconn.PgError
	if !errors.As(err, &failed) || failed.Code != "22012" || proxy.Errors("22012") != 1 || proxy.Errors("42601") != 0 {
		t.Errorf("%v; %d errors were seen", err, proxy.Errors("22012"))
	}
}

// After a redirection new connections lead elsewhere, and to nowhere if no server is there.
func TestRedirect(t *testing.T) {
	t.Parallel()
	server, err := localpg.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	proxy := pgproxy.Start(t, dbtest.Database(t).DSN)
	before := dial(t, proxy)
	if err := proxy.Redirect(server.DSN()); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), proxy.DSN()); err == nil || proxy.Errors("28P01")+proxy.Errors("3D000") == 0 {
		t.Errorf("the other server accepts the credentials of the first: %v", err)
	}
	wantAnswer(t, before)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), proxy.DSN()); err == nil || proxy.Unreachable() == 0 {
		t.Errorf("a server that is gone answers: %v", err)
	}
}
