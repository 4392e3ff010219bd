package housekeeping

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	week  = 7 * 24 * time.Hour
	month = 30 * 24 * time.Hour
)

// newCoordinator returns a coordinator with the defaults of the API, but for change. Its log is shown if the test fails.
func newCoordinator(t testing.TB, pool *pgxpool.Pool, change ...func(*Config)) *Coordinator {
	t.Helper()
	logged := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logged)
		}
	})
	cfg := Config{
		Store: store.New(pool, "default"), Log: slog.New(slog.NewTextHandler(logged, nil)),
		Interval: 5 * time.Second, Batch: 100, MaxRuns: 1000, StaleAfter: 30 * time.Second, Grace: 3 * time.Second,
		Retention: store.Retention{Completed: week, Failed: month},
	}
	for _, f := range change {
		f(&cfg)
	}
	cfg.Hints = hints.New(cfg.Store, cfg.Log, func(context.Context) error { return nil })
	cfg.Outage = outage.New(cfg.Log, cfg.Hints.Reconnect)
	t.Cleanup(cfg.Hints.Flush)
	return New(cfg)
}

func execSQL(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func queryOne[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, _ := pool.Query(context.Background(), sql, args...) // the error comes with the rows
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// locking returns a transaction that has locked what the statement selects. It ends with the test, unless it is ended before.
func locking(t *testing.T, pool *pgxpool.Pool, sql string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return tx
}

// poolWith returns a pool that ends with the test, for db's DSN as change has it.
func poolWith(t *testing.T, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	change(cfg)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// poolOfAnotherRole returns a pool of a role that has all rights to the tables, and to which their policies apply.
func poolOfAnotherRole(t *testing.T, db *dbtest.DB) *pgxpool.Pool {
	t.Helper()
	role := "another_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	execSQL(t, db.Pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := db.Pool.Exec(context.Background(), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	execSQL(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	execSQL(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO `+role)
	return poolWith(t, db.DSN, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["role"] = role })
}

// waitFor waits until cond holds.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// A logBuffer keeps what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// wantLine fails the test unless a line was logged that has all of the parts.
func (l *logBuffer) wantLine(t *testing.T, parts ...string) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return
		}
	}
	t.Errorf("no line has %q:\n%s", parts, l)
}
