// Package kagzitest tests workflows: each test gets a database and a worker of its own, and a clock that it moves forward
// instead of waiting.
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
// The databases lie on a throwaway Postgres, which the first test starts from whatever Postgres is installed, or on the
// server that the environment variable KAGZI_DATABASE_URL names, whose user must be allowed to create databases.
//
// When the test is over, every run that ended in it is executed once more against its history, which must come to
// the same end: that finds variables that a step's function sets outside of itself, times and random numbers that are
// not taken from a step, and branches on what is no part of the history.
package kagzitest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testhook"
)

// Config configures [New]; the zero value works.
type Config struct {
	// Client configures the test's client. Without a Logger it logs warnings and errors to the test's output.
	Client kagzi.ClientConfig

	// Worker configures the test's worker. Its coordinator deletes no runs unless Coordinator says so. It serves one queue:
	// for runs and children of another, run a worker of that queue, too, made with [kagzi.NewWorker] of env.Client.
	Worker kagzi.WorkerConfig

	// StepPatience is how long the function of a step is waited for, in real time, before the clock goes on without it.
	// Zero means 1 second.
	StepPatience time.Duration

	// NoReplay says why the runs of the test cannot be replayed at its end: the code of a workflow is meant not to do the
	// same again, for one. Empty, they are.
	NoReplay string

	// SpareMocks says that mocks are set that not every test needs, in one place for several. Else one that no step has
	// called fails the test.
	SpareMocks bool
}

// Env is what a test works with. Its methods are for the test's own goroutine; [Mock] and [MockDo] may be called from any.
type Env struct {
	Pool   *pgxpool.Pool // of the test's database, on which kagzi.Migrate was called
	Client *kagzi.Client
	Worker *kagzi.Worker // give it code with kagzi.Handle

	t         testing.TB
	ctx       context.Context
	cfg       Config
	namespace string

	session testhook.Session // of the worker; nil until it runs
	stop    context.CancelFunc
	ended   chan struct{} // closed when the worker has ended
	err     error         // of the worker, once it has

	stuck time.Duration // how long Result waits for a run that does not go on
	moves int           // how often Skip moves the clock
	until time.Time     // when Result stops waiting for a step; zero if the test may take as long as it likes

	mu    sync.Mutex
	mocks map[string]*mock
	ran   map[string]bool              // steps whose functions, or mocks, were called
	calls map[uuid.UUID]map[*call]bool // the functions of steps that are under way, by run
}

// New returns a database, a client and a worker for the test. When the test is over the worker is stopped, the
// runs that ended are replayed, and the database is dropped. A mistake, or the lack of a Postgres, fails the test.
func New(t testing.TB, cfg ...Config) *Env {
	t.Helper()
	e := &Env{t: t, ctx: t.Context(), stuck: 10 * time.Second, moves: 10_000, mocks: map[string]*mock{}, ran: map[string]bool{}, calls: map[uuid.UUID]map[*call]bool{}}
	if len(cfg) > 1 {
		t.Fatalf("kagzitest: New got %d Configs: give one", len(cfg))
	}
	for _, c := range cfg {
		e.cfg = c
	}
	if limited, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := limited.Deadline(); ok {
			e.until = at.Add(-time.Until(at) / 10) // there is to be time for what the test does at its end
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

// open makes the pool, the client and the worker.
func (e *Env) open(dsn string) error {
	pool, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	pool.MaxConns = max(pool.MaxConns, 10)
	delete(pool.ConnConfig.RuntimeParams, "search_path") // the database's own has the clock
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
	keeps := worker.Coordinator.KeepCompleted != 0 || worker.Coordinator.KeepFailed != 0 || worker.Coordinator.Keep != nil
	if !keeps && !worker.NoCoordinator {
		worker.Coordinator.KeepForever = true
	}
	worker.DrainTimeout = cmp.Or(worker.DrainTimeout, 5*time.Second)
	e.Worker, err = kagzi.NewWorker(e.Client, worker)
	return err
}

// StartWorker starts the worker, if it is not running; call it after kagzi.Handle. [Start], [Env.Advance] and [Env.Skip] do
// it by themselves. It returns once the worker works.
func (e *Env) StartWorker() {
	e.t.Helper()
	if e.stop != nil {
		e.checkWorker()
		return
	}
	begun := make(chan struct{})
	ctx, stop := context.WithCancel(testhook.With(context.Background(), &testhook.Hooks{
		Call:    e.call,
		NoGrace: true, // the clock stands still while workers take what is due
		Begun:   func(s testhook.Session) { e.session = s; close(begun) },
		Late: func(workflow string) {
			e.t.Errorf("kagzitest: kagzi.Handle of workflow %q comes too late: the worker runs already: call it before Start, StartWorker, Advance and Skip", workflow)
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
		e.t.Fatal("kagzitest: the worker has ended: somebody has asked it to drain")
	default:
	}
}

// close stops the worker, replays what ended, and closes the pool.
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
		e.checkMocks()
		if e.session != nil && e.cfg.NoReplay == "" {
			e.replayAll(ctx)
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

// Result skips the time until the run is over, as [Env.Skip] does, and returns what it returned. It waits for functions of
// steps that are under way, until go test's -timeout is near; a run that waits for something else than time for some
// 10 seconds fails the test.
func Result[Out any](e *Env, run *kagzi.Run[Out]) (Out, error) {
	e.t.Helper()
	e.finish(run.ID())
	return run.Result(e.ctx)
}

// Steps lists what ran in the run, in the order of its start: the IDs of its steps, sleeps and so on that ended, such as
// "ship/0/pack" for a step of a branch; that of a failed attempt with the kind of the failure behind it: "charge (network)".
// Compensations that have run come after all else: "charge#compensation".
// [kagzi.Client.Steps] says more.
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
		case strings.HasPrefix(a.Step, "#"): // a note of the engine's own
		case a.Status == kagzi.StatusCompleted && a.Kind == "":
			out = append(out, a.Step)
		case a.Status == kagzi.StatusCompleted, a.Status == kagzi.StatusFailed:
			out = append(out, fmt.Sprintf("%s (%s)", a.Step, a.Kind))
		}
	}
	return out
}

// Main runs the tests of a package, ends the Postgres that they used, and exits. Without it the server ends when the
// process does; a package needs it if it looks for goroutines that its tests have left. TestMain calls it last.
func Main(m *testing.M) {
	code := m.Run()
	if err := stopSharedServer(); err != nil {
		fmt.Fprintln(os.Stderr, "kagzitest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
