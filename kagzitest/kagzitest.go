// Package kagzitest tests workflows: each test gets a database and a worker of its own, and a clock that it moves
// forward instead of waiting.
//
//	func TestTrial(t *testing.T) {
//		env := kagzitest.New(t)
//		kagzi.Handle(env.Worker, Trial, trial)
//		kagzitest.Mock(env, "charge", func(context.Context) (Receipt, error) { return Receipt{ID: "r1"}, nil })
//
//		run := kagzitest.Start(env, Trial, customer)
//		env.Advance(90 * 24 * time.Hour)
//		…
//
// [Env.Publish] publishes events, and consumers (topic.Consume) deal with them, and wake at their times, as the clock
// moves.
//
// The databases are on a throwaway server, which the first test starts from the installed Postgres, or on the server
// that the environment variable KAGZI_TEST_DATABASE_URL names, whose user must be allowed to create databases.
//
// After the test, every run that ended in it is executed once more against its history, and must come to the same end.
// This replay finds step functions that set variables of the workflow, times and random numbers that do not come from a
// step, and branches on values that are not in the history.
package kagzitest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/topic"
)

// Config configures [New]; the zero value works.
type Config struct {
	// Client configures the test's client. Without a Logger it logs warnings and errors to the test's output.
	Client kagzi.ClientConfig

	// Worker configures the test's worker. Its coordinator deletes no runs, and no events, unless Coordinator says so.
	// It serves the queue "default", or those that Queue or Queues name: for runs and children of another, run a worker
	// of that queue, too, made with [kagzi.NewWorker] of env.Client. The test's worker runs without a handler if others
	// have them all.
	Worker kagzi.WorkerConfig

	// StepPatience is how long the test waits, in real time, for the function of a step before the clock moves on
	// without it. Zero means 1 second.
	StepPatience time.Duration

	// NoReplay says why the runs of the test cannot be replayed after it, for example because the test changes the code
	// of a workflow. If it is empty, they are replayed.
	NoReplay string

	// SpareMocks allows mocks that no step calls, for tests that share the code that sets the mocks. Without it such a
	// mock fails the test.
	SpareMocks bool
}

// Env has the database, the client and the worker of a test. Only the test's own goroutine may call its methods. [Mock]
// and [MockDo] may be called from any goroutine.
type Env struct {
	Pool   *pgxpool.Pool // of the test's database, on which kagzi.Migrate was called
	Client *kagzi.Client
	Worker *kagzi.Worker // give it code with kagzi.Handle

	t         testing.TB
	ctx       context.Context
	cfg       Config
	namespace string

	session testhook.Session   // of the worker; nil until it runs
	stop    context.CancelFunc // stops the worker; nil until it runs
	ended   chan struct{}      // closed when the worker has ended
	err     error              // of the worker, valid once ended is closed

	stuck time.Duration // how long Result waits for a run that makes no progress
	moves int           // the most moves of the clock in one Skip
	until time.Time     // when Result stops waiting for a step; zero: never

	functions *stepFunctions
}

// patience bounds a wait for a worker, or for the cleanup after the test.
const patience = 30 * time.Second

// century is how long events are kept, so that they stay while a test skips years.
const century = 100 * 365 * 24 * time.Hour

// coordinated returns the namespace whose coordinator the test's worker hosts, empty if it hosts none.
func (e *Env) coordinated() string {
	if e.cfg.Worker.NoCoordinator {
		return ""
	}
	return e.namespace
}

// New returns a database, a client and a worker for the test. After the test, it stops the worker, replays the runs
// that ended, and drops the database. A wrong Config, or the lack of a Postgres, fails the test.
func New(t testing.TB, cfg ...Config) *Env {
	t.Helper()
	e := &Env{t: t, ctx: t.Context(), stuck: 10 * time.Second, moves: 10_000, functions: newStepFunctions(t)}
	if len(cfg) > 1 {
		t.Fatalf("kagzitest: New got %d Configs: give one", len(cfg))
	}
	for _, c := range cfg {
		e.cfg = c
	}
	if limited, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := limited.Deadline(); ok {
			e.until = at.Add(-time.Until(at) / 10) // leave time for the replay and the cleanup
		}
	}
	e.cfg.StepPatience = cmp.Or(e.cfg.StepPatience, time.Second)
	s, err := shared.Get()
	if err != nil {
		t.Fatalf("kagzitest: %v", err)
	}
	name, err := s.take(e.ctx)
	if err != nil {
		t.Fatalf("kagzitest: make a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		e.close(ctx)
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("kagzitest: drop the test's database: %v", err)
		}
	})
	if err := e.open(withDatabase(s.dsn, name)); err != nil {
		t.Fatalf("kagzitest: %v", err)
	}
	return e
}

// open opens the pool, and makes the client and the worker.
func (e *Env) open(dsn string) error {
	pool, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	pool.MaxConns = max(pool.MaxConns, 10)
	delete(pool.ConnConfig.RuntimeParams, "search_path") // the setting of the database puts its clock first
	if e.Pool, err = pgxpool.NewWithConfig(context.Background(), pool); err != nil {
		return err
	}
	client, worker := e.cfg.Client, e.cfg.Worker
	if client.Logger == nil {
		client.Logger = slog.New(slog.NewTextHandler(e.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	e.namespace = cmp.Or(client.Namespace, "default")
	if e.Client, err = kagzi.NewClient(e.Pool, client); err != nil {
		return err
	}
	keeps := worker.Coordinator.KeepCompleted != 0 || worker.Coordinator.KeepFailed != 0 ||
		worker.Coordinator.KeepAudit != 0 || worker.Coordinator.Keep != nil
	if !keeps && !worker.NoCoordinator {
		worker.Coordinator.KeepForever = true
	}
	if !worker.NoCoordinator {
		worker.Coordinator.KeepEvents = cmp.Or(worker.Coordinator.KeepEvents, century)
	}
	worker.DrainTimeout = cmp.Or(worker.DrainTimeout, 5*time.Second)
	e.Worker, err = kagzi.NewWorker(e.Client, worker)
	return err
}

// StartWorker starts the worker unless it is running, and returns once the worker claims runs. Call it after
// kagzi.Handle. [Start], [Env.Advance] and [Env.Skip] call it themselves.
func (e *Env) StartWorker() {
	e.t.Helper()
	if e.stop != nil {
		e.checkWorker()
		return
	}
	begun := make(chan struct{})
	ctx, stop := context.WithCancel(testhook.With(context.Background(), &testhook.Hooks{
		Call:    e.functions.call,
		NoGrace: true, // the clock stands still while workers claim due runs

		NoHandler: true, // others may have them: the test needs the worker's coordinator
		Begun:     func(s testhook.Session) { e.session = s; close(begun) },
		Late: func(workflow string) {
			e.t.Errorf("kagzitest: kagzi.Handle of workflow %q comes too late: the worker is running: call it before "+
				"Start, StartWorker, Advance and Skip", workflow)
		},
	}))
	e.stop, e.ended = stop, make(chan struct{})
	go func() {
		defer close(e.ended)
		e.err = e.Worker.Run(ctx)
	}()
	select {
	case <-begun:
	case <-e.ended:
		e.checkWorker()
	}
}

// checkWorker fails the test if the worker has ended.
func (e *Env) checkWorker() {
	e.t.Helper()
	select {
	case <-e.ended:
		if e.err != nil {
			e.t.Fatalf("kagzitest: the worker has ended: %v", e.err)
		}
		e.t.Fatal("kagzitest: the worker has ended: it was asked to drain")
	default:
	}
}

// close stops the worker, replays the runs that ended, and closes the pool.
func (e *Env) close(ctx context.Context) {
	e.t.Helper()
	if e.Pool == nil {
		return
	}
	if e.stop != nil {
		e.stop()
		<-e.ended
		if e.err != nil && !e.t.Failed() {
			e.t.Errorf("kagzitest: the worker ended with: %v", e.err)
		}
		if !e.cfg.SpareMocks {
			e.functions.checkMocks()
		}
		if e.session != nil && e.cfg.NoReplay == "" {
			replayAll(ctx, e.t, e.Client, e.Worker, e.session.Handles)
		}
	}
	e.Pool.Close()
}

// Start is [kagzi.Start] with the test's client, and starts the worker. An error fails the test.
func Start[In, Out any](e *Env, wf kagzi.Workflow[In, Out], in In, opts ...kagzi.StartOption) *kagzi.Run[Out] {
	e.t.Helper()
	e.StartWorker()
	run, err := kagzi.Start(e.ctx, e.Client, wf, in, opts...)
	if err != nil {
		e.t.Fatalf("kagzitest: %v", err)
	}
	return run
}

// Publish is PublishMany of a topic.Client with the test's client, and starts the worker. An error fails the test. The
// runs of consumers begin at once; [Env.Advance] with a duration of zero waits until they have gone as far as they can.
func (e *Env) Publish(events ...topic.NewEvent) {
	e.t.Helper()
	e.StartWorker()
	if err := topic.New(e.Client).PublishMany(e.ctx, events); err != nil {
		e.t.Fatalf("kagzitest: %v", err)
	}
}

// Steps returns the IDs of the run's steps, sleeps and so on that ended, in the order in which they started, such as
// "ship/0/pack" for a step of a branch. The ID of a failed attempt is followed by the kind of its failure: "charge
// (network)". Compensations that ran come last: "charge#compensation". [kagzi.Client.Steps] returns more details.
func (e *Env) Steps(ref kagzi.Ref) []string {
	e.t.Helper()
	attempts, err := e.Client.Steps(e.ctx, ref)
	if err != nil {
		e.t.Fatalf("kagzitest: %v", err)
	}
	slices.SortStableFunc(attempts, func(a, b kagzi.StepAttempt) int { // compensations start with their registration
		ran := func(a kagzi.StepAttempt) time.Time {
			if a.Type == "COMPENSATION" {
				return a.EndedAt
			}
			return time.Time{}
		}
		return ran(a).Compare(ran(b))
	})
	var out []string
	for _, a := range attempts {
		switch {
		case strings.HasPrefix(a.Step, "#"): // a record of the engine
		case a.Status == kagzi.StatusCompleted && a.Kind == "":
			out = append(out, a.Step)
		case a.Kind != "": // it failed; so has a child that was cancelled
			out = append(out, fmt.Sprintf("%s (%s)", a.Step, a.Kind))
		}
	}
	return out
}

// Main runs the tests of a package, ends the Postgres server that they used, and exits. Without it the server ends with
// the process. A package needs it if it searches for goroutines that its tests have left. TestMain calls it last.
func Main(m *testing.M) {
	code := m.Run()
	if err := stopSharedServer(); err != nil {
		fmt.Fprintln(os.Stderr, "kagzitest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
