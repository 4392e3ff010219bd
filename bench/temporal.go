package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// temporalEngine is Temporal, whose server keeps everything in the same Postgres. A step is an activity or a local
// activity. The results of local activities are on disk when the workflow task ends, not one by one.
type temporalEngine struct {
	local   bool
	address string // of the server; empty: there is none yet
}

func (e temporalEngine) name() string {
	if e.local {
		return "Temporal, local activities"
	}
	return "Temporal"
}

func (temporalEngine) schema() string { return "temporal" }
func (temporalEngine) claims() string { return "" } // its server hands out tasks from memory

const temporalName = "bench" // of the namespace, the workflow, and the begin of all workflow IDs

// temporalServer builds the server, which is a module of its own, and returns the path of its program.
var temporalServer = sync.OnceValues(func() (string, error) {
	const module = "temporal"
	program, err := filepath.Abs(filepath.Join(module, "server"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", module, "-o", program, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build Temporal's server: %w\n%s", err, out)
	}
	return program, nil
})

func (temporalEngine) build() error {
	_, err := temporalServer()
	return err
}

func (temporalEngine) serve(ctx context.Context, pool *pgxpool.Pool, args ...string) (*server, error) {
	program, err := temporalServer()
	if err != nil {
		return nil, err
	}
	return startServer(ctx, program, append(args, "-dsn", pool.Config().ConnConfig.ConnString())...)
}

func (e temporalEngine) at(address string) engine {
	e.address = address
	return e
}

func (e temporalEngine) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	s, err := e.serve(ctx, pool, "-migrate")
	if err != nil {
		return err
	}
	namespaces, err := client.NewNamespaceClient(client.Options{
		HostPort: s.address, Logger: log.NewStructuredLogger(quiet),
	})
	if err == nil {
		err = namespaces.Register(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: temporalName, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		})
		namespaces.Close()
	}
	return errors.Join(err, s.stop())
}

func (e temporalEngine) open(pool *pgxpool.Pool) (queue, error) {
	c, err := client.Dial(client.Options{
		HostPort: e.address, Namespace: temporalName, Logger: log.NewStructuredLogger(quiet),
	})
	if err != nil {
		return nil, err
	}
	return &temporalQueue{engine: e, pool: pool, client: c}, nil
}

// count reads the steps from the histories of the newest runs.
func (temporalEngine) count(ctx context.Context, pool *pgxpool.Pool,
	newest int,
) (completed int, steps float64, err error) {
	const completedRuns = `FROM current_executions WHERE workflow_id LIKE 'bench-%' AND status = $1`
	status := int(enums.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	if err := pool.QueryRow(ctx, `SELECT count(*) `+completedRuns, status).Scan(&completed); err != nil {
		return 0, 0, err
	}
	rows, err := pool.Query(ctx, `
		SELECT node.tree_id, node.data, runs.n FROM history_node node
		JOIN (SELECT shard_id, run_id, count(*) OVER () AS n FROM (SELECT shard_id, run_id `+completedRuns+`
			ORDER BY start_time DESC LIMIT $2) newest) runs
			ON node.shard_id = runs.shard_id AND node.tree_id = runs.run_id`, status, newest)
	if err != nil {
		return 0, 0, err
	}
	type key struct {
		run string
		id  int64
	}
	seen := map[key]bool{} // an event whose write was repeated is there twice
	var run, data []byte
	var runs int
	_, err = pgx.ForEachRow(rows, []any{&run, &data, &runs}, func() error {
		var events history.History
		if err := proto.Unmarshal(data, &events); err != nil {
			return err
		}
		for _, e := range events.Events {
			local := e.GetMarkerRecordedEventAttributes().GetMarkerName() == "LocalActivity"
			if e.EventType == enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED || local {
				seen[key{string(run), e.EventId}] = true
			}
		}
		return nil
	})
	return completed, float64(len(seen)) / float64(max(runs, 1)), err
}

func (temporalEngine) fill(context.Context, *pgxpool.Pool, int, int) error {
	return errors.ErrUnsupported
}

type temporalQueue struct {
	engine temporalEngine
	pool   *pgxpool.Pool // reads what is on disk
	client client.Client
}

func (q *temporalQueue) Close() error {
	q.client.Close()
	return nil
}

// start lets the run begin in this process if a worker of it has a free slot.
func (q *temporalQueue) start(ctx context.Context, n int, delay time.Duration) (func(context.Context) error, error) {
	run, err := q.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: temporalName + "-" + rand.Text(), TaskQueue: defaultQueue, StartDelay: delay, EnableEagerStart: delay == 0,
	}, temporalName, n)
	return func(ctx context.Context) error { return run.Get(ctx, nil) }, err
}

// startMany has only calls that start one run.
func (q *temporalQueue) startMany(ctx context.Context, first, count int) error {
	return eachOf(first, count, func(n int) error {
		_, err := q.start(ctx, n, 0)
		return err
	})
}

func (q *temporalQueue) work(_ context.Context, queue string, concurrency int, t task) (worker, error) {
	t.report = endsOnce(t.report)
	pollers := sdk.NewPollerBehaviorAutoscaling(sdk.PollerBehaviorAutoscalingOptions{})
	w := sdk.New(q.client, queue, sdk.Options{
		MaxConcurrentActivityExecutionSize:      concurrency,
		MaxConcurrentLocalActivityExecutionSize: concurrency,
		MaxConcurrentWorkflowTaskExecutionSize:  max(concurrency, 2), // the least that is allowed
		WorkflowTaskPollerBehavior:              pollers,
		ActivityTaskPollerBehavior:              pollers,
		WorkerStopTimeout:                       time.Minute,
		DeadlockDetectionTimeout:                time.Minute, // so that a pause of the machine does not repeat a task
		DisableRegistrationAliasing:             true,
	})
	run := func(ctx workflow.Context, n int) (int, error) { return t.temporal(ctx, n, q.engine.local) }
	w.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: temporalName})
	for _, name := range stepNames {
		w.RegisterActivityWithOptions(temporalStep, activity.RegisterOptions{Name: name})
	}
	return &temporalWorker{worker: w, pool: q.pool}, w.Start()
}

func temporalStep(_ context.Context, n int) (int, error) { return n, nil }

func (t task) temporal(ctx workflow.Context, n int, local bool) (int, error) {
	report := func(e event) {
		if !workflow.IsReplaying(ctx) {
			t.report(e, n)
		}
	}
	report(began)
	if t.Nap > 0 || !t.Until.IsZero() {
		nap := t.Nap
		if nap == 0 {
			nap = max(t.Until.Sub(workflow.Now(ctx)), 0)
		}
		if err := workflow.Sleep(ctx, nap); err != nil {
			return 0, err
		}
		report(woke)
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
	for i := range t.Steps {
		step := workflow.ExecuteActivity
		if local {
			step = workflow.ExecuteLocalActivity
		}
		if err := step(ctx, stepNames[i], n).Get(ctx, nil); err != nil {
			return 0, err
		}
	}
	report(ended)
	return n, nil
}

type temporalWorker struct {
	worker sdk.Worker
	pool   *pgxpool.Pool
}

// flush waits until no run is under way, for a run reports its end before the server has it.
func (w *temporalWorker) flush() error {
	return untilNone(w.pool, `SELECT EXISTS (SELECT FROM current_executions
		WHERE workflow_id LIKE 'bench-%' AND status = $1)`, int(enums.WORKFLOW_EXECUTION_STATUS_RUNNING))
}

func (w *temporalWorker) stop() error {
	err := w.flush()
	w.worker.Stop()
	return err
}
