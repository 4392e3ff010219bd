package main

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// kagziEngine is Kagzi with its default configuration. If keyed is true, each run has one of benchKeys keys, and of
// each key one run executes at once.
type kagziEngine struct{ keyed bool }

const benchKeys = 1000

func (e kagziEngine) name() string {
	if e.keyed {
		return "Kagzi, 1,000 keys"
	}
	return "Kagzi"
}

func (e kagziEngine) schema() string {
	if e.keyed {
		return "kagzi_keys"
	}
	return "kagzi"
}

func (e kagziEngine) claims() string {
	if e.keyed {
		return "%shares AS MATERIALIZED%UPDATE kagzi.workflow_runs%"
	}
	return "%SKIP LOCKED%UPDATE kagzi.workflow_runs%set_back%"
}

func (e kagziEngine) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := kagzi.Migrate(ctx, pool); err != nil || !e.keyed {
		return err
	}
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: quiet})
	if err != nil {
		return err
	}
	return admin.New(c).Queues.Set(ctx, admin.QueueLimits{
		Queue: defaultQueue, EachKey: admin.KeyLimits{MaxRunning: 1},
	})
}

func (e kagziEngine) open(pool *pgxpool.Pool) (queue, error) {
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: quiet})
	return &kagziQueue{client: c, keyed: e.keyed}, err
}

// count reads the number of runs from the table, for lists have pages, and the steps of at most 100 runs.
func (e kagziEngine) count(ctx context.Context, pool *pgxpool.Pool,
	newest int,
) (completed int, steps float64, err error) {
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`).
		Scan(&completed); err != nil {
		return 0, 0, err
	}
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: quiet})
	if err != nil {
		return 0, 0, err
	}
	sampled, err := c.List(ctx, kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusCompleted}, Limit: min(newest, 100)})
	for _, run := range sampled {
		attempts, err := c.Steps(ctx, run.ID)
		if err != nil {
			return 0, 0, err
		}
		for _, a := range attempts {
			if a.Type == "FUNCTION" && a.Status == kagzi.StatusCompleted {
				steps++
			}
		}
	}
	return completed, steps / float64(max(len(sampled), 1)), err
}

// Run IDs are UUIDv7, so these rows get their keys in the same order.
const fillKagzi = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
		started_at, finished_at, input, output)
	SELECT (lpad(to_hex(1700000000000 + $1::bigint + i), 12, '0') || '70008' || lpad(to_hex(i), 15, '0'))::uuid,
		'default', 'default', 'bench', 1,
		CASE WHEN $3 THEN 'SLEEPING' ELSE 'COMPLETED' END,
			CASE WHEN $3 THEN now() + interval '1 day' + i * interval '1 ms' END,
		now(), CASE WHEN NOT $3 THEN now() END, '1', CASE WHEN NOT $3 THEN '1'::bytea END
	FROM generate_series(1, $2::bigint) i`

func (kagziEngine) fill(ctx context.Context, pool *pgxpool.Pool, ended, sleeping int) error {
	if _, err := pool.Exec(ctx, fillKagzi, 0, ended, false); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, fillKagzi, ended, sleeping, true)
	return err
}

var kagziRun = kagzi.Define[int, int]("bench")

type kagziQueue struct {
	client *kagzi.Client
	keyed  bool
}

// options returns the options of a run.
func (q *kagziQueue) options(n int) []kagzi.StartOption {
	if q.keyed {
		return []kagzi.StartOption{kagzi.Key(strconv.Itoa(n % benchKeys))}
	}
	return nil
}

func (q *kagziQueue) start(ctx context.Context, n int, delay time.Duration) (func(context.Context) error, error) {
	opts := q.options(n)
	if delay > 0 {
		opts = append(opts, kagzi.Delay(delay))
	}
	run, err := kagzi.Start(ctx, q.client, kagziRun, n, opts...)
	return func(ctx context.Context) error {
		_, err := run.Result(ctx)
		return err
	}, err
}

func (q *kagziQueue) startMany(ctx context.Context, first, count int) error {
	calls := make([]kagzi.Call, count)
	for i := range calls {
		calls[i] = kagziRun.With(first+i, q.options(first+i)...)
	}
	_, err := q.client.StartMany(ctx, calls)
	return err
}

func (q *kagziQueue) work(ctx context.Context, queue string, concurrency int, t task) (worker, error) {
	w, err := kagzi.NewWorker(q.client, kagzi.WorkerConfig{
		Queue: queue, MaxConcurrent: concurrency, Coordinator: kagzi.CoordinatorConfig{KeepCompleted: t.Keep},
	})
	if err != nil {
		return nil, err
	}
	kagzi.Handle(w, kagziRun, t.kagzi)
	ctx, cancel := context.WithCancel(ctx)
	k := &kagziWorker{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(k.ended)
		k.err = w.Run(ctx)
	}()
	return k, nil
}

func (t task) kagzi(ctx kagzi.Context, n int) (int, error) {
	t.report(began, n)
	if t.Hold {
		return n, kagzi.Do(ctx, "hold", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	}
	if t.Nap > 0 || !t.Until.IsZero() {
		var err error
		if t.Nap > 0 {
			err = kagzi.Sleep(ctx, "nap", t.Nap)
		} else {
			err = kagzi.SleepUntil(ctx, "nap", t.Until)
		}
		if err != nil {
			return 0, err
		}
		t.report(woke, n)
	}
	for i := range t.Steps {
		if err := t.kagziStep(ctx, stepNames[i], n); err != nil {
			return 0, err
		}
	}
	t.report(ended, n)
	return n, nil
}

func (t task) kagziStep(ctx kagzi.Context, name string, n int) (err error) {
	if t.Result > 0 {
		_, err = kagzi.Step(ctx, name, func(context.Context) (document, error) { return t.document, nil })
	} else {
		_, err = kagzi.Step(ctx, name, func(context.Context) (int, error) { return n, nil })
	}
	return err
}

type kagziWorker struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
	err    error
}

// flush stops the worker: Run returns once the ends of its runs are recorded.
func (w *kagziWorker) flush() error { return w.stop() }

func (w *kagziWorker) stop() error {
	w.cancel()
	<-w.ended
	return w.err
}
