package kagzi

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/testlog"
)

// The tests of this package cannot use internal/kit, which imports it. These are the few helpers that both need.

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
		cfg.Logger = testlog.New(t)
	}
	c, err := NewClient(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
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
	go func() { done <- w.Run(ctx) }()
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

func (k *kit) callersTx() pgx.Tx {
	k.t.Helper()
	return dbtest.Begin(k.t, k.pool)
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

// loggedClient returns a client and the buffer that it logs to.
func loggedClient(t *testing.T, pool *pgxpool.Pool) (*Client, *testlog.Buffer) {
	t.Helper()
	logged := &testlog.Buffer{}
	return clientWith(t, pool, ClientConfig{Logger: logged.Logger()}), logged
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

// poorClient returns a client of a role that has every right on the tables except those that revoke takes away.
func poorClient(t *testing.T, db *dbtest.DB, revoke string) (role string, c *Client, logged *testlog.Buffer) {
	t.Helper()
	role = dbtest.Role(t, db)
	if revoke != "" {
		dbtest.Exec(t, db.Pool, fmt.Sprintf(`REVOKE %s FROM %s`, revoke, role))
	}
	c, logged = loggedClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)))
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
