package kagzi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testhook"
)

// What follows is in internal/kit, too, which imports this package, so that tests in the package cannot use it. It goes when the
// engine and its tests have a package of their own.

func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came for %v", patience)
		panic("unreachable")
	}
}

// hooks are those of workers that are not started yet: see hooksOf.
var hooks sync.Map

// hookedContext returns ctx, for the Run of w, with the worker's hooks.
func hookedContext(ctx context.Context, w *Worker) context.Context {
	if h, ok := hooks.Load(w); ok {
		return testhook.With(ctx, h.(*testhook.Hooks))
	}
	return ctx
}

// A kit is what a test of the workflow language begins with: a database of its own and a client of it.
type kit struct {
	t    *testing.T
	ctx  context.Context
	pool *pgxpool.Pool
	c    *Client
}

func newKit(t *testing.T, opts ...dbtest.Option) *kit {
	t.Helper()
	t.Parallel()
	return newKitWith(t, ClientConfig{}, opts...)
}

func newKitWith(t *testing.T, cfg ClientConfig, opts ...dbtest.Option) *kit {
	t.Helper()
	pool := dbtest.Pool(t, opts...)
	return &kit{t: t, ctx: testContext(t), pool: pool, c: clientWith(t, pool, cfg)}
}

func begin[In, Out any](k *kit, wf Workflow[In, Out], in In, opts ...StartOption) *Run[Out] {
	k.t.Helper()
	run, err := Start(k.ctx, k.c, wf, in, opts...)
	if err != nil {
		k.t.Fatal(err)
	}
	return run
}

// find returns c's handle to a run that was started elsewhere.
func find[In, Out any](t testing.TB, c *Client, wf Workflow[In, Out], ref Ref) *Run[Out] {
	t.Helper()
	run, err := Find(t.Context(), c, wf, ref)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func resultOf[Out any](k *kit, run *Run[Out]) Out {
	k.t.Helper()
	out, err := run.Result(k.ctx)
	if err != nil {
		k.t.Fatalf("Result: %v", err)
	}
	return out
}

func (k *kit) exec(sql string, args ...any) {
	k.t.Helper()
	if _, err := k.pool.Exec(k.ctx, sql, args...); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) count(sql string, args ...any) int {
	k.t.Helper()
	var n int
	if err := k.pool.QueryRow(k.ctx, sql, args...).Scan(&n); err != nil {
		k.t.Fatal(err)
	}
	return n
}

func mustContain(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

var noRetry = RetryPolicy{MaxAttempts: 1}

func clientWith(t testing.TB, pool *pgxpool.Pool, cfg ClientConfig) *Client {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = logOf(t)
	}
	c, err := NewClient(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// logOf returns a logger whose lines are shown if the test fails.
func logOf(t testing.TB) *slog.Logger {
	logged := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was logged:\n%s", logged)
		}
	})
	return slog.New(slog.NewTextHandler(logged, nil))
}

func newTestClient(t testing.TB, pool *pgxpool.Pool) *Client {
	t.Helper()
	return clientWith(t, pool, ClientConfig{})
}

// startWorker runs a worker until the test ends, or until stop is called, which returns what Run returned.
func startWorker(t *testing.T, w *Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(hookedContext(ctx, w)) }()
	var err error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			err, stopped = <-done, true
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Worker.Run: %v", err)
		}
	})
	return stop
}

func newTestWorker(t testing.TB, c *Client, cfg WorkerConfig) *Worker {
	t.Helper()
	w, err := NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func newTestCoordinator(t testing.TB, c *Client, cfg CoordinatorConfig) *Coordinator {
	t.Helper()
	k, err := NewCoordinator(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (k *kit) cancel(ref Ref, opts ...ChangeOption) {
	k.t.Helper()
	if err := k.c.Cancel(k.ctx, ref, opts...); err != nil {
		k.t.Fatal(err)
	}
}

// patience is how long a test waits for what must happen at some time.
const patience = 30 * time.Second

// waitFor waits until cond, and fails the test if that takes longer than patience.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	pollFor(t, patience, what, cond)
}

func pollFor(t testing.TB, most time.Duration, what string, cond func() bool) {
	t.Helper()
	if !comesTrue(most, cond) {
		t.Fatalf("waited %v in vain: %s", most, what)
	}
}

// comesTrue reports whether cond comes true within most. It asks every 5 ms, or less often where the answer takes long:
// many tests wait at a time, and what they wait for needs the processors.
func comesTrue(most time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	for {
		begun := time.Now()
		if cond() {
			return true
		}
		pause := time.NewTimer(min(max(5*time.Millisecond, time.Since(begun)), 250*time.Millisecond))
		select {
		case <-pause.C:
		case <-deadline.C:
			pause.Stop()
			return cond()
		}
	}
}

// queryOne returns the one value that the query yields.
func queryOne[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, _ := pool.Query(context.Background(), sql, args...) // the error comes with the rows
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execSQL(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// poolWith is a pool whose sessions begin with a setting.
func poolWith(t *testing.T, dsn, name, value string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams[name] = value
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// callersTx is a transaction of a caller that stays open until the test ends, unless it is ended before.
func callersTx(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (k *kit) callersTx() pgx.Tx {
	k.t.Helper()
	return callersTx(k.t, k.pool)
}

func commitTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func rollbackTx(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
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

// loggedClient is a client that logs to what is returned.
func loggedClient(t *testing.T, pool *pgxpool.Pool) (*Client, *logBuffer) {
	t.Helper()
	logged := &logBuffer{}
	return clientWith(t, pool, ClientConfig{Logger: slog.New(slog.NewTextHandler(logged, nil))}), logged
}

// startRuns starts n runs of wf with inputs from 0 and returns their handles.
func startRuns[Out any](t testing.TB, c *Client, wf Workflow[int, Out], n int) []*Run[Out] {
	t.Helper()
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	started, err := c.StartMany(t.Context(), calls)
	if err != nil {
		t.Fatal(err)
	}
	runs := make([]*Run[Out], n)
	for i, s := range started {
		runs[i] = find(t, c, wf, s)
	}
	return runs
}

// poorClient is a client of a user who has every right on the tables but those that revoke takes away.
func poorClient(t *testing.T, db *dbtest.DB, revoke string) (role string, c *Client, logged *logBuffer) {
	t.Helper()
	role = "poor_" + strings.ReplaceAll(uuid.NewString(), "-", "")
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
	if revoke != "" {
		execSQL(t, db.Pool, fmt.Sprintf(`REVOKE %s FROM %s`, revoke, role))
	}
	c, logged = loggedClient(t, poolWith(t, db.DSN, "role", role))
	return role, c, logged
}

// nothing is a workflow without steps, which its tests serve as they like.
var nothing = Define[int, string]("nothing")

var report = Define[string, string]("report")

// schedule creates or changes a schedule of report.
func (k *kit) schedule(s Schedule) {
	k.t.Helper()
	if reflect.ValueOf(s.Run).IsZero() {
		s.Run = report.With("in")
	}
	if err := k.c.Schedule(k.ctx, s); err != nil {
		k.t.Fatal(err)
	}
}

// coordinator returns one that is not running: tests call its passes.
func (k *kit) coordinator() *Coordinator {
	k.t.Helper()
	co := newTestCoordinator(k.t, k.c, CoordinatorConfig{})
	return co
}

// missed makes a schedule as if nobody had fired it for so long.
func (k *kit) missed(name string, d time.Duration) {
	k.t.Helper()
	k.exec(`UPDATE kagzi.schedules SET cursor_at = date_trunc('second', clock_timestamp()) - $2::interval, next_at = CASE WHEN next_at < 'infinity' THEN now() ELSE next_at END
		WHERE name = $1`, name, d)
}

// pass lets a coordinator fire what is due, once.
func (k *kit) pass(co *Coordinator) {
	k.t.Helper()
	if _, err := k.fire(co); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) info(name string) ScheduleInfo {
	k.t.Helper()
	info, err := k.c.GetSchedule(k.ctx, name)
	if err != nil {
		k.t.Fatal(err)
	}
	return info
}

// fired returns the runs of a schedule, oldest first.
func (k *kit) fired(name string) []RunInfo {
	k.t.Helper()
	runs, err := k.c.List(k.ctx, RunFilter{Schedule: name, Limit: 100_000})
	if err != nil {
		k.t.Fatal(err)
	}
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs
}

func (k *kit) now() time.Time {
	k.t.Helper()
	var now time.Time
	if err := k.pool.QueryRow(k.ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		k.t.Fatal(err)
	}
	return now
}

func second[T any](_ T, err error) error { return err }

// fire is pass, and returns how long the next one may wait.
func (k *kit) fire(co *Coordinator) (pause time.Duration, err error) {
	k.t.Helper()
	hooks := &testhook.Hooks{Passes: func(p testhook.Passes) { pause, err = p.FireSchedules(k.ctx) }}
	if err := co.Run(testhook.With(k.ctx, hooks)); err != nil {
		k.t.Error(err)
	}
	return pause, err
}

var odds = Define[int, int]("odds")
