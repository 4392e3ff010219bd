package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/history"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/postgres"
	gwclient "github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/core"
	"github.com/cschleiden/go-workflows/registry"
	gwworker "github.com/cschleiden/go-workflows/worker"
	gw "github.com/cschleiden/go-workflows/workflow"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// goWorkflowsEngine is go-workflows, with the settings that make it fastest or with its defaults. A step is an
// activity.
type goWorkflowsEngine struct{ tuned bool }

func (e goWorkflowsEngine) name() string {
	if e.tuned {
		return "go-workflows, tuned"
	}
	return "go-workflows, defaults"
}

func (goWorkflowsEngine) schema() string { return "go_workflows" }
func (goWorkflowsEngine) claims() string { return "%FROM instances i%SKIP LOCKED%" }

const (
	goWorkflowsName    = "bench"
	goWorkflowsPollers = 16                   // of a tuned worker, for workflows and for activities
	goWorkflowsPoll    = 5 * time.Millisecond // the pause of each, where no start in this process wakes it
)

// migrate closes the connections itself, because the migration leaves one in use.
func (goWorkflowsEngine) migrate(_ context.Context, pool *pgxpool.Pool) error {
	cfg := pool.Config().ConnConfig
	dial := cfg.DialFunc
	var conns []net.Conn
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			conns = append(conns, conn)
		}
		return conn, err
	}
	db := stdlib.OpenDB(*cfg)
	err := postgres.NewPostgresBackendWithDB(db).Migrate()
	_ = db.Close()
	for _, c := range conns {
		_ = c.Close()
	}
	return err
}

func (e goWorkflowsEngine) open(pool *pgxpool.Pool) (queue, error) {
	q := &goWorkflowsQueue{engine: e, pool: pool, worker: "bench-" + rand.Text()}
	q.backend = postgres.NewPostgresBackendWithDB(stdlib.OpenDBFromPool(pool),
		postgres.WithBackendOptions(backend.WithLogger(quiet), backend.WithWorkerName(q.worker)))
	// It wakes workers, but only of the process that starts the run.
	if e.tuned && os.Getenv(childVariable) == "" {
		q.backend = monoprocess.NewMonoprocessBackend(q.backend)
	}
	q.client = gwclient.New(q.backend)
	return q, nil
}

// A run that failed is finished, too, but its end has an error.
func (goWorkflowsEngine) count(ctx context.Context, pool *pgxpool.Pool,
	newest int,
) (completed int, steps float64, err error) {
	err = pool.QueryRow(ctx, `
		WITH runs AS MATERIALIZED (SELECT i.id, i.instance_id, i.execution_id
			FROM instances i JOIN history h USING (instance_id, execution_id)
			JOIN attributes a USING (instance_id, execution_id, event_id)
			WHERE i.state = $2 AND h.event_type = $3 AND NOT convert_from(a.data, 'UTF8')::jsonb ? 'error')
		SELECT (SELECT count(*) FROM runs),
			(SELECT coalesce(avg((SELECT count(*) FROM history h WHERE h.instance_id = r.instance_id
				AND h.execution_id = r.execution_id AND h.event_type = $4)), 0)::float8
			FROM (SELECT * FROM runs ORDER BY id DESC LIMIT $1) r)`,
		newest, int(core.WorkflowInstanceStateFinished), int(history.EventType_WorkflowExecutionFinished),
		int(history.EventType_ActivityCompleted)).Scan(&completed, &steps)
	return completed, steps, err
}

func (goWorkflowsEngine) fill(context.Context, *pgxpool.Pool, int, int) error {
	return errors.ErrUnsupported
}

type goWorkflowsQueue struct {
	engine  goWorkflowsEngine
	pool    *pgxpool.Pool
	backend backend.Backend
	client  *gwclient.Client
	worker  string // the name under which it works
}

// errNoDelay is the error of a delayed start.
var errNoDelay = errors.New("go-workflows has no delayed start")

func (q *goWorkflowsQueue) start(ctx context.Context, n int, delay time.Duration) (func(context.Context) error, error) {
	if delay > 0 {
		return nil, errNoDelay
	}
	run, err := q.client.CreateWorkflowInstance(ctx, gwclient.WorkflowInstanceOptions{
		Queue: defaultQueue, InstanceID: rand.Text(),
	}, goWorkflowsName, n)
	return func(ctx context.Context) error {
		timeout := time.Minute
		if deadline, ok := ctx.Deadline(); ok {
			timeout = time.Until(deadline)
		}
		_, err := gwclient.GetWorkflowResult[int](ctx, q.client, run, timeout)
		return err
	}, err
}

// startMany has only calls that start one run.
func (q *goWorkflowsQueue) startMany(ctx context.Context, first, count int) error {
	return eachOf(first, count, func(n int) error {
		_, err := q.start(ctx, n, 0)
		return err
	})
}

func (q *goWorkflowsQueue) work(ctx context.Context, queue string, concurrency int, t task) (worker, error) {
	t.report = endsOnce(t.report)
	options := gwworker.DefaultOptions
	options.WorkflowQueues, options.ActivityQueues = []gw.Queue{gw.Queue(queue)}, []gw.Queue{gw.Queue(queue)}
	options.MaxParallelWorkflowTasks, options.MaxParallelActivityTasks = concurrency, concurrency
	if q.engine.tuned {
		options.WorkflowPollers, options.ActivityPollers = goWorkflowsPollers, goWorkflowsPollers
		options.WorkflowPollingInterval, options.ActivityPollingInterval = goWorkflowsPoll, goWorkflowsPoll
		options.WorkflowExecutorCacheSize, options.WorkflowExecutorCacheTTL = 20_000, time.Minute
	}
	w := &goWorkflowsWorker{worker: gwworker.New(q.backend, &options), pool: q.pool, name: q.worker}
	if err := w.worker.RegisterWorkflow(t.goWorkflows, registry.WithName(goWorkflowsName)); err != nil {
		return nil, err
	}
	step := func(_ context.Context, n int) (int, error) { return n, nil }
	for _, name := range stepNames {
		if err := w.worker.RegisterActivity(step, registry.WithName(name)); err != nil {
			return nil, err
		}
	}
	ctx, w.cancel = context.WithCancel(ctx)
	return w, w.worker.Start(ctx)
}

func (t task) goWorkflows(ctx gw.Context, n int) (int, error) {
	report := func(e event) {
		if !gw.Replaying(ctx) {
			t.report(e, n)
		}
	}
	report(began)
	if t.Nap > 0 || !t.Until.IsZero() {
		nap := t.Nap
		if nap == 0 {
			nap = max(t.Until.Sub(gw.Now(ctx)), 0)
		}
		if err := gw.Sleep(ctx, nap); err != nil {
			return 0, err
		}
		report(woke)
	}
	for i := range t.Steps {
		if _, err := gw.ExecuteActivity[int](ctx, gw.DefaultActivityOptions, stepNames[i], n).Get(ctx); err != nil {
			return 0, err
		}
	}
	report(ended)
	return n, nil
}

type goWorkflowsWorker struct {
	worker *gwworker.Worker
	cancel context.CancelFunc
	pool   *pgxpool.Pool
	name   string
}

// flush waits until the worker holds no run, for a run reports its end before the backend records it.
func (w *goWorkflowsWorker) flush() error {
	return untilNone(w.pool, `SELECT EXISTS (SELECT FROM instances
		WHERE completed_at IS NULL AND locked_until IS NOT NULL AND worker = $1)`, w.name)
}

func (w *goWorkflowsWorker) stop() error {
	w.cancel()
	return w.worker.WaitForCompletion()
}
