package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floorEngine is the least SQL that could do the work: it claims and finishes batches, and inserts the steps of a batch
// in one commit. It has no leases, no retries and no wake-ups, so it is no queue to use. With a concurrency of 1 each
// run is claimed and finished, and each step inserted, by a commit of its own.
type floorEngine struct{}

func (floorEngine) name() string   { return "raw SQL" }
func (floorEngine) schema() string { return "floor" }
func (floorEngine) claims() string { return "%UPDATE floor_run%SKIP LOCKED%" }

const (
	floorTables = `
		CREATE TABLE floor_run (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state smallint NOT NULL DEFAULT 0,
			input jsonb NOT NULL);
		CREATE INDEX floor_due ON floor_run (id) WHERE state = 0;
		CREATE TABLE floor_step (run bigint, step text, output jsonb, PRIMARY KEY (run, step))`
	floorClaim = `
		UPDATE floor_run r SET state = 1
		FROM (SELECT id FROM floor_run WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) due
		WHERE r.id = due.id RETURNING r.id, r.input::int`
	floorStep   = `INSERT INTO floor_step (run, step, output) SELECT id, $2, '1' FROM unnest($1::bigint[]) id`
	floorFinish = `UPDATE floor_run SET state = 2 WHERE id = ANY($1::bigint[])`
	floorStart  = `INSERT INTO floor_run (input) SELECT to_jsonb(n) FROM unnest($1::int[]) n`
)

func (floorEngine) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, floorTables)
	return err
}

func (floorEngine) open(pool *pgxpool.Pool) (queue, error) { return floorQueue{pool}, nil }

func (floorEngine) count(ctx context.Context, pool *pgxpool.Pool,
	newest int,
) (completed int, steps float64, err error) {
	err = pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM floor_run WHERE state = 2),
			(SELECT coalesce(avg((SELECT count(*) FROM floor_step s WHERE s.run = r.id)), 0)::float8
			FROM (SELECT id FROM floor_run WHERE state = 2 ORDER BY id DESC
				LIMIT $1) r)`, newest).Scan(&completed, &steps)
	return completed, steps, err
}

func (floorEngine) fill(ctx context.Context, pool *pgxpool.Pool, ended, sleeping int) error {
	_, err := pool.Exec(ctx, `INSERT INTO floor_run (state, input) SELECT 2, '1' FROM generate_series(1, $1::bigint)`,
		ended+sleeping)
	return err
}

type floorQueue struct{ pool *pgxpool.Pool }

func (q floorQueue) start(ctx context.Context, n int, _ time.Duration) (func(context.Context) error, error) {
	return func(context.Context) error { return errNoResult }, q.startMany(ctx, n, 1)
}

func (q floorQueue) startMany(ctx context.Context, first, count int) error {
	inputs := make([]int, count)
	for i := range inputs {
		inputs[i] = first + i
	}
	_, err := q.pool.Exec(ctx, floorStart, inputs)
	return err
}

// work uses four connections from a concurrency of 100 on, else one.
func (q floorQueue) work(ctx context.Context, _ string, concurrency int, t task) (worker, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &floorWorker{cancel: cancel}
	lanes := 1
	if concurrency >= 100 {
		lanes = 4
	}
	for range lanes {
		w.lanes.Go(func() {
			for ctx.Err() == nil {
				if n, err := q.batch(ctx, min(concurrency, 100), t); err != nil && ctx.Err() == nil {
					quiet.Error("floor", "error", err)
					return
				} else if n == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	return w, nil
}

// batch claims, executes and finishes up to size runs.
func (q floorQueue) batch(ctx context.Context, size int, t task) (int, error) {
	rows, err := q.pool.Query(ctx, floorClaim, size)
	if err != nil {
		return 0, err
	}
	var ids []int64
	var inputs []int
	var id int64
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		ids, inputs = append(ids, id), append(inputs, n)
		t.report(began, n)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	for i := range t.Steps {
		if _, err := q.pool.Exec(ctx, floorStep, ids, stepNames[i]); err != nil {
			return 0, err
		}
	}
	if _, err := q.pool.Exec(ctx, floorFinish, ids); err != nil {
		return 0, err
	}
	for _, n := range inputs {
		t.report(ended, n)
	}
	return len(ids), nil
}

type floorWorker struct {
	cancel context.CancelFunc
	lanes  sync.WaitGroup
}

func (w *floorWorker) flush() error { return nil } // an end is reported after its commit

func (w *floorWorker) stop() error {
	w.cancel()
	w.lanes.Wait()
	return nil
}
