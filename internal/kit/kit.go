package kit

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/notify"
)

// A Kit has a database of its own for a test, and a client of it.
type Kit struct {
	T      *testing.T
	Ctx    context.Context
	Pool   *pgxpool.Pool
	Client *kagzi.Client
}

// New marks the test as parallel and returns its kit.
func New(t *testing.T, opts ...dbtest.Option) *Kit {
	t.Helper()
	t.Parallel()
	return NewWith(t, kagzi.ClientConfig{}, opts...)
}

// NewWith returns a kit whose client has the configuration.
func NewWith(t *testing.T, cfg kagzi.ClientConfig, opts ...dbtest.Option) *Kit {
	t.Helper()
	pool := dbtest.Pool(t, opts...)
	return &Kit{T: t, Ctx: Context(t), Pool: pool, Client: NewClientWith(t, pool, cfg)}
}

// Serve starts a worker whose only code is fn. stop stops it.
func Serve[In, Out any](k *Kit, wf kagzi.Workflow[In, Out], fn func(kagzi.Context, In) (Out, error),
	opts ...kagzi.HandleOption,
) (stop func() error) {
	k.T.Helper()
	w := NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, fn, opts...)
	return StartWorker(k.T, w)
}

// Begin starts a run.
func Begin[In, Out any](k *Kit, wf kagzi.Workflow[In, Out], in In, opts ...kagzi.StartOption) *kagzi.Run[Out] {
	k.T.Helper()
	run, err := kagzi.Start(k.Ctx, k.Client, wf, in, opts...)
	if err != nil {
		k.T.Fatal(err)
	}
	return run
}

// Find returns c's handle to a run that was started elsewhere.
func Find[In, Out any](t testing.TB, c *kagzi.Client, wf kagzi.Workflow[In, Out], ref kagzi.Ref) *kagzi.Run[Out] {
	t.Helper()
	run, err := kagzi.Find(t.Context(), c, wf, ref)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// ResultOf returns the run's result, and fails the test if it has none.
func ResultOf[Out any](k *Kit, run *kagzi.Run[Out]) Out {
	k.T.Helper()
	out, err := run.Result(k.Ctx)
	if err != nil {
		k.T.Fatalf("Result: %v", err)
	}
	return out
}

// FailureOf waits until the run has ended and returns its error. It fails the test unless the run ended with status.
func FailureOf[Out any](k *Kit, run *kagzi.Run[Out], status kagzi.Status) *kagzi.RunError {
	k.T.Helper()
	out, err := run.Result(k.Ctx)
	re, ok := errors.AsType[*kagzi.RunError](err)
	if !ok || re.Status != status {
		k.T.Fatalf("Result: %v, %v; want a RunError with status %s", out, err, status)
	}
	return re
}

// Complete serves fn and returns the result of one run of it.
func Complete[Out any](k *Kit, fn func(kagzi.Context) (Out, error)) Out {
	k.T.Helper()
	wf := kagzi.Define[struct{}, Out]("wf")
	Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (Out, error) { return fn(ctx) })
	return ResultOf(k, Begin(k, wf, struct{}{}))
}

// Refused serves fn, which makes invalid calls and ignores their errors. It returns the error of the run, which must
// fail.
func Refused(k *Kit, fn func(kagzi.Context) (int, error)) *kagzi.RunError {
	k.T.Helper()
	wf := kagzi.Define[struct{}, int]("wf")
	Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) { return fn(ctx) })
	re := FailureOf(k, Begin(k, wf, struct{}{}), kagzi.StatusFailed)
	if re.Kind != kind.BadRequest {
		k.T.Errorf("the run failed with kind %s: %v", re.Kind, re)
	}
	return re
}

// WaitStatus waits until the run has the status and, if on is given, waits for on, alone or among others.
func (k *Kit) WaitStatus(ref kagzi.Ref, status kagzi.Status, on ...string) kagzi.RunInfo {
	k.T.Helper()
	var info kagzi.RunInfo
	await.True(k.T, strings.Join(append([]string{"run is", string(status)}, on...), " "), func() bool {
		var err error
		if info, err = k.Client.Get(k.Ctx, ref); err != nil {
			k.T.Fatal(err)
		}
		if info.Status.Ended() && info.Status != status {
			k.T.Fatalf("run is %s: %s; want %s", info.Status, info.Error, status)
		}
		return info.Status == status && (len(on) == 0 || strings.Contains("; "+info.WaitingOn.String()+"; ",
			"; "+on[0]+"; "))
	})
	return info
}

// Exec executes a statement in the kit's database.
func (k *Kit) Exec(sql string, args ...any) {
	k.T.Helper()
	dbtest.Exec(k.T, k.Pool, sql, args...)
}

// Count returns the only number that the query yields.
func (k *Kit) Count(sql string, args ...any) int {
	k.T.Helper()
	var n int
	if err := dbtest.Owner(k.T, k.Pool).QueryRow(k.Ctx, sql, args...).Scan(&n); err != nil {
		k.T.Fatal(err)
	}
	return n
}

// Forward ends the sleeps of a run now, as though their time had passed.
func (k *Kit) Forward(id kagzi.RunID) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.step_runs SET wake_at = clock_timestamp() WHERE run_id = $1 AND wake_at > now()`, string(id))
	k.Wake(id)
}

// WakeRun is the statement by which a signal wakes the run $1.
const WakeRun = `UPDATE kagzi.workflow_runs SET wakeups = wakeups + 1,
	available_at = CASE WHEN status = 'SLEEPING' THEN LEAST(available_at, now()) ELSE available_at END
		WHERE run_id = $1`

// Wake wakes a run as a signal does.
func (k *Kit) Wake(id kagzi.RunID) {
	k.T.Helper()
	k.Exec(WakeRun, string(id))
	WakeWorkers(k.T, k.Pool)
}

// Passes calls do with the passes of a coordinator that is not running.
func (k *Kit) Passes(do func(testhook.Passes)) {
	k.T.Helper()
	co := NewCoordinator(k.T, k.Client, kagzi.CoordinatorConfig{})
	if err := co.Run(testhook.With(k.Ctx, &testhook.Hooks{Passes: do})); err != nil {
		k.T.Error(err)
	}
}

// Steps returns the attempts of the run's steps, by name.
func (k *Kit) Steps(ref kagzi.Ref) map[string][]kagzi.StepAttempt {
	k.T.Helper()
	all, err := k.Client.Steps(k.Ctx, ref)
	if err != nil {
		k.T.Fatal(err)
	}
	out := map[string][]kagzi.StepAttempt{}
	for _, s := range all {
		out[s.Step] = append(out[s.Step], s)
	}
	return out
}

// InfoOf returns the run as it is now.
func (k *Kit) InfoOf(ref kagzi.Ref) kagzi.RunInfo {
	k.T.Helper()
	info, err := k.Client.Get(k.Ctx, ref)
	if err != nil {
		k.T.Fatal(err)
	}
	return info
}

// Once returns a step function that counts its calls and returns v.
func Once[T any](calls *atomic.Int64, v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) {
		calls.Add(1)
		return v, nil
	}
}

// MustContain fails the test unless the text of err contains all of the parts.
func MustContain(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}

var (
	NoRetry = kagzi.RetryPolicy{MaxAttempts: 1}
	Soon    = kagzi.RetryPolicy{MaxAttempts: 3, Backoff: 10 * time.Millisecond, NoJitter: true}
)

// WakeWorkers notifies the listening workers that the default queue may have work.
func WakeWorkers(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	dbtest.Exec(t, pool, `SELECT pg_notify($1, $2)`, notify.WorkChannel, notify.WorkPayload("default", "default"))
}

// WakeCoordinators notifies the listening coordinators that schedules have changed.
func WakeCoordinators(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	dbtest.Exec(t, pool, `SELECT pg_notify($1, $2)`, notify.WorkChannel, notify.WorkPayload("default", ""))
}

// RefreshAll notifies the listening workers to refresh every run, and every worker to send a heartbeat.
func RefreshAll(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ids := dbtest.QueryOne[[]uuid.UUID](t, pool, `SELECT array(SELECT run_id FROM kagzi.workflow_runs UNION ALL
		SELECT worker_id FROM kagzi.workers)`)
	for _, payload := range notify.RunPayload("default", ids) {
		dbtest.Exec(t, pool, `SELECT pg_notify($1, $2)`, notify.RunChannel, payload)
	}
}

// WaitListening waits until n connections to pool's database listen. Each worker, each coordinator, and each client
// that waits for a result has one.
func WaitListening(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	await.True(t, "the process listens", func() bool {
		return dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query ILIKE 'listen %' AND state = 'idle'`) >= n
	})
}

// NewClientWith returns a client of pool. Unless cfg has a Logger, the log is shown if the test fails.
func NewClientWith(t testing.TB, pool *pgxpool.Pool, cfg kagzi.ClientConfig) *kagzi.Client {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = testlog.New(t)
	}
	c, err := kagzi.NewClient(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// NewClient is NewClientWith for the default configuration.
func NewClient(t testing.TB, pool *pgxpool.Pool) *kagzi.Client {
	t.Helper()
	return NewClientWith(t, pool, kagzi.ClientConfig{})
}

// StartWorker runs a worker until the test ends or stop is called. stop returns the result of Run.
func StartWorker(t *testing.T, w *kagzi.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(HookedContext(ctx, w)) }()
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

// NewWorker returns a worker without handlers, which does not run yet.
func NewWorker(t testing.TB, c *kagzi.Client, cfg kagzi.WorkerConfig) *kagzi.Worker {
	t.Helper()
	w, err := kagzi.NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// NewCoordinator returns a coordinator that does not run yet.
func NewCoordinator(t testing.TB, c *kagzi.Client, cfg kagzi.CoordinatorConfig) *kagzi.Coordinator {
	t.Helper()
	k, err := kagzi.NewCoordinator(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Context returns a context that ends with the test, or after ten minutes.
func Context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// NotifiedOnly is the configuration of a worker that neither polls nor sends heartbeats during a test, so that it acts
// only on notifications.
var NotifiedOnly = kagzi.WorkerConfig{
	PollInterval: time.Hour, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour,
	LeaseTimeout: 24 * time.Hour,
}

// ServeWith is Serve for a worker with the configuration cfg and a client of its own, so that notifications from
// senders reach it through the database.
func ServeWith[In, Out any](k *Kit, cfg kagzi.WorkerConfig, wf kagzi.Workflow[In, Out],
	fn func(kagzi.Context, In) (Out, error),
) (w *kagzi.Worker, stop func() error) {
	k.T.Helper()
	w = NewWorker(k.T, NewClient(k.T, k.Pool), cfg)
	kagzi.Handle(w, wf, fn)
	return w, StartWorker(k.T, w)
}

// Signal sends a message to a run.
func (k *Kit) Signal(ref kagzi.Ref, m kagzi.Message, opts ...kagzi.ChangeOption) {
	k.T.Helper()
	if err := k.Client.Signal(k.Ctx, ref, m, opts...); err != nil {
		k.T.Fatal(err)
	}
}

// Cancel cancels a run.
func (k *Kit) Cancel(ref kagzi.Ref, opts ...kagzi.ChangeOption) {
	k.T.Helper()
	if err := k.Client.Cancel(k.Ctx, ref, opts...); err != nil {
		k.T.Fatal(err)
	}
}

// Resume resumes a run.
func (k *Kit) Resume(ref kagzi.Ref, opts ...kagzi.ChangeOption) {
	k.T.Helper()
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, ref, opts...); err != nil {
		k.T.Fatal(err)
	}
}

// Naps sleeps n times. At each sleep the run leaves memory.
func Naps(ctx kagzi.Context, n int) error {
	for i := range n {
		if err := kagzi.Sleep(ctx, fmt.Sprint("nap", i), time.Hour); err != nil {
			return err
		}
	}
	return nil
}

// ThroughNaps waits for the naps numbered first to last of a run, and ends each of them.
func (k *Kit) ThroughNaps(id kagzi.RunID, first, last int) {
	k.T.Helper()
	for i := first; i <= last; i++ {
		k.WaitStatus(id, kagzi.StatusSleeping, fmt.Sprint("timer nap", i))
		k.Forward(id)
	}
}

// turns limits the number of tests that kill worker processes at the same time. With too many of them, workers get no
// processor time and are taken for dead.
var turns = make(chan struct{}, runtime.GOMAXPROCS(0)+1)

// holders has the names of the tests that have a turn.
var holders sync.Map

// WaitTurn waits until few enough of these tests run. The turn ends with the test. A test that has its turn, or a test
// above it has one, does not wait.
func WaitTurn(t testing.TB) {
	for name := t.Name(); ; name = path.Dir(name) {
		if _, has := holders.Load(name); has {
			return
		}
		if !strings.Contains(name, "/") {
			break
		}
	}
	turns <- struct{}{}
	holders.Store(t.Name(), true)
	t.Cleanup(func() {
		holders.Delete(t.Name())
		<-turns
	})
}

// ChildOf returns the child that the step of parent has started.
func (k *Kit) ChildOf(parent kagzi.RunID, step string) kagzi.RunInfo {
	k.T.Helper()
	rows, err := k.Client.List(k.Ctx, kagzi.RunFilter{Parent: parent, Payloads: true})
	if err != nil {
		k.T.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r kagzi.RunInfo) bool { return r.ParentStep == step })
	if i < 0 {
		k.T.Fatalf("run %s has no child %q among %d", parent, step, len(rows))
	}
	return rows[i]
}
