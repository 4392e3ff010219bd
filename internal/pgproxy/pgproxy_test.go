package pgproxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// setup returns a database with a table for the test, and a proxy for it.
func setup(t *testing.T) (*dbtest.DB, *pgproxy.Proxy) {
	t.Helper()
	db := dbtest.Database(t)
	if _, err := db.Pool.Exec(t.Context(), "CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	return db, pgproxy.Start(t, db.DSN)
}

// rows returns the number of committed rows.
func rows(t *testing.T, db *dbtest.DB) (n int) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A way to insert one row over the connection.
var ways = map[string]func(context.Context, *pgx.Conn) error{
	"Simple": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "INSERT INTO kept VALUES (1)")
		return err
	},
	"Extended": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "INSERT INTO kept VALUES ($1)", 1)
		return err
	},
	"Unnamed": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "INSERT INTO kept VALUES ($1)", pgx.QueryExecModeExec, 1)
		return err
	},
	"SimpleProtocol": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "INSERT INTO kept VALUES ($1)", pgx.QueryExecModeSimpleProtocol, 1)
		return err
	},
	"PreparedBefore": func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Prepare(ctx, "insert", "INSERT INTO kept VALUES ($1)"); err != nil {
			return fmt.Errorf("%w: %w", errPrepare, err)
		}
		_, err := conn.Exec(ctx, "insert", 1)
		return err
	},
	"Returning": func(ctx context.Context, conn *pgx.Conn) error {
		var n int
		return conn.QueryRow(ctx, "INSERT INTO kept VALUES ($1) RETURNING n", 1).Scan(&n)
	},
	"Batch": func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue("SELECT $1::int", 1)
		batch.Queue("INSERT INTO kept VALUES ($1)", 1)
		batch.Queue("SELECT $1::int", 2)
		return conn.SendBatch(ctx, batch).Close()
	},
	"Copy": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{"kept"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
		return err
	},
}

// errPrepare distinguishes the failed preparation of a statement, which the proxy must not affect, from a failed
// execution.
var errPrepare = errors.New("prepare")

func hit() pgproxy.Match {
	insert, copied := pgproxy.Contains("insert into kept"), pgproxy.Contains("copy \"kept\"")
	return func(conn int, sql string) bool { return insert(conn, sql) || copied(conn, sql) }
}

func TestPassesOn(t *testing.T) {
	for name, insert := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := setup(t)
			if err := insert(t.Context(), dbtest.Connect(t, proxy.DSN())); err != nil {
				t.Fatal(err)
			}
			if n := rows(t, db); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
	}
}

func TestDropAck(t *testing.T) {
	for name, insert := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := setup(t)
			conn := dbtest.Connect(t, proxy.DSN())
			if err := conn.Ping(t.Context()); err != nil { // not hit
				t.Fatal(err)
			}
			drop := proxy.DropAck(hit())
			err := insert(t.Context(), conn)
			wantLost(t, err)
			wait(t, drop)
			if n := rows(t, db); n != 1 {
				t.Errorf("%d rows, want 1: the server must have committed", n)
			}
			if n := proxy.Dropped(); n != 1 {
				t.Errorf("%d losses, want 1", n)
			}
			if err := insert(t.Context(), dbtest.Connect(t, proxy.DSN())); err != nil {
				t.Errorf("the proxy lost another answer: %v", err)
			}
		})
	}

	// If the answer to the commit is lost, the row is in the table; if an earlier answer is lost, the server rolls
	// back.
	for name, tt := range map[string]struct {
		match pgproxy.Match
		rows  int
	}{
		"Commit":             {pgproxy.Contains("commit"), 1},
		"InsideATransaction": {hit(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, proxy := setup(t)
			conn := dbtest.Connect(t, proxy.DSN())
			drop := proxy.DropAck(tt.match)
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO kept VALUES ($1)", 1)
				return err
			})
			wantLost(t, err)
			wait(t, drop)
			if n := rows(t, db); n != tt.rows {
				t.Errorf("%d rows, want %d", n, tt.rows)
			}
		})
	}

	t.Run("EarlierAnswersArrive", func(t *testing.T) {
		t.Parallel()
		_, proxy := setup(t)
		conn := dbtest.Connect(t, proxy.DSN())
		drop := proxy.DropAck(hit())
		pipeline := conn.PgConn().StartPipeline(t.Context())
		pipeline.SendQueryParams("SELECT 1", nil, nil, nil, nil)
		if err := pipeline.Sync(); err != nil {
			t.Fatal(err)
		}
		pipeline.SendQueryParams("INSERT INTO kept VALUES (1)", nil, nil, nil, nil)
		if err := pipeline.Sync(); err != nil {
			t.Fatal(err)
		}
		results, err := pipeline.GetResults()
		if err != nil {
			t.Fatalf("the answer before the lost one: %v", err)
		}
		if got := results.(*pgconn.ResultReader).Read(); got.Err != nil || len(got.Rows) != 1 {
			t.Errorf("the answer before the lost one: %v", got)
		}
		wait(t, drop)
		wantLost(t, pipeline.Close())
	})

	t.Run("Nth", func(t *testing.T) {
		t.Parallel()
		db, proxy := setup(t)
		conn := dbtest.Connect(t, proxy.DSN())
		drop := proxy.DropAck(pgproxy.Nth(3, hit()))
		for n := range 3 {
			err := ways["Extended"](t.Context(), conn)
			if (err != nil) != (n == 2) {
				t.Errorf("insert %d: %v", n+1, err)
			}
		}
		wait(t, drop)
		if n := rows(t, db); n != 3 {
			t.Errorf("%d rows, want 3", n)
		}
	})

	t.Run("After", func(t *testing.T) {
		t.Parallel()
		_, proxy := setup(t)
		one, other := dbtest.Connect(t, proxy.DSN()), dbtest.Connect(t, proxy.DSN())
		exec := func(conn *pgx.Conn, sql string) error {
			_, err := conn.Exec(t.Context(), sql)
			return err
		}
		drop := proxy.DropAck(pgproxy.After(pgproxy.Contains("as the_write"), pgproxy.Exactly("commit")))
		for _, sql := range []string{"begin", "commit", "begin", "select 1 as the_write"} {
			if err := exec(one, sql); err != nil {
				t.Fatal(err)
			}
		}
		for _, sql := range []string{"begin", "commit"} {
			if err := exec(other, sql); err != nil {
				t.Errorf("%s on another connection: %v", sql, err)
			}
		}
		if err := exec(one, "commit"); err == nil {
			t.Error("the commit after the write was answered")
		}
		wait(t, drop)
	})

	t.Run("Disarm", func(t *testing.T) {
		t.Parallel()
		_, proxy := setup(t)
		proxy.DropAck(hit())
		proxy.Disarm()
		if err := ways["Extended"](t.Context(), dbtest.Connect(t, proxy.DSN())); err != nil {
			t.Error(err)
		}
	})

	t.Run("OthersGoOn", func(t *testing.T) {
		t.Parallel()
		db, proxy := setup(t)
		pool, err := pgxpool.New(t.Context(), proxy.DSN()+"&pool_max_conns=8")
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		const inserts, losses = 400, 5
		for range losses {
			proxy.DropAck(hit())
		}
		var failed, ok int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range inserts / 8 {
					_, err := pool.Exec(t.Context(), "INSERT INTO kept VALUES ($1)", 1)
					mu.Lock()
					if err != nil {
						failed++
					} else {
						ok++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if failed != losses || proxy.Dropped() != losses {
			t.Errorf("%d calls failed and %d answers were lost, want %d", failed, proxy.Dropped(), losses)
		}
		if n := rows(t, db); n != inserts {
			t.Errorf("%d rows, want %d", n, inserts)
		}
	})
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	db, proxy := setup(t)
	conn := dbtest.Connect(t, proxy.DSN())
	proxy.Freeze()
	proxy.Freeze()
	result := make(chan error, 2)
	go func() { result <- ways["Simple"](t.Context(), conn) }()
	go func() {
		late, err := pgx.Connect(t.Context(), proxy.DSN())
		if err == nil {
			err = errors.Join(ways["Simple"](t.Context(), late), late.Close(t.Context()))
		}
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("an answer came through: %v", err)
	case <-time.After(100 * time.Millisecond): // nothing happens, and nothing tells when
	}
	if n := rows(t, db); n != 0 {
		t.Errorf("%d rows came through", n)
	}
	proxy.Unfreeze()
	proxy.Unfreeze()
	for range cap(result) {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	if n := rows(t, db); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}

	t.Run("ClientGivesUp", func(t *testing.T) {
		proxy.Freeze()
		defer proxy.Unfreeze()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := ways["Simple"](ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestCutAll(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conns := []*pgx.Conn{dbtest.Connect(t, proxy.DSN()), dbtest.Connect(t, proxy.DSN())}
	if n := proxy.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	proxy.CutAll()
	for _, conn := range conns {
		wantLost(t, conn.Ping(t.Context()))
	}
	if err := dbtest.Connect(t, proxy.DSN()).Ping(t.Context()); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

// A frozen proxy must not prevent a test from ending.
func TestCloseWhileFrozen(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy, err := pgproxy.Listen(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	conn := dbtest.Connect(t, proxy.DSN())
	proxy.Freeze()
	result := make(chan error, 1)
	go func() { result <- conn.Ping(t.Context()) }()
	if err := proxy.Close(); err != nil {
		t.Error(err)
	}
	wantLost(t, <-result)
	if _, err := pgx.Connect(t.Context(), proxy.DSN()); err == nil {
		t.Error("a closed proxy accepted a connection")
	}
}

func TestDSN(t *testing.T) {
	t.Parallel()
	for _, upstream := range []string{
		"postgres://someone:secret@db.example:1234/name?sslmode=require&application_name=app",
		"postgres://someone:secret@/name?host=%2Ftmp&port=1234&application_name=app",
		"user=someone password=secret host=db.example port=1234 dbname=name application_name=app sslmode=require",
	} {
		proxy := pgproxy.Start(t, upstream)
		cfg, err := pgconn.ParseConfig(proxy.DSN())
		if err != nil {
			t.Fatalf("%s: %v", proxy.DSN(), err)
		}
		if cfg.Host != "127.0.0.1" || cfg.Port == 1234 || cfg.TLSConfig != nil ||
			cfg.User != "someone" || cfg.Password != "secret" || cfg.Database != "name" ||
			cfg.RuntimeParams["application_name"] != "app" {
			t.Errorf("%s became %s", upstream, proxy.DSN())
		}
	}
}

func TestCancelRequest(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := dbtest.Connect(t, proxy.DSN())
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_sleep(600)")
		result <- err
	}()
	for {
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-result:
			if !strings.Contains(err.Error(), "57014") {
				t.Errorf("got %v", err)
			}
			return
		case <-time.After(10 * time.Millisecond): // it came before the statement: once more
		}
	}
}
