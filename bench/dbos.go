package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dbosEngine is DBOS Transact, with the settings that make it fastest, with its defaults, or without a queue: then a
// run begins at once in the process that starts it.
type dbosEngine struct{ tuned, direct bool }

func (e dbosEngine) name() string {
	switch {
	case e.direct:
		return "DBOS, no queue"
	case e.tuned:
		return "DBOS, tuned"
	}
	return "DBOS, defaults"
}

func (dbosEngine) schema() string { return "dbos" }
func (dbosEngine) claims() string { return "%SELECT workflow_uuid%queue_name%SKIP LOCKED%" }

// dbosPoll is the pause of a tuned engine between two looks at a queue, and between two looks for a result.
const dbosPoll = time.Millisecond

const dbosName = "bench" // of the application, its version and the workflow

// newDBOS returns a context of DBOS. Until it is launched, it starts runs at most, and keeps no connection.
func newDBOS(ctx context.Context, cfg dbos.Config) (dbos.Context, error) {
	cfg.AppName, cfg.ApplicationVersion = dbosName, dbosName
	return dbos.NewContext(context.WithoutCancel(ctx), cfg) // a deadline of ctx would become one of the runs
}

func (dbosEngine) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := newDBOS(ctx, dbos.Config{SystemDBPool: pool, Logger: quiet}) // a shutdown would close the pool
	return err
}

func (e dbosEngine) open(pool *pgxpool.Pool) (queue, error) {
	q := &dbosQueue{engine: e, pool: pool}
	q.client = sync.OnceValues(func() (dbos.Context, error) {
		return newDBOS(context.Background(), dbos.Config{SystemDBPool: pool, Logger: quiet, SkipMigrations: true})
	})
	return q, nil
}

// A run has completed if its result is there. A step without a result is no step.
func (dbosEngine) count(ctx context.Context, pool *pgxpool.Pool,
	newest int,
) (completed int, steps float64, err error) {
	err = pool.QueryRow(ctx, `
		WITH runs AS (SELECT workflow_uuid, created_at
			FROM dbos.workflow_status JOIN dbos.workflow_output o USING (workflow_uuid)
			WHERE status = 'SUCCESS' AND o.output IS NOT NULL)
		SELECT (SELECT count(*) FROM runs),
			(SELECT coalesce(avg((SELECT count(*) FROM dbos.operation_outputs s
				WHERE s.workflow_uuid = r.workflow_uuid AND s.function_name LIKE 'step-%' AND s.output IS NOT NULL)),
				0)::float8
			FROM (SELECT workflow_uuid FROM runs ORDER BY created_at DESC
				LIMIT $1) r)`, newest).Scan(&completed, &steps)
	return completed, steps, err
}

// Runs that wait for a day are delayed starts: a run in its sleep stays in its process.
const fillDBOS = `
	WITH runs AS (INSERT INTO dbos.workflow_status (workflow_uuid, status, name, queue_name, executor_id,
			application_version, application_name, application_id, created_at, updated_at, completed_at,
			recovery_attempts, priority, serialization, delay_until_epoch_ms)
		SELECT gen_random_uuid()::text, CASE WHEN $2 THEN 'DELAYED' ELSE 'SUCCESS' END, 'bench', 'default', 'local',
			'bench', 'bench', '', ms + i, ms + i, CASE WHEN NOT $2 THEN ms END,
			CASE WHEN $2 THEN 0 ELSE 1 END, 0, 'DBOS_JSON', CASE WHEN $2 THEN ms + 2 * 86400000 + i END
		FROM generate_series(1, $1::bigint) i,
			(SELECT extract(epoch FROM now() - interval '1 day')::bigint * 1000) yesterday (ms)
		RETURNING workflow_uuid),
	inputs AS (INSERT INTO dbos.workflow_input (workflow_uuid, inputs) SELECT workflow_uuid, 'MQ==' FROM runs)
	INSERT INTO dbos.workflow_output (workflow_uuid, output) SELECT workflow_uuid, 'MQ==' FROM runs WHERE NOT $2`

func (dbosEngine) fill(ctx context.Context, pool *pgxpool.Pool, ended, sleeping int) error {
	if _, err := pool.Exec(ctx, fillDBOS, ended, false); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, fillDBOS, sleeping, true)
	return err
}

type dbosQueue struct {
	engine dbosEngine
	pool   *pgxpool.Pool
	client func() (dbos.Context, error)

	worker *dbosWorker // of this process, for runs without a queue
}

func (q *dbosQueue) start(ctx context.Context, n int, delay time.Duration) (func(context.Context) error, error) {
	var run dbos.WorkflowHandle[int]
	c, err := q.client()
	switch {
	case err != nil:
	case q.engine.direct:
		run, err = dbos.RunWorkflow(q.worker.ctx, q.worker.run, n)
	case delay > 0:
		run, err = dbos.Enqueue[int](c, defaultQueue, dbosName, n, dbos.WithEnqueueDelay(delay))
	default:
		run, err = dbos.Enqueue[int](c, defaultQueue, dbosName, n)
	}
	return func(ctx context.Context) error {
		var opts []dbos.GetResultOption
		if q.engine.tuned {
			opts = append(opts, dbos.WithHandlePollingInterval(dbosPoll))
		}
		if deadline, ok := ctx.Deadline(); ok {
			opts = append(opts, dbos.WithHandleTimeout(time.Until(deadline)))
		}
		_, err := run.GetResult(opts...)
		return err
	}, err
}

// startMany calls the function that DBOS has in the database: its Go API starts runs one by one.
func (q *dbosQueue) startMany(ctx context.Context, first, count int) error {
	_, err := q.pool.Exec(ctx, `
		SELECT dbos.enqueue_workflow($1, $2, ARRAY[to_json(n)], app_version => $1, application_name => $1)
		FROM generate_series($3::int, $4::int) n`, dbosName, defaultQueue, first, first+count-1)
	return err
}

var dbosExecutors atomic.Int64

// work uses a pool of its own, because DBOS closes it when it shuts down.
func (q *dbosQueue) work(ctx context.Context, queue string, concurrency int, t task) (_ worker, err error) {
	cfg := q.pool.Config()
	cfg.MaxConns = max(cfg.MaxConns, 5) // fewer are not advised
	w := &dbosWorker{run: t.dbos, executor: fmt.Sprintf("%d-%d", os.Getpid(), dbosExecutors.Add(1))}
	if w.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.pool.Close()
		}
	}()
	w.level.Set(slog.LevelError)
	w.ctx, err = newDBOS(ctx, dbos.Config{
		SystemDBPool: w.pool, ExecutorID: w.executor, SkipMigrations: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &w.level})),
	})
	if err != nil {
		return nil, err
	}
	dbos.RegisterWorkflow(w.ctx, w.run, dbos.WithWorkflowName(dbosName))
	if q.engine.direct {
		dbos.ListenQueues(w.ctx, "none")
		q.worker = w
		return w, dbos.Launch(w.ctx)
	}
	opts := []dbos.QueueOption{dbos.WithQueueOnConflict(dbos.QueueConflictAlwaysUpdate)}
	if q.engine.tuned {
		opts = append(opts, dbos.WithQueueBasePollingInterval(dbosPoll))
	}
	// A run keeps its place while it sleeps, so sleeping runs need a queue without a limit.
	if t.Nap == 0 && t.Until.IsZero() {
		opts = append(opts, dbos.WithWorkerConcurrency(concurrency))
	}
	dbos.ListenQueues(w.ctx, queue)
	if _, err := dbos.RegisterQueue(w.ctx, queue, opts...); err != nil {
		return nil, err
	}
	return w, dbos.Launch(w.ctx)
}

func (t task) dbos(ctx dbos.Context, n int) (int, error) {
	t.report(began, n)
	if t.Hold {
		return dbos.RunAsStep(ctx, func(ctx context.Context) (int, error) { <-ctx.Done(); return n, ctx.Err() })
	}
	if t.Nap > 0 || !t.Until.IsZero() {
		nap := t.Nap
		if nap == 0 {
			nap = max(time.Until(t.Until), 0)
		}
		if _, err := dbos.Sleep(ctx, nap); err != nil {
			return 0, err
		}
		t.report(woke, n)
	}
	for i := range t.Steps {
		if err := t.dbosStep(ctx, dbos.WithStepName(stepNames[i]), n); err != nil {
			return 0, err
		}
	}
	t.report(ended, n)
	return n, nil
}

func (t task) dbosStep(ctx dbos.Context, name dbos.StepOption, n int) (err error) {
	if t.Result > 0 {
		_, err = dbos.RunAsStep(ctx, func(context.Context) (document, error) { return t.document, nil }, name)
	} else {
		_, err = dbos.RunAsStep(ctx, func(context.Context) (int, error) { return n, nil }, name)
	}
	return err
}

type dbosWorker struct {
	ctx      dbos.Context
	pool     *pgxpool.Pool
	run      dbos.Workflow[int, int]
	executor string
	level    slog.LevelVar // of its log
}

// flush waits until no run of the worker is under way, for a run reports its end before DBOS records it. A shutdown
// would leave such a run to the worker's next launch.
func (w *dbosWorker) flush() error {
	return untilNone(w.pool, `SELECT EXISTS (SELECT FROM dbos.workflow_status
		WHERE status = 'PENDING' AND executor_id = $1)`, w.executor)
}

func (w *dbosWorker) stop() error {
	err := w.flush()
	w.level.Set(slog.LevelError + 1) // a poll that the shutdown interrupts is logged as an error
	return errors.Join(err, dbos.Shutdown(w.ctx, time.Minute))
}
