package kagzi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/notify"
)

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

// serve starts a worker whose only code is fn, and returns what stops it.
func serve[In, Out any](k *kit, wf Workflow[In, Out], fn func(Context, In) (Out, error), opts ...HandleOption) (stop func() error) {
	k.t.Helper()
	w := newTestWorker(k.t, k.c, WorkerConfig{})
	Handle(w, wf, fn, opts...)
	return startWorker(k.t, w)
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

// failureOf returns the error of a run that must end with status.
func failureOf[Out any](k *kit, run *Run[Out], status Status) *RunError {
	k.t.Helper()
	out, err := run.Result(k.ctx)
	re, ok := errors.AsType[*RunError](err)
	if !ok || re.Status != status {
		k.t.Fatalf("Result: %v, %v; want a RunError with status %s", out, err, status)
	}
	return re
}

// complete serves fn, and returns the result of one run of it.
func complete[Out any](k *kit, fn func(Context) (Out, error)) Out {
	k.t.Helper()
	wf := Define[struct{}, Out]("wf")
	serve(k, wf, func(ctx Context, _ struct{}) (Out, error) { return fn(ctx) })
	return resultOf(k, begin(k, wf, struct{}{}))
}

// refused serves fn, whose calls are wrong: its run fails, although fn returns none of their errors.
func refused(k *kit, fn func(Context) (int, error)) *RunError {
	k.t.Helper()
	wf := Define[struct{}, int]("wf")
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) { return fn(ctx) })
	re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed)
	if re.Kind != KindBadRequest {
		k.t.Errorf("the run failed with kind %s: %v", re.Kind, re)
	}
	return re
}

// waitStatus waits until the run has the status, and says that it waits for what on names, if it names something.
func (k *kit) waitStatus(ref Ref, status Status, on ...string) RunInfo {
	k.t.Helper()
	var info RunInfo
	waitFor(k.t, strings.Join(append([]string{"run is", string(status)}, on...), " "), func() bool {
		var err error
		if info, err = k.c.Get(k.ctx, ref); err != nil {
			k.t.Fatal(err)
		}
		if info.Status.Ended() && info.Status != status {
			k.t.Fatalf("run is %s: %s; want %s", info.Status, info.Error, status)
		}
		return info.Status == status && (len(on) == 0 || info.WaitingOn == on[0])
	})
	return info
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

// forward makes what the run sleeps for due now, as if the time had passed.
func (k *kit) forward(id RunID) {
	k.t.Helper()
	k.exec(`UPDATE kagzi.step_runs SET wake_at = clock_timestamp() WHERE run_id = $1 AND wake_at > now()`, string(id))
	k.wake(id)
}

const wakeRun = `UPDATE kagzi.workflow_runs SET wakeups = wakeups + 1,
	available_at = CASE WHEN status = 'SLEEPING' THEN LEAST(available_at, now()) ELSE available_at END WHERE run_id = $1`

// wake does to the run what a signal does.
func (k *kit) wake(id RunID) {
	k.t.Helper()
	k.exec(wakeRun, string(id))
	wakeWorkers(k.t, k.pool)
}

// passes lends do the passes of a coordinator that does not run.
func (k *kit) passes(do func(testhook.Passes)) {
	k.t.Helper()
	co := newTestCoordinator(k.t, k.c, CoordinatorConfig{})
	if err := co.Run(testhook.With(k.ctx, &testhook.Hooks{Passes: do})); err != nil {
		k.t.Error(err)
	}
}

func (k *kit) steps(ref Ref) map[string][]StepAttempt {
	k.t.Helper()
	all, err := k.c.Steps(k.ctx, ref)
	if err != nil {
		k.t.Fatal(err)
	}
	out := map[string][]StepAttempt{}
	for _, s := range all {
		out[s.Step] = append(out[s.Step], s)
	}
	return out
}

func (k *kit) infoOf(ref Ref) RunInfo {
	k.t.Helper()
	info, err := k.c.Get(k.ctx, ref)
	if err != nil {
		k.t.Fatal(err)
	}
	return info
}

// once is a step function that counts its calls and returns v.
func once[T any](calls *atomic.Int64, v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) {
		calls.Add(1)
		return v, nil
	}
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

var (
	noRetry = RetryPolicy{MaxAttempts: 1}
	soon    = RetryPolicy{MaxAttempts: 3, Backoff: 10 * time.Millisecond, NoJitter: true}
)

// wakeWorkers tells those who listen that there may be work in the default queue.
func wakeWorkers(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	execSQL(t, pool, `SELECT pg_notify($1, $2)`, notify.WorkChannel, notify.WorkPayload("default", "default"))
}

// wakeCoordinators tells those who listen that schedules have changed.
func wakeCoordinators(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	execSQL(t, pool, `SELECT pg_notify($1, $2)`, notify.WorkChannel, notify.WorkPayload("default", ""))
}

// refreshAll has those who listen look at each run, and each worker send a heartbeat.
func refreshAll(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ids := queryOne[[]uuid.UUID](t, pool, `SELECT array(SELECT run_id FROM kagzi.workflow_runs UNION ALL SELECT worker_id FROM kagzi.workers)`)
	for _, payload := range notify.RunPayload("default", ids) {
		execSQL(t, pool, `SELECT pg_notify($1, $2)`, notify.RunChannel, payload)
	}
}

// waitListening waits until n connections to the database of the pool listen: each worker, coordinator and client that
// waits for long has one.
func waitListening(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	waitFor(t, "the process listens", func() bool {
		return queryOne[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %' AND state = 'idle'`) >= n
	})
}

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

// told is a configuration in which only notifications bring a worker anything.
var told = WorkerConfig{PollInterval: time.Hour, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, LeaseTimeout: 24 * time.Hour}

// serveWith is serve with another configuration of the worker, and a client of its own: what senders tell it comes
// through the database.
func serveWith[In, Out any](k *kit, cfg WorkerConfig, wf Workflow[In, Out], fn func(Context, In) (Out, error)) (w *Worker, stop func() error) {
	k.t.Helper()
	w = newTestWorker(k.t, newTestClient(k.t, k.pool), cfg)
	Handle(w, wf, fn)
	return w, startWorker(k.t, w)
}

func (k *kit) signal(ref Ref, m Message, opts ...ChangeOption) {
	k.t.Helper()
	if err := k.c.Signal(k.ctx, ref, m, opts...); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) cancel(ref Ref, opts ...ChangeOption) {
	k.t.Helper()
	if err := k.c.Cancel(k.ctx, ref, opts...); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) resume(ref Ref, opts ...ChangeOption) {
	k.t.Helper()
	if err := k.c.Resume(k.ctx, ref, opts...); err != nil {
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

// openPool is a pool of its own for a DSN; it is closed before the database is given back.
func openPool(t testing.TB, dsn string, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
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

// naps lets the run leave memory n times, and come back.
func naps(ctx Context, n int) error {
	for i := range n {
		if err := Sleep(ctx, fmt.Sprint("nap", i), time.Hour); err != nil {
			return err
		}
	}
	return nil
}

// throughNaps ends the naps from the first to the last one given.
func (k *kit) throughNaps(id RunID, first, last int) {
	k.t.Helper()
	for i := first; i <= last; i++ {
		k.waitStatus(id, StatusSleeping, fmt.Sprint("timer nap", i))
		k.forward(id)
	}
}

// turns are those of tests that kill worker processes at each of many points. With all of them at work at once workers
// get no processor time, and look dead.
var turns = make(chan struct{}, runtime.GOMAXPROCS(0)+1)

// waitTurn returns when it is the test's turn, which lasts until its end.
func waitTurn(t *testing.T) {
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// statusOf is how the run of a step's child stands.
func (k *kit) childOf(parent RunID, step string) RunInfo {
	k.t.Helper()
	rows, err := k.c.List(k.ctx, RunFilter{Parent: parent})
	if err != nil {
		k.t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r RunInfo) bool { return r.ParentStep == step })
	if i < 0 {
		k.t.Fatalf("run %s has no child %q among %d", parent, step, len(rows))
	}
	return rows[i]
}
