package bench_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/namespaces"
)

// BenchmarkNamespaces executes b.N runs that wait in one, ten, and 100 namespaces, by one worker of all namespaces.
// BenchmarkDrain has the figures of a worker of one.
func BenchmarkNamespaces(b *testing.B) {
	for _, steps := range []int{0, 5} {
		for _, n := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("steps=%d/namespaces=%d", steps, n), func(b *testing.B) {
				pool := benchPool(b, 8)
				wf := kagzi.Define[int, int]("drained")
				for i := range n {
					c := kit.NewClientWith(b, pool, kagzi.ClientConfig{Namespace: fmt.Sprint("tenant-", i)})
					share := b.N / n
					if i < b.N%n {
						share++
					}
					startCalls(b, c, share, func(i int) kagzi.Call { return wf.With(i) })
				}
				if _, err := pool.Exec(b.Context(), "CHECKPOINT"); err != nil {
					b.Fatal(err)
				}
				if _, err := pool.Exec(b.Context(), "SELECT pg_stat_statements_reset()"); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				do := drained(b.N, steps, cancel)
				w, err := namespaces.NewWorker(pool, namespaces.Config{
					Client: kagzi.ClientConfig{Logger: testlog.New(b)},
					Handle: func(w *kagzi.Worker, _ *kagzi.Client) error {
						kagzi.Handle(w, wf, do)
						return nil
					},
				})
				if err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				if err := w.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				printStatements(b, pool)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
			})
		}
	}
}

// BenchmarkIdleNamespaces counts what a worker of 10,000 namespaces, each with a run that sleeps, costs the server. It
// also reports what one more namespace with a worker costs the process.
func BenchmarkIdleNamespaces(b *testing.B) {
	const n = 10_000
	pool := benchPool(b, 8)
	if _, err := pool.Exec(b.Context(), `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
			deadline_at)
		SELECT gen_random_uuid(), 'tenant-' || i, 'default', 'drained', 1, 'SLEEPING', now() + interval '1 day',
			now() + interval '2 days'
		FROM generate_series(0, $1 - 1) AS i`, n); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), `VACUUM ANALYZE kagzi.workflow_runs`); err != nil {
		b.Fatal(err)
	}
	wf := kagzi.Define[int, int]("drained")
	w, err := namespaces.NewWorker(pool, namespaces.Config{
		Client: kagzi.ClientConfig{Logger: testlog.New(b)}, Idle: time.Hour,
		Handle: func(w *kagzi.Worker, _ *kagzi.Client) error {
			kagzi.Handle(w, wf, func(_ kagzi.Context, in int) (int, error) { return in, nil })
			return nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	time.Sleep(5 * time.Second)
	counters := func() (statements, ms float64) {
		if err := pool.QueryRow(b.Context(), `
			SELECT coalesce(sum(calls) FILTER (
				WHERE query !~* '^\s*(begin|commit|listen)' AND query !~ 'lock_timeout|pg_stat_statements'), 0)::float8,
				sum(total_exec_time + total_plan_time)
			FROM pg_stat_statements`).Scan(&statements, &ms); err != nil {
			b.Fatal(err)
		}
		return statements, ms
	}
	statements, ms := counters()
	b.ResetTimer()
	for range b.N {
		time.Sleep(20 * time.Second)
	}
	b.StopTimer()
	more, longer := counters()
	seconds := b.Elapsed().Seconds()
	b.ReportMetric((more-statements)/seconds, "statements/s")
	b.ReportMetric((longer-ms)/seconds, "ms/s")

	const active = 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	var first time.Duration
	for i := range active {
		c := kit.NewClientWith(b, pool, kagzi.ClientConfig{Namespace: fmt.Sprint("tenant-", i)})
		begun := time.Now()
		r, err := kagzi.Start(ctx, c, wf, i)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Result(ctx); err != nil {
			b.Fatal(err)
		}
		first += time.Since(begun)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	memory := after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse
	b.ReportMetric(float64(memory)/active/1024, "kB/namespace")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/active, "goroutines/namespace")
	b.ReportMetric(first.Seconds()*1000/active, "ms/first-run")
	statements, ms = counters()
	begun := time.Now()
	time.Sleep(20 * time.Second)
	more, longer = counters()
	b.ReportMetric((more-statements)/time.Since(begun).Seconds()/active, "statements/s/namespace")
	b.ReportMetric((longer-ms)/time.Since(begun).Seconds()/active, "ms/s/namespace")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMove moves a namespace of 10,000 ended runs of five steps each, beside the 300,000 of another one.
func BenchmarkMove(b *testing.B) {
	const others, own = 300_000, 10_000
	for b.Loop() {
		from, to := benchPool(b, 8), benchPool(b, 8)
		for _, of := range []struct {
			namespace string
			runs      int
		}{{"globex", others}, {"acme", own}} {
			if _, err := from.Exec(b.Context(), `
				WITH runs AS (
					INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status,
						finished_at)
					SELECT gen_random_uuid(), $1, 'default', 'drained', 1, 'COMPLETED', now()
					FROM generate_series(1, $2)
					RETURNING run_id
				)
				INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind,
					run_attempt, first_attempt, output)
				SELECT r.run_id, 'step-' || s, 1, $1, 'COMPLETED', 'FUNCTION', 1, 1, '"a result"'
				FROM runs r CROSS JOIN generate_series(1, 5) AS s`, of.namespace, of.runs); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := from.Exec(b.Context(), `VACUUM ANALYZE`); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		moved, err := namespaces.Move(b.Context(), kit.NewClientWith(b, from, kagzi.ClientConfig{Namespace: "acme"}),
			kit.NewClientWith(b, to, kagzi.ClientConfig{Namespace: "acme"}), namespaces.MoveConfig{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(moved.Rows), "rows")
		b.ReportMetric(moved.Away.Seconds(), "away-s")
		b.ReportMetric(time.Since(begun).Seconds(), "all-s")
	}
}
