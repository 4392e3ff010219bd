package bench_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// BenchmarkIdleWorkers counts what 50 idle workers on 10 queues, each in a client of its own, send to the server. The
// statements are without those that begin, set up and commit a transaction.
func BenchmarkIdleWorkers(b *testing.B) {
	const workers, queues = 50, 10
	pool := benchPool(b, 4)
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	wf := kagzi.Define[struct{}, struct{}]("idle")
	for i := range workers {
		cfg := pool.Config()
		cfg.MaxConns = 3
		own, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer own.Close()
		w := kit.NewWorker(b, kit.NewClient(b, own), kagzi.WorkerConfig{Queue: fmt.Sprint("queue-", i%queues)})
		kagzi.Handle(w, wf, func(kagzi.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	counters := func() (commits, statements, ms float64) {
		err := pool.QueryRow(b.Context(), `
			SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8,
				coalesce(sum(calls) FILTER (
				WHERE query !~* '^\s*(begin|commit|listen)' AND query !~ 'lock_timeout|pg_stat_statements'), 0)::float8,
					sum(total_exec_time + total_plan_time)
			FROM pg_stat_statements`).Scan(&commits, &statements, &ms)
		if err != nil {
			b.Fatal(err)
		}
		return commits, statements, ms
	}
	time.Sleep(15 * time.Second) // they begin with work of their own
	if _, err := pool.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		b.Fatal(err)
	}
	commits, statements, ms := counters()
	begun := time.Now()
	b.ResetTimer()
	for range b.N {
		time.Sleep(20 * time.Second)
	}
	b.StopTimer()
	seconds := time.Since(begun).Seconds()
	nowCommits, nowStatements, nowMs := counters()
	printStatements(b, pool)
	stop()
	running.Wait()
	b.ReportMetric((nowCommits-commits)/seconds, "commits/s")
	b.ReportMetric((nowStatements-statements)/seconds, "statements/s")
	b.ReportMetric((nowMs-ms)/seconds, "server-ms/s")
}
