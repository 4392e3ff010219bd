// Package dbtest gives each test a Postgres database of its own, and looks after the test whether what it left
// there breaks one of Kagzi's promises.
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := dbtest.Pool(t)
//		…
//	}
//
// The databases lie on a throwaway server of the test binary's, or on the one that KAGZI_DATABASE_URL names. They
// are made once and used again, emptied in between: that takes a few milliseconds, and isolates tests from
// each other's notifications and advisory locks as well.
package dbtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
)

// A DB is a test's database.
type DB struct {
	// Pool is the test's own pool. The test may close it.
	Pool *pgxpool.Pool
	// DSN is the database's URL, for tests that make other connections. Those still open after the
	// test are ended.
	DSN string
	// Name is the database's name on the server.
	Name string
}

// An Option changes the database that a test gets.
type Option func(*options)

type options struct {
	unchecked bool
	empty     bool
	maxConns  int32
	patience  time.Duration // for connections that the test has not released
}

// Unchecked leaves out the check of the invariants after the test, for tests that break them on purpose.
func Unchecked() Option { return func(o *options) { o.unchecked = true } }

// Empty gives a database without Kagzi's tables. It implies Unchecked.
func Empty() Option { return func(o *options) { o.empty, o.unchecked = true, true } }

// MaxConns limits the test's pool to n connections; without it the limit is 10.
func MaxConns(n int32) Option { return func(o *options) { o.maxConns = n } }

// cleanupTimeout bounds what is done after a test.
const cleanupTimeout = 30 * time.Second

// Pool is Database(t, opts...).Pool.
func Pool(t testing.TB, opts ...Option) *pgxpool.Pool {
	t.Helper()
	return Database(t, opts...).Pool
}

// Connect returns a connection that is no pool's. It ends with the test.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Database returns a migrated, empty database that no other test uses. When the test has ended, and all that it
// registered with t.Cleanup after this call has run, the invariants are checked as by [CheckInvariants].
func Database(t testing.TB, opts ...Option) *DB {
	t.Helper()
	o := options{maxConns: 10, patience: 5 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	name, err := s.take(t.Context(), o.empty)
	if err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	db := &DB{DSN: withDatabase(s.dsn, name), Name: name}
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = o.maxConns
	if db.Pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := db.finish(ctx, t, s, o); err != nil {
			t.Errorf("clean up the test's database: %v", err)
		}
	})
	return db
}

// finish checks the database, ends what still uses it, and hands it back.
func (db *DB) finish(ctx context.Context, t testing.TB, s *server, o options) (err error) {
	t.Helper()
	// A connection of its own, because the test may have closed its pool, or used up all of it.
	conn, err := pgx.Connect(ctx, db.DSN)
	if err != nil {
		return errors.Join(err, s.drop(ctx, db.Name))
	}
	defer func() { _ = conn.Close(ctx) }() // dropping the database ends it too
	if !o.unchecked {
		found, err := violations(ctx, conn)
		if err != nil {
			t.Errorf("check the invariants: %v", err)
		}
		report(t, found)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(o.patience):
		t.Errorf("the test has not released %d connections of its pool", db.Pool.Stat().AcquiredConns())
		return s.drop(ctx, db.Name)
	}
	if o.empty {
		return s.drop(ctx, db.Name)
	}
	return s.giveBack(ctx, conn, db.Name)
}

// Main runs a package's tests, ends the server they used, and exits; the exit code is not 0 either if goroutines
// were left over. TestMain calls it last. The default logger, which clients without a Logger use, is silent unless
// KAGZI_TEST_LOG is set: tests that pass print nothing.
func Main(m *testing.M, ignore ...goleak.Option) {
	if os.Getenv("KAGZI_TEST_LOG") == "" {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	// Most tests wait: for the database, for each other's processes, or for time to pass.
	if flag.Parse(); flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))) // a number
	}
	code := m.Run()
	if err := stopSharedServer(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		code = max(code, 1)
	}
	if code == 0 { // a failed test may well have left some
		if err := goleak.Find(ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "dbtest: goroutines left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}
