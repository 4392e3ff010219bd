package pgproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// isSeven chooses rows whose first column is 7, in either format.
func isSeven(columns [][]byte) bool {
	c := columns[0]
	return len(c) > 0 && (string(c) == "7" || c[len(c)-1] == 7)
}

// insertOne inserts n in a batch whose last answer is m, or NULL.
func insertOne(ctx context.Context, conn *pgx.Conn, n int, m *int) error {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO kept VALUES ($1)", n)
	batch.Queue("SELECT $1::int, 'more'", m)
	return conn.SendBatch(ctx, batch).Close()
}

// An answer is lost only if it has the row. The answers before it arrive as they are, and so do those after it.
func TestDropAckIf(t *testing.T) {
	t.Parallel()
	db, proxy := setup(t)
	conn, other := dial(t, proxy), dial(t, proxy)
	drop := proxy.DropAckIf(hit(), isSeven)
	eight, seven := 8, 7
	for _, m := range []*int{&eight, nil} {
		if err := insertOne(t.Context(), conn, 1, m); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "INSERT INTO kept VALUES (5) RETURNING n").Scan(&n); err != nil || n != 5 {
		t.Errorf("an answer that is not lost has %d, %v", n, err)
	}
	if drop.Committed() || drop.Found() || proxy.Dropped() > 0 {
		t.Error("an answer was lost that does not have the row")
	}
	wantLost(t, insertOne(t.Context(), conn, 1, &seven))
	wait(t, drop)
	if n := rows(t, db); n != 4 || !drop.Committed() || !drop.Found() {
		t.Errorf("%d rows, committed: %v, found: %v", n, drop.Committed(), drop.Found())
	}
	if err := insertOne(t.Context(), other, 1, &seven); err != nil {
		t.Errorf("a second answer is lost: %v", err)
	}
	if n := proxy.Troubles(); n != 0 {
		t.Errorf("%d losses are armed that have happened", n)
	}
}

// A loss that is cancelled does not happen, although it has looked at answers.
func TestDropAckIfCancelled(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	drop := proxy.DropAckIf(hit(), isSeven)
	eight, seven := 8, 7
	if err := insertOne(t.Context(), conn, 1, &eight); err != nil {
		t.Fatal(err)
	}
	if !drop.Cancel() {
		t.Error("a loss has begun that had no answer to lose")
	}
	if err := insertOne(t.Context(), conn, 1, &seven); err != nil {
		t.Error(err)
	}
}

// Only the answer that has the row is held back, and it is complete when it arrives.
func TestHoldAckIf(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dial(t, proxy)
	drop := proxy.HoldAckIf(hit(), isSeven)
	eight := 8
	if err := insertOne(t.Context(), conn, 1, &eight); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() {
		var n int
		_ = conn.QueryRow(context.Background(), "INSERT INTO kept VALUES (7) RETURNING n").Scan(&n)
		answered <- n
	}()
	wait(t, drop)
	await.True(t, "the answer is held back", drop.Holds)
	select {
	case n := <-answered:
		t.Fatalf("the answer %d arrived", n)
	default:
	}
	drop.Release()
	if n := <-answered; n != 7 || drop.Holds() {
		t.Errorf("the answer has %d", n)
	}
}

// A request that is late is executed, whether the client waits for it or not.
func TestHoldRequest(t *testing.T) {
	for name, waits := range map[string]bool{"Waits": true, "GivesUp": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := setup(t)
			conn := dial(t, proxy)
			drop := proxy.HoldRequest(hit(), isSeven)
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			answered := make(chan error, 1)
			go func() {
				_, err := conn.Exec(ctx, "INSERT INTO kept VALUES (7) RETURNING n", pgx.QueryExecModeExec)
				answered <- err
			}()
			await.True(t, "the request is held back", drop.Holds)
			if n := rows(t, db); n != 0 || drop.Found() {
				t.Errorf("%d rows, found: %v", n, drop.Found())
			}
			if !waits {
				giveUp()
				wantLost(t, <-answered)
				<-conn.PgConn().CleanupDone() // also the request to cancel the statement is over
			}
			drop.Release()
			wait(t, drop)
			if n := rows(t, db); n != 1 || !drop.Found() || !drop.Committed() {
				t.Errorf("%d rows, found: %v, committed: %v", n, drop.Found(), drop.Committed())
			}
			if waits {
				if err := <-answered; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A request that is held back when its connection is cut, or that is discarded, is lost.
func TestHoldRequestLost(t *testing.T) {
	for name, lose := range map[string]func(*pgproxy.Proxy, *pgproxy.Drop){
		"Cut":       func(p *pgproxy.Proxy, _ *pgproxy.Drop) { p.CutAll() },
		"Discarded": func(_ *pgproxy.Proxy, d *pgproxy.Drop) { d.Discard() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHoldRequestLost(t, lose)
		})
	}
}

func testHoldRequestLost(t *testing.T, lose func(*pgproxy.Proxy, *pgproxy.Drop)) {
	db, proxy := setup(t)
	conn := dial(t, proxy)
	drop := proxy.HoldRequest(hit(), isSeven)
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "INSERT INTO kept VALUES (7)")
		answered <- err
	}()
	await.True(t, "the request is held back", drop.Holds)
	lose(proxy, drop)
	wantLost(t, <-answered)
	await.True(t, "the proxy has forgotten the connection", func() bool { return proxy.Connections() == 0 })
	drop.Release()
	if n := rows(t, db); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

// Some notifications are lost, and others are not.
func TestTroubleDeafToSome(t *testing.T) {
	t.Parallel()
	db, proxy := setup(t)
	conn := dial(t, proxy)
	if _, err := conn.Exec(t.Context(), "LISTEN news; LISTEN weather"); err != nil {
		t.Fatal(err)
	}
	deaf := proxy.Impose(pgproxy.Trouble{Deaf: func(channel, payload string) bool {
		return channel == "news" && payload != "important"
	}})
	defer deaf.Lift()
	for _, n := range [][2]string{{"news", "gossip"}, {"news", "important"}, {"weather", "rain"}} {
		if _, err := db.Pool.Exec(t.Context(), "SELECT pg_notify($1, $2)", n[0], n[1]); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []string{"important", "rain"} {
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload != want {
			t.Errorf("notification %+v, %v, want %s", n, err, want)
		}
	}
	if deaf.Count() != 1 {
		t.Errorf("%d notifications were lost, want 1", deaf.Count())
	}
}

func TestDropRequest(t *testing.T) {
	for name, insert := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := setup(t)
			conn := dbtest.Connect(t, proxy.DSN())
			drop := proxy.DropRequest(hit())
			wantLost(t, insert(t.Context(), conn))
			wait(t, drop)
			if n := rows(t, db); n != 0 {
				t.Errorf("%d rows, want none: the server must not have seen the request", n)
			}
			if err := insert(t.Context(), dbtest.Connect(t, proxy.DSN())); err != nil {
				t.Errorf("the proxy lost another request: %v", err)
			}
		})
	}
}

// wantLost fails the test unless err says that the connection was lost.
func wantLost(t *testing.T, err error) {
	t.Helper()
	var pgErr *pgconn.PgError
	if err == nil || errors.As(err, &pgErr) || errors.Is(err, errPrepare) {
		t.Errorf("got %v, want a lost connection", err)
	}
}

func wait(t *testing.T, drop *pgproxy.Drop) {
	t.Helper()
	select {
	case <-drop.Done():
	case <-time.After(time.Minute):
		t.Fatal("the loss did not happen")
	}
}
