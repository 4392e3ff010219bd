package kagzi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/notify"
)

// What follows is in internal/kit, too, which imports this package, so that tests in the package cannot use it. It goes when the
// engine and its tests have a package of their own.

// cancelBooking is their compensation, on a queue of its own.
var cancelBooking = Define[string, struct{}]("cancel-booking", Queue("compensations"), RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})

// loseRun makes a run look as if its n-th worker without progress had died and its lease had ended.
func loseRun(t *testing.T, db *dbtest.DB, id RunID, n int) {
	t.Helper()
	execSQL(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = $2, lease = $2, started_at = now() - interval '1 hour',
		available_at = now() - interval '1 s', recoveries = $3, recoveries_since = now() - interval '1 hour' WHERE run_id = $1`, string(id), uuid.New(), n)
}

const eventsOfWorkers = `SELECT string_agg(event, ' ' ORDER BY occurred_at) FROM kagzi.worker_events`

// A gate is a workflow of one step, which tells when it begins and then waits for its context or for open.
type gate struct {
	wf    Workflow[int, string]
	begun chan int
	open  chan struct{}
	cause chan error // of each step whose context ended
	deaf  bool       // ignore the context
}

func newGate() *gate {
	return &gate{
		wf: Define[int, string]("gate"), begun: make(chan int, 100), open: make(chan struct{}), cause: make(chan error, 100),
	}
}

func (g *gate) handle(w *Worker) {
	Handle(w, g.wf, func(ctx Context, n int) (string, error) {
		return Step(ctx, "wait", func(ctx context.Context) (string, error) {
			g.begun <- n
			done := ctx.Done()
			if g.deaf {
				done = nil
			}
			select {
			case <-g.open:
				return "opened", nil
			case <-done:
				g.cause <- context.Cause(ctx)
				return "", ctx.Err()
			}
		})
	})
}

// gated is a running worker with a gate, in which n runs are under way.
func gated(t *testing.T, c *Client, cfg WorkerConfig, n int) (g *gate, runs []*Run[string], stop func()) {
	t.Helper()
	g = newGate()
	w := newTestWorker(t, c, cfg)
	g.handle(w)
	runs = startRuns(t, c, g.wf, n)
	stop = startLocal(t, w)
	for range n {
		receive(t, g.begun)
	}
	return g, runs, stop
}

// losesLeases waits until n steps have seen their contexts end because their leases are lost.
func (g *gate) losesLeases(t *testing.T, n int) {
	t.Helper()
	for range n {
		if cause := receive(t, g.cause); !errors.Is(cause, ErrLeaseLost) {
			t.Errorf("the cause is %v, want ErrLeaseLost", cause)
		}
	}
}

// through returns c's handles to runs of the gate that another client started.
func (g *gate) through(t testing.TB, c *Client, runs []*Run[string]) []*Run[string] {
	t.Helper()
	out := make([]*Run[string], len(runs))
	for i, r := range runs {
		out[i] = find(t, c, g.wf, r)
	}
	return out
}

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

// stopping calls stop and returns a channel that is closed once it has returned.
func stopping(stop func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
	}()
	return done
}

// hooks are those of workers that are not started yet: see hooksOf.
var hooks sync.Map

// hooksOf returns the hooks with which startWorker and startLocal run the worker. The test sets them before.
func hooksOf(t testing.TB, w *Worker) *testhook.Hooks {
	h, found := hooks.LoadOrStore(w, &testhook.Hooks{})
	if !found {
		t.Cleanup(func() { hooks.Delete(w) })
	}
	return h.(*testhook.Hooks)
}

// failpoint calls reached at each named point of the worker's way, with the run that gets there if it is one run.
func failpoint(t testing.TB, w *Worker, reached func(point string, run uuid.UUID)) {
	hooksOf(t, w).Point = reached
}

// hookedContext returns ctx, for the Run of w, with the worker's hooks.
func hookedContext(ctx context.Context, w *Worker) context.Context {
	if h, ok := hooks.Load(w); ok {
		return testhook.With(ctx, h.(*testhook.Hooks))
	}
	return ctx
}

// hangAt lets the worker, which is not started yet, hang from when it first comes to the point, and when holds if it is
// given: hung is closed then. All that comes there hangs until release is called.
func hangAt(t testing.TB, w *Worker, point string, when ...func() bool) (hung <-chan struct{}, release func()) {
	reached, open := make(chan struct{}), make(chan struct{})
	var first sync.Once
	failpoint(t, w, func(at string, _ uuid.UUID) {
		if at == point && (len(when) == 0 || when[0]()) {
			first.Do(func() {
				close(reached)
				<-open
			})
		}
	})
	return reached, sync.OnceFunc(func() { close(open) })
}

// mute is a worker whose heartbeats come too rarely for a test to see one that nothing has caused.
var mute = WorkerConfig{Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, LeaseTimeout: time.Hour}

// quick is a fleet that finds its dead within a second.
var quick = WorkerConfig{MaxConcurrent: 4, Heartbeat: 200 * time.Millisecond, StaleAfter: time.Second, PollInterval: 200 * time.Millisecond}

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

// wakeWorkers tells those who listen that there may be work in the default queue.
func wakeWorkers(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	execSQL(t, pool, `SELECT pg_notify($1, $2)`, notify.WorkChannel, notify.WorkPayload("default", "default"))
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

// locking is a caller's transaction that has locked what the statement selects.
func locking(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx := callersTx(t, pool)
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

const lockRun = `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`

const lockRuns = `SELECT FROM kagzi.workflow_runs FOR UPDATE`

const lockWorkers = `SELECT FROM kagzi.workers FOR UPDATE`

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

// unreachable is a pool of a database that is not there: what is refused before any SQL does not notice.
func unreachable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
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

func (l *logBuffer) has(part string) bool { return strings.Contains(l.String(), part) }

// wantLine fails the test unless a line is logged, soon, that has all of the parts.
func (l *logBuffer) wantLine(t *testing.T, parts ...string) {
	t.Helper()
	waitFor(t, strings.Join(parts, " … ")+" is logged", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for line := range strings.Lines(l.buf.String()) {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return true
			}
		}
		return false
	})
}

// loggedClient is a client that logs to what is returned.
func loggedClient(t *testing.T, pool *pgxpool.Pool) (*Client, *logBuffer) {
	t.Helper()
	logged := &logBuffer{}
	return clientWith(t, pool, ClientConfig{Logger: slog.New(slog.NewTextHandler(logged, nil))}), logged
}

// ownServer starts a Postgres for one test, which may crash it, and a migrated database.
func ownServer(ctx context.Context, t *testing.T, conns int32) (*localpg.Cluster, *pgxpool.Pool) {
	t.Helper()
	server, err := localpg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := openPool(t, server.DSN(), conns)
	if err := Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	return server, pool
}

// runWorker runs w until it ends by itself: what Run returns is sent.
func runWorker(t *testing.T, w *Worker) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	return done
}

func only(t *testing.T, c *Client, f WorkerFilter) WorkerInfo {
	t.Helper()
	page, total, err := c.Workers(t.Context(), f)
	if err != nil || total != 1 || len(page) != 1 {
		t.Fatalf("workers %+v, %d in all, %v; want one", page, total, err)
	}
	return page[0]
}

// startLocal runs w until the test ends, or until stop is called, which fails the test unless Run returned nil.
func startLocal(t testing.TB, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(hookedContext(ctx, w)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * patience):
			t.Error("Run has not returned")
		}
	})
	t.Cleanup(stop)
	return stop
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

// checkResults waits for the runs, the i-th of which must return want(i).
func checkResults[Out comparable](t testing.TB, runs []*Run[Out], want func(i int) Out) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() {
			if got, err := r.Result(ctx); err != nil || got != want(i) {
				t.Errorf("run %d, %s, returned %v, %v; want %v", i, r.ID(), got, err, want(i))
			}
		})
	}
	wg.Wait()
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

var approved = DefineSignal[string]("approved")

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
