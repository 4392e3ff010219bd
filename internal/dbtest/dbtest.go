// Package dbtest gives each test a Postgres database of its own, and checks after the test that the tables violate none
// of Kagzi's invariants. It also has the helpers that every test with a database needs.
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := dbtest.Pool(t)
//		…
//	}
//
// The databases are on a throwaway server of the test binary, or on the server that KAGZI_TEST_DATABASE_URL names. A
// database is emptied after each test and used again, with the connections of its pool. That takes a few milliseconds,
// and isolates the tests from each other's notifications and advisory locks, too.
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
	// Pool is used by no other test meanwhile. The test may close it. When the test has ended, nothing of it may use
	// the pool, which may be the next test's.
	Pool *pgxpool.Pool
	// DSN is the database's URL, for tests that open other connections. Connections still open after the test are
	// ended.
	DSN string
	// Name is the database's name on the server.
	Name string
}

// An Option changes the database that a test gets.
type Option func(*options)

type options struct {
	unchecked bool
	owner     bool
	empty     bool
	maxConns  int32
	patience  time.Duration // for connections that the test has not released
}

// Unchecked omits the check of the invariants after the test, for tests that violate them on purpose.
func Unchecked() Option { return func(o *options) { o.unchecked = true } }

// AsOwner gives the test the owner's pool and DSN, whatever KAGZI_TEST_ROLES says, for tests of what only a superuser
// may do or see.
func AsOwner() Option { return func(o *options) { o.owner = true } }

// Empty gives a database without Kagzi's tables. It implies Unchecked.
func Empty() Option { return func(o *options) { o.empty, o.unchecked = true, true } }

// MaxConns limits the test's pool to n connections. The default is 10.
func MaxConns(n int32) Option { return func(o *options) { o.maxConns = n } }

// Pool is Database(t, opts...).Pool.
func Pool(t testing.TB, opts ...Option) *pgxpool.Pool {
	t.Helper()
	return Database(t, opts...).Pool
}

// Connect opens a connection of the owner outside any pool. It is closed when the test ends.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), ownerDSN(dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Database returns a migrated, empty database that no other test uses. It checks the invariants like [CheckInvariants]
// when the test has ended and the cleanups that were registered after this call have run.
func Database(t testing.TB, opts ...Option) *DB {
	t.Helper()
	o := options{maxConns: poolConns, patience: endPatience}
	for _, opt := range opts {
		opt(&o)
	}
	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.take(t.Context(), o.empty)
	if err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	if o.owner {
		d.toOwner()
	}
	db := &DB{DSN: d.appDSN, Name: d.name}
	if db.Pool, err = d.open(context.Background(), o.maxConns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := db.finish(ctx, t, s, d, o); err != nil {
			t.Errorf("clean up the test's database: %v", err)
		}
	})
	return db
}

// finish checks the database, ends the connections to it, and gives it back.
func (db *DB) finish(ctx context.Context, t testing.TB, s *server, d *database, o options) error {
	t.Helper()
	s.closeOwner(d.name)
	if !released(db.Pool, o.patience) {
		t.Errorf("the test has not released %d connections of its pool", db.Pool.Stat().AcquiredConns())
		go db.Pool.Close() // waits for them
		d.pool = nil
		return s.drop(ctx, d)
	}
	if db.Pool != d.pool {
		db.Pool.Close()
	}
	c, err := d.clean(ctx)
	if err != nil {
		return errors.Join(err, s.drop(ctx, d))
	}
	if !o.unchecked {
		found, err := violations(ctx, c, true)
		if err != nil {
			t.Errorf("check the invariants: %v", err)
		}
		report(t, found)
	}
	if o.empty {
		c.release()
		return s.drop(ctx, d)
	}
	return s.giveBack(ctx, d, c)
}

// released waits until none of the pool's connections is in use.
func released(pool *pgxpool.Pool, patience time.Duration) bool {
	for end := time.Now().Add(patience); pool.Stat().AcquiredConns() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// lingers is longer than a client keeps its connection for notifications after the last Result.
const lingers = time.Minute

// Main runs a package's tests, ends the server that they used, and exits. The exit code is not 0 if a test failed or
// left goroutines behind. TestMain calls it last. The default logger, which clients without a Logger use, is silent
// unless KAGZI_TEST_LOG is set, so that tests that pass print nothing.
func Main(m *testing.M, ignore ...goleak.Option) {
	if os.Getenv("KAGZI_TEST_LOG") == "" {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	// Run more tests at once than there are processors: most tests wait for the database, for processes, or for time to
	// pass.
	if flag.Parse(); flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))) // a number
	}
	code := m.Run()
	if err := stopSharedServer(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		code = max(code, 1)
	}
	if code == 0 { // a failed test may have left goroutines
		err := goleak.Find(ignore...)
		for begun := time.Now(); err != nil && time.Since(begun) < lingers; err = goleak.Find(ignore...) {
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "dbtest: goroutines left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}
