package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverEngine is River, with the settings that make it fastest or with its defaults. A step is a resumable step that is
// written in a transaction of its own: otherwise River stores it only when the attempt ends, which a crash would lose.
type riverEngine struct{ tuned bool }

func (e riverEngine) name() string {
	if e.tuned {
		return "River, tuned"
	}
	return "River, defaults"
}

func (riverEngine) schema() string { return "river" }
func (riverEngine) claims() string { return "%JobGetAvailable%" }

func (riverEngine) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (e riverEngine) open(pool *pgxpool.Pool) (queue, error) {
	c, err := river.NewClient(riverpgxv5.New(pool), e.tune(&river.Config{Logger: quiet}))
	return &riverQueue{engine: e, pool: pool, client: c, waiters: map[int64]chan struct{}{}}, err
}

// tune sets the shortest pauses, if e is tuned. A client that inserts notifies others at most once in its
// FetchCooldown.
func (e riverEngine) tune(cfg *river.Config) *river.Config {
	if e.tuned {
		cfg.FetchCooldown, cfg.FetchPollInterval = river.FetchCooldownMin, 10*time.Millisecond
	}
	return cfg
}

// A job's row has the name of its last step.
func (riverEngine) count(ctx context.Context, pool *pgxpool.Pool,
	newest int,
) (completed int, steps float64, err error) {
	err = pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM river_job WHERE state = 'completed'),
			(SELECT coalesce(avg(coalesce(1 + substring(metadata->>'river:resumable_step' from '[0-9]+')::int, 0)),
				0)::float8
			FROM (SELECT metadata FROM river_job WHERE state = 'completed' ORDER BY id DESC
				LIMIT $1) newest)`, newest).Scan(&completed, &steps)
	return completed, steps, err
}

func (riverEngine) fill(ctx context.Context, pool *pgxpool.Pool, ended, sleeping int) error {
	_, err := pool.Exec(ctx, `
		INSERT INTO river_job (state, attempt, max_attempts, attempted_at, attempted_by, finalized_at, args, kind,
			metadata)
		SELECT 'completed', 1, 25, now(), '{bench}', now(), '{"n": 1}', 'bench', '{}'
			FROM generate_series(1, $1::bigint)`, ended)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, `
		INSERT INTO river_job (state, attempt, max_attempts, scheduled_at, args, kind, metadata)
		SELECT 'scheduled', 0, 25, now() + interval '1 day' + i * interval '1 ms', '{"n": 1}', 'bench', '{}'
			FROM generate_series(1, $1::bigint) i`, sleeping)
	return err
}

type riverArgs struct {
	N int `json:"n"`
}

func (riverArgs) Kind() string { return "bench" }

type riverQueue struct {
	engine riverEngine
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // it only inserts

	mu      sync.Mutex
	working bool                    // a worker of this process reports ends
	waiters map[int64]chan struct{} // by job ID; closed when the job has ended
}

func (q *riverQueue) start(ctx context.Context, n int, delay time.Duration) (func(context.Context) error, error) {
	var opts *river.InsertOpts
	if delay > 0 {
		opts = &river.InsertOpts{ScheduledAt: time.Now().Add(delay)}
	}
	inserted, err := q.client.Insert(ctx, riverArgs{N: n}, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return q.result(ctx, inserted.Job.ID) }, nil
}

func (q *riverQueue) result(ctx context.Context, id int64) error {
	q.mu.Lock()
	working := q.working
	q.mu.Unlock()
	if !working {
		return errNoResult
	}
	select {
	case <-q.waiter(id):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *riverQueue) waiter(id int64) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiters[id] == nil {
		q.waiters[id] = make(chan struct{})
	}
	return q.waiters[id]
}

func (q *riverQueue) startMany(ctx context.Context, first, count int) error {
	jobs := make([]river.InsertManyParams, count)
	for i := range jobs {
		jobs[i].Args = riverArgs{N: first + i}
	}
	_, err := q.client.InsertManyFast(ctx, jobs)
	return err
}

func (q *riverQueue) work(ctx context.Context, queue string, concurrency int, t task) (worker, error) {
	workers := river.NewWorkers()
	// JobTimeout would end the jobs that are held.
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[riverArgs]) error {
		return t.river(ctx, q.pool, job)
	}))
	cfg := &river.Config{
		Logger: quiet, Workers: workers,
		Queues: map[string]river.QueueConfig{queue: {MaxWorkers: concurrency}}, JobTimeout: -1,
	}
	c, err := river.NewClient(riverpgxv5.New(q.pool), q.engine.tune(cfg))
	if err != nil {
		return nil, err
	}
	events, unsubscribe := c.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 1 << 20,
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	q.working = true
	q.mu.Unlock()
	w := &riverWorker{client: c, unsubscribe: unsubscribe, ended: make(chan struct{})}
	go w.listen(q, events, t)
	return w, nil
}

func (t task) river(ctx context.Context, pool *pgxpool.Pool, job *river.Job[riverArgs]) error {
	n, again := job.Args.N, len(job.AttemptedBy) > 1
	switch {
	case again:
		t.report(woke, n)
	case t.Nap > 0:
		t.report(began, n)
		return river.JobSnooze(t.Nap)
	case !t.Until.IsZero():
		t.report(began, n)
		return river.JobSnooze(max(time.Until(t.Until), 0))
	default:
		t.report(began, n)
	}
	if t.Hold {
		<-ctx.Done()
		return ctx.Err()
	}
	for i := range t.Steps {
		river.ResumableStep(ctx, stepNames[i], nil, func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := river.ResumableSetStepTx[*riverpgxv5.Driver](ctx, tx, job)
				return err
			})
		})
	}
	if t.Result > 0 {
		return river.RecordOutput(ctx, t.document)
	}
	return nil
}

type riverWorker struct {
	client      *river.Client[pgx.Tx]
	unsubscribe func()
	ended       chan struct{} // closed when the last event is processed
}

func (w *riverWorker) listen(q *riverQueue, events <-chan *river.Event, t task) {
	defer close(w.ended)
	for e := range events {
		if t.Results {
			close(q.waiter(e.Job.ID))
		}
		t.report(ended, 0) // whose end it is does not matter
	}
}

func (w *riverWorker) flush() error { return nil } // an event comes after the commit

func (w *riverWorker) stop() error {
	err := w.client.Stop(context.Background())
	w.unsubscribe()
	<-w.ended
	return err
}
