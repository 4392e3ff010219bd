package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// BenchmarkPublishToConsumer measures how long after Publish was called the function of an idle consumer begins and
// reads the event, in the same process and in another client's, and how long Publish takes: go test -run '^$' -bench
// PublishToConsumer -benchtime 1000x .
func BenchmarkPublishToConsumer(b *testing.B) {
	about := topic.Define[int]("topic")
	for _, where := range []string{"same process", "other client"} {
		b.Run(where, func(b *testing.B) {
			c, pool := benchClient(b, 8)
			w := benchWorker(b, c, 100)
			began, read := make(chan time.Time, 1), make(chan int, 1)
			topic.Consume(w, topic.DefineConsumer("consumer", topic.ConsumerConfig{Topics: []topic.AnyTopic{about}}),
				func(ctx kagzi.Context, last int) (int, error) {
					first := time.Now()
					events, err := topic.Peek(ctx, "new", about, 10)
					if err != nil || len(events) == 0 {
						return last, err
					}
					began <- first
					read <- len(events)
					return last + 1, topic.Reserve(ctx, "all", events...)
				})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			publisher := c
			if where == "other client" {
				publisher = kit.NewClient(b, pool)
			}
			var published, running, seen []time.Duration
			for i := range b.N + 20 {
				if i == 20 {
					published, running, seen = nil, nil, nil
					b.ResetTimer()
				}
				at := time.Now()
				if err := topic.New(publisher).Publish(ctx, about.With(i)); err != nil {
					b.Fatal(err)
				}
				published = append(published, time.Since(at))
				running = append(running, (<-began).Sub(at))
				<-read
				seen = append(seen, time.Since(at))
				time.Sleep(5 * time.Millisecond) // the run ends
			}
			b.StopTimer()
			printStatements(b, pool)
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			reportTimes(b, "publish", published)
			reportTimes(b, "running", running)
			reportTimes(b, "read", seen)
		})
	}
}

// BenchmarkConsume publishes b.N events, and measures how long a worker takes to consume them, 500 in each run.
func BenchmarkConsume(b *testing.B) {
	about := topic.Define[int]("topic")
	c, pool := benchClient(b, 20)
	for left := b.N; left > 0; left -= 1000 {
		var some []topic.NewEvent
		for range min(left, 1000) {
			some = append(some, about.With(1))
		}
		if err := topic.New(c).PublishMany(b.Context(), some); err != nil {
			b.Fatal(err)
		}
	}
	settle(b, pool)
	w := benchWorker(b, c, 100)
	ended := make(chan struct{})
	topic.Consume(w, topic.DefineConsumer("consumer", topic.ConsumerConfig{Topics: []topic.AnyTopic{about}}),
		func(ctx kagzi.Context, last int) (int, error) {
			if last == b.N {
				close(ended)
				return last, nil
			}
			events, err := topic.Peek(ctx, "new", about, 500)
			if err != nil {
				return last, err
			}
			if last += len(events); last == b.N {
				err = topic.WakeAt(ctx, ctx.Now())
			}
			if err != nil {
				return last, err
			}
			return last, topic.Reserve(ctx, "all", events...)
		})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	cpu := kit.NewCPUMeter(b, pool)
	b.ResetTimer()
	go func() { done <- w.Run(ctx) }()
	for consumed := 0; consumed < b.N; time.Sleep(2 * time.Millisecond) {
		_ = pool.QueryRow(ctx, `SELECT coalesce((SELECT convert_from(state, 'UTF8') FROM kagzi.consumers
			WHERE state <> ''), '0')::int`).Scan(&consumed)
	}
	b.StopTimer()
	cpu.Report(b, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	printStatements(b, pool)
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkIdleConsumers counts what a worker with 1,000 idle consumers of as many topics sends to the server in 30
// seconds, and one without any.
func BenchmarkIdleConsumers(b *testing.B) {
	for _, n := range []int{0, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, pool := benchClient(b, 20)
			w := benchWorker(b, c, 100)
			kagzi.Handle(w, drainedWorkflow, func(_ kagzi.Context, i int) (int, error) { return i, nil })
			for i := range n {
				about := topic.Define[int](fmt.Sprint("topic-", i))
				topic.Consume(w, topic.DefineConsumer(fmt.Sprint("consumer-", i),
					topic.ConsumerConfig{Topics: []topic.AnyTopic{about}}),
					func(_ kagzi.Context, last int) (int, error) { return last, nil })
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			for ended := -1; ended < n; time.Sleep(50 * time.Millisecond) {
				_ = pool.QueryRow(ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`).
					Scan(&ended)
			}
			time.Sleep(10 * time.Second)
			before := statementsSent(b, pool)
			b.ResetTimer()
			for range b.N {
				time.Sleep(30 * time.Second)
			}
			b.StopTimer()
			after := statementsSent(b, pool)
			b.ReportMetric(float64(after-before)/float64(b.N), "statements/30s")
			b.ReportMetric(0, "ns/op")
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

func statementsSent(b *testing.B, pool *pgxpool.Pool) (n int) {
	b.Helper()
	err := pool.QueryRow(b.Context(), `SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
		WHERE query !~* '^\s*(begin|commit|listen)' AND query !~ 'lock_timeout|pg_stat_statements'`).Scan(&n)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
