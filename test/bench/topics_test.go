package bench_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// BenchmarkPublish publishes b.N events of 100 bytes: one after the other, from 16 goroutines, and 1,000 in each call.
// Then it reads them: go test -run '^$' -bench Publish -benchtime 100000x ./test/bench
func BenchmarkPublish(b *testing.B) {
	about := topic.Define[[]byte]("topic")
	payload := make([]byte, 72) // in JSON it is longer
	publish := map[string]func(b *testing.B, c *kagzi.Client){
		"alone": func(b *testing.B, c *kagzi.Client) {
			for range b.N {
				if err := topic.New(c).Publish(b.Context(), about.With(payload)); err != nil {
					b.Fatal(err)
				}
			}
		},
		"goroutines=16": func(b *testing.B, c *kagzi.Client) {
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if err := topic.New(c).Publish(b.Context(), about.With(payload)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
		},
		"bulk": func(b *testing.B, c *kagzi.Client) {
			for left := b.N; left > 0; left -= 1000 {
				var some []topic.NewEvent
				for range min(left, 1000) {
					some = append(some, about.With(payload))
				}
				if err := topic.New(c).PublishMany(b.Context(), some); err != nil {
					b.Fatal(err)
				}
			}
		},
	}
	for name, f := range publish {
		b.Run(name, func(b *testing.B) { publishes(b, about, 0, f) })
		b.Run(name+"/subscribers=1", func(b *testing.B) { publishes(b, about, 1, f) })
	}
}

func publishes(b *testing.B, about topic.Topic[[]byte], subscribers int, f func(*testing.B, *kagzi.Client)) {
	c, pool := benchClient(b, 20)
	w := benchWorker(b, c, 10)
	kagzi.Handle(w, drainedWorkflow, func(_ kagzi.Context, i int) (int, error) { return i, nil })
	for i := range subscribers {
		topic.Consume(w, topic.DefineConsumer(strconv.Itoa(i), topic.ConsumerConfig{Topics: []topic.AnyTopic{about}}),
			func(_ kagzi.Context, n int) (int, error) { return n, nil })
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for n := -1; n < subscribers; time.Sleep(10 * time.Millisecond) { // until it has its row
		_ = pool.QueryRow(ctx, `SELECT count(*) FROM kagzi.subscriptions`).Scan(&n)
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	cpu := kit.NewCPUMeter(b, pool)
	b.ResetTimer()
	f(b, c)
	b.StopTimer()
	cpu.Report(b, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkEvents reads b.N events: go test -run '^$' -bench Events -benchtime 100000x ./test/bench
func BenchmarkEvents(b *testing.B) {
	about := topic.Define[[]byte]("topic")
	c, _ := benchClient(b, 20)
	for left := b.N; left > 0; left -= 1000 {
		var some []topic.NewEvent
		for range min(left, 1000) {
			some = append(some, about.With(make([]byte, 72)))
		}
		if err := topic.New(c).PublishMany(b.Context(), some); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	n := 0
	for _, err := range topic.Events(b.Context(), c, about, 0) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	if n != b.N {
		b.Fatalf("read %d events of %d", n, b.N)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkPublishFromRuns executes b.N runs that publish one event: go test -run '^$' -bench PublishFromRuns
// -benchtime 20000x ./test/bench
func BenchmarkPublishFromRuns(b *testing.B) {
	about := topic.Define[[]byte]("topic")
	payload := make([]byte, 72)
	for name, named := range map[string]bool{"made": false, "named": true} {
		b.Run(name, func(b *testing.B) {
			c, pool := benchClient(b, 8)
			wf := kagzi.Define[int, int]("drained")
			startAll(b, c, wf)
			w := benchWorker(b, c, 100)
			ctx, cancel := context.WithCancel(b.Context())
			var done atomic.Int64
			kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
				e := about.With(payload)
				if named {
					e = e.WithID(kagzi.ID(ctx.RunID()))
				}
				err := topic.Publish(ctx, "tell", e)
				if done.Add(1) == int64(b.N) {
					cancel()
				}
				return n, err
			})
			cpu := kit.NewCPUMeter(b, pool)
			b.ResetTimer()
			if err := w.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			cpu.Report(b, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}
