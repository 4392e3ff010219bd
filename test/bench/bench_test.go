package bench_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"

	"github.com/kagzi/kagzi/internal/localpg"
)

// The benchmarks run against a server that keeps fsync on, as in production: go test -run '^$' -bench . ./test/bench

// benchPool returns a pool of a durable server of the benchmark's own, migrated.
func benchPool(b *testing.B, conns int32) *pgxpool.Pool {
	b.Helper()
	ctx := context.Background()
	server, err := localpg.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "512MB", "max_wal_size": "4GB", "shared_preload_libraries": "pg_stat_statements",
		"pg_stat_statements.track": "all",
	}}.Start(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Stop() })
	cfg, err := pgxpool.ParseConfig(server.SocketDSN())
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if err := kagzi.Migrate(ctx, pool); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		b.Fatal(err)
	}
	return pool
}

// printStatements shows where the server's time went: BENCH_STATEMENTS=1 go test -run '^$' -bench Drain ./test/bench
func printStatements(b *testing.B, pool *pgxpool.Pool) {
	if os.Getenv("BENCH_STATEMENTS") == "" {
		return
	}
	rows, err := pool.Query(b.Context(), `
		SELECT calls, round(total_exec_time::numeric, 1), round(mean_exec_time::numeric, 3), rows,
			left(regexp_replace(query, '\s+', ' ', 'g'), 90)
		FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 12`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var calls, n int64
		var total, mean float64
		var query string
		if err := rows.Scan(&calls, &total, &mean, &n, &query); err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(os.Stderr, "%8d calls %9.1f ms total %8.3f ms each %8d rows  %s\n", calls, total, mean, n, query)
	}
}

// benchClient returns a client of a server of the benchmark's own, and its pool.
func benchClient(b *testing.B, conns int32) (*kagzi.Client, *pgxpool.Pool) {
	b.Helper()
	pool := benchPool(b, conns)
	return kit.NewClient(b, pool), pool
}

// benchPasses lends do the passes of a coordinator of c's namespace.
func benchPasses(ctx context.Context, b *testing.B, c *kagzi.Client, do func(testhook.Passes)) {
	b.Helper()
	if err := kit.NewCoordinator(b, c, kagzi.CoordinatorConfig{}).
		Run(testhook.With(ctx, &testhook.Hooks{Passes: do})); err != nil {
		b.Error(err)
	}
}

func benchWorker(b *testing.B, c *kagzi.Client, concurrency int) *kagzi.Worker {
	b.Helper()
	w := kit.NewWorker(b, c, kagzi.WorkerConfig{MaxConcurrent: concurrency})
	return w
}

// BenchmarkStart starts runs one by one: from one goroutine, from 16, and from 64.
func BenchmarkStart(b *testing.B) {
	noop := kagzi.Define[struct{}, struct{}]("noop")
	for _, goroutines := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			c, _ := benchClient(b, 16)
			b.ResetTimer()
			var n atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for n.Add(1) <= int64(b.N) {
						if _, err := kagzi.Start(b.Context(), c, noop, struct{}{}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
		})
	}
}

// BenchmarkStartMany starts 10,000 runs in one call.
func BenchmarkStartMany(b *testing.B) {
	noop := kagzi.Define[int, struct{}]("noop")
	c, _ := benchClient(b, 4)
	calls := make([]kagzi.Call, 10_000)
	for i := range calls {
		calls[i] = noop.With(i)
	}
	for b.Loop() {
		if _, err := c.StartMany(b.Context(), calls); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(calls))/b.Elapsed().Seconds(), "starts/s")
}

// startAll starts b.N runs.
func startAll(b *testing.B, c *kagzi.Client, wf kagzi.Workflow[int, int]) {
	b.Helper()
	startCalls(b, c, b.N, func(i int) kagzi.Call { return wf.With(i) })
}

// startCalls starts n runs, in as few statements as possible.
func startCalls(b *testing.B, c *kagzi.Client, n int, call func(i int) kagzi.Call) {
	b.Helper()
	calls := make([]kagzi.Call, 0, 10_000)
	for i := range n {
		if calls = append(calls, call(i)); len(calls) == cap(calls) || i == n-1 {
			if _, err := c.StartMany(b.Context(), calls); err != nil {
				b.Fatal(err)
			}
			calls = calls[:0]
		}
	}
}

// handleDrained lets the worker execute b.N runs of so many steps, and ends it with the last: Run returns once all that
// is under way is finished and recorded.
func handleDrained(b *testing.B, w *kagzi.Worker, wf kagzi.Workflow[int, int], steps int, end func(),
	opts ...kagzi.StepOption,
) {
	kagzi.Handle(w, wf, drained(b.N, steps, end, opts...))
}

// drained is a workflow function of so many steps. The last of n calls calls end.
func drained(n, steps int, end func(), opts ...kagzi.StepOption) func(kagzi.Context, int) (int, error) {
	var left atomic.Int64
	left.Store(int64(n))
	return func(ctx kagzi.Context, n int) (int, error) {
		for i := range steps {
			if _, err := kagzi.Step(ctx, "step-"+strconv.Itoa(i), func(context.Context) (int, error) { return n, nil },
				opts...); err != nil {
				return 0, err
			}
		}
		if left.Add(-1) == 0 {
			end()
		}
		return n, nil
	}
}

// BenchmarkDrain executes b.N runs that wait in the queue, with 0, 1 and 5 steps each, and with 5 repeatable ones
// and 5 that are called at most once.
func BenchmarkDrain(b *testing.B) {
	for _, d := range []struct {
		kind  string
		steps int
		opts  []kagzi.StepOption
	}{
		{"steps", 0, nil},
		{"steps", 1, nil},
		{"steps", 5, nil},
		{"repeatable", 5, []kagzi.StepOption{kagzi.Repeatable()}},
		{"once", 5, []kagzi.StepOption{kagzi.AtMostOnce()}},
	} {
		for _, concurrency := range []int{1, 16, 100, 1000} {
			b.Run(fmt.Sprintf("%s=%d/concurrency=%d", d.kind, d.steps, concurrency), func(b *testing.B) {
				c, pool := benchClient(b, 8)
				wf := kagzi.Define[int, int]("drained")
				startAll(b, c, wf)
				if _, err := pool.Exec(b.Context(), "CHECKPOINT"); err != nil {
					b.Fatal(err)
				}
				if _, err := pool.Exec(b.Context(), "SELECT pg_stat_statements_reset()"); err != nil {
					b.Fatal(err)
				}
				w := benchWorker(b, c, concurrency)
				ctx, cancel := context.WithCancel(b.Context())
				handleDrained(b, w, wf, d.steps, cancel, d.opts...)
				b.ResetTimer()
				if err := w.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				printStatements(b, pool)
				seconds := b.Elapsed().Seconds()
				b.ReportMetric(float64(b.N)/seconds, "runs/s")
				if d.steps > 0 {
					b.ReportMetric(float64(b.N*d.steps)/seconds, "steps/s")
				}
			})
		}
	}
}

// BenchmarkStartToFirstStep measures how long after Start was called the workflow function begins, and how long after
// it Result returns, on an idle worker: in the same process, and in another client's. It reports medians, for functions
// without steps and with one.
func BenchmarkStartToFirstStep(b *testing.B) {
	for _, where := range []string{"same process", "other client"} {
		for steps := range 2 {
			b.Run(fmt.Sprintf("%s/steps=%d", where, steps), func(b *testing.B) {
				startToResult(b, where == "same process", steps)
			})
		}
	}
}

func startToResult(b *testing.B, here bool, steps int) {
	c, pool := benchClient(b, 8)
	line := make(chan time.Time, 1)
	wf := kagzi.Define[int, int]("first")
	w := benchWorker(b, c, 100)
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		line <- time.Now()
		for range steps {
			if err := kagzi.Do(ctx, "step", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	starter := c
	if !here {
		starter = kit.NewClient(b, pool)
	}
	took := map[string][]time.Duration{}
	once := func() {
		began := time.Now()
		run, err := kagzi.Start(ctx, starter, wf, 1)
		if err != nil {
			b.Fatal(err)
		}
		took["start"] = append(took["start"], time.Since(began))
		took["line"] = append(took["line"], (<-line).Sub(began))
		if _, err := run.Result(ctx); err != nil {
			b.Fatal(err)
		}
		took["result"] = append(took["result"], time.Since(began))
	}
	for range 3 { // until the worker listens
		once()
	}
	clear(took)
	b.ResetTimer()
	for range b.N {
		once()
	}
	b.StopTimer()
	for what, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/"+what)
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
