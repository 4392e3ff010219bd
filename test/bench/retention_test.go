package bench_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

// fillOld makes n runs that completed 40 days ago, and were made then, each with an input, an output and steps.
func fillOld(b *testing.B, pool *pgxpool.Pool, n, steps int) {
	b.Helper()
	for _, sql := range []string{
		`
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, lease,
			finished_at, created_at, input, output)
		SELECT (lpad(to_hex((extract(epoch FROM now() - interval '40 days') * 1000)::bigint + g), 12,
			'0') || '7' || substr(md5(g::text), 1, 3) || '8' || substr(md5(g::text), 4, 15))::uuid,
			'default', 'default', 'old', 1, 'COMPLETED', gen_random_uuid(), now() - interval '40 days',
				now() - interval '40 days', '{"order": "42"}', '{"receipt": "43"}'
		FROM generate_series(1, $1::int) AS g`, `
		INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
			first_attempt, output, started_at, finished_at)
		SELECT run_id, 'step-' || g, 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1, '"a result of some length"',
			finished_at, finished_at
		FROM kagzi.workflow_runs, generate_series(1, $1::int) AS g WHERE workflow_type = 'old'`,
	} {
		arg := n
		if sql[:len("\n\t\tINSERT INTO kagzi.step")] == "\n\t\tINSERT INTO kagzi.step" {
			arg = steps
		}
		if _, err := pool.Exec(b.Context(), sql, arg); err != nil {
			b.Fatal(err)
		}
	}
	for _, sql := range []string{"VACUUM ANALYZE kagzi.workflow_runs, kagzi.step_runs", "CHECKPOINT"} {
		if _, err := pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
}

// scanEnds is a pause that no coordinator makes before its scan over the runs has ended.
const scanEnds = 20 * time.Second

// A pruner deletes old runs, a pass at a time.
type pruner interface {
	DeleteOld(ctx context.Context) (time.Duration, error)
}

// deleteWhile makes passes, with their pauses, until ctx ends or the scan does.
func deleteWhile(ctx context.Context, p pruner) error {
	for ctx.Err() == nil {
		pause, err := p.DeleteOld(ctx)
		if err != nil || pause >= scanEnds {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// withPruner lends do the pruner of a coordinator of c's namespace.
func withPruner(b *testing.B, c *kagzi.Client, do func(pruner)) {
	b.Helper()
	benchPasses(b.Context(), b, c, func(p testhook.Passes) { do(p.(pruner)) })
}

// countRuns returns how many runs of the workflow there are.
func countRuns(b *testing.B, pool *pgxpool.Pool, workflow string) (n int) {
	b.Helper()
	if err := pool.QueryRow(b.Context(), `SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = $1`, workflow).
		Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkPrune deletes b.N old runs: go test -run '^$' -bench 'Prune$' -benchtime 200000x ./test/bench
func BenchmarkPrune(b *testing.B) {
	for _, steps := range []int{0, 5} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			c, pool := benchClient(b, 8)
			fillOld(b, pool, b.N, steps)
			withPruner(b, c, func(p pruner) {
				b.ResetTimer()
				if err := deleteWhile(b.Context(), p); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
			})
			if n := countRuns(b, pool, "old"); n > 0 {
				b.Fatalf("%d runs are left", n)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

// BenchmarkPruneAsleep scans b.N runs that sleep, and finds nothing: it measures how long the queries take together.
func BenchmarkPruneAsleep(b *testing.B) {
	c, pool := benchClient(b, 8)
	fillOld(b, pool, b.N, 0)
	if _, err := pool.Exec(b.Context(), `UPDATE kagzi.workflow_runs SET status = 'SLEEPING', finished_at = NULL,
		available_at = 'infinity'`); err != nil {
		b.Fatal(err)
	}
	var longest time.Duration
	withPruner(b, c, func(p pruner) {
		b.ResetTimer()
		for pause := time.Duration(0); pause < scanEnds; {
			began := time.Now()
			var err error
			if pause, err = p.DeleteOld(b.Context()); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(began))
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest-pass")
}

// BenchmarkDrainWhilePruning executes b.N runs, alone and while as many old ones wait to be deleted.
func BenchmarkDrainWhilePruning(b *testing.B) {
	for _, steps := range []int{0, 5} {
		for _, pruning := range []bool{false, true} {
			b.Run(fmt.Sprintf("steps=%d/pruning=%t", steps, pruning), func(b *testing.B) {
				c, pool := benchClient(b, 8)
				fillOld(b, pool, b.N, steps)
				drainWhile(b, c, pool, steps, func(ctx context.Context) {
					if pruning {
						withPruner(b, c, func(p pruner) {
							if err := deleteWhile(ctx, p); err != nil {
								b.Error(err)
							}
						})
					}
				})
				seconds := b.Elapsed().Seconds()
				b.ReportMetric(float64(b.N)/seconds, "runs/s")
				b.ReportMetric(float64(b.N-countRuns(b, pool, "old"))/seconds, "pruned/s")
			})
		}
	}
}

// drainWhile starts b.N runs, and then times their execution beside what meanwhile does.
func drainWhile(b *testing.B, c *kagzi.Client, pool *pgxpool.Pool, steps int, meanwhile func(context.Context)) {
	b.Helper()
	wf := kagzi.Define[int, int]("drained")
	startAll(b, c, wf)
	if _, err := pool.Exec(b.Context(), "ANALYZE kagzi.workflow_runs"); err != nil {
		b.Fatal(err)
	}
	w := kit.NewWorker(b, c, kagzi.WorkerConfig{NoCoordinator: true, MaxConcurrent: 1000})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	handleDrained(b, w, wf, steps, cancel)
	done := make(chan struct{})
	b.ResetTimer()
	go func() {
		defer close(done)
		meanwhile(ctx)
	}()
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	<-done
	if os.Getenv("BENCH_STATEMENTS") != "" {
		printStatements(b, pool)
	}
}
