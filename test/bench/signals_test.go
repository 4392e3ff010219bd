package bench_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/await"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// BenchmarkSignal sends messages to 5,000 runs that no worker executes: from one goroutine, and from 16.
func BenchmarkSignal(b *testing.B) {
	s, wf := kagzi.DefineSignal[int]("s"), kagzi.Define[int, int]("wf")
	for _, goroutines := range []int{1, 16} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			c, _ := benchClient(b, 16)
			runs := kit.StartRuns(b, c, wf, 5_000)
			b.ResetTimer()
			var n atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if err := c.Signal(b.Context(), runs[i%5_000].ID(), s.With(1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "signals/s")
		})
	}
}

// BenchmarkSignalToNextStep measures how long after Signal was called the run's next step begins: of a run that sleeps,
// signalled by another client, and of one that stays in memory.
func BenchmarkSignalToNextStep(b *testing.B) {
	s, wf := kagzi.DefineSignal[int]("s"), kagzi.Define[bool, int]("wf")
	for _, memory := range []bool{false, true} {
		b.Run(fmt.Sprintf("memory=%t", memory), func(b *testing.B) {
			c, pool := benchClient(b, 8)
			sender := kit.NewClient(b, pool)
			begun := make(chan time.Time, 1)
			w := benchWorker(b, c, 10)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, memory bool) (int, error) {
				open := make(chan struct{})
				f := kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.Do(ctx, "s", func(context.Context) error {
						if memory {
							<-open
						}
						return nil
					})
				})
				if _, err := kagzi.WaitSignal(ctx, s); err != nil {
					return 0, err
				}
				if err := kagzi.Do(ctx, "next", func(context.Context) error {
					begun <- time.Now()
					return nil
				}); err != nil {
					return 0, err
				}
				close(open)
				return f.Result(ctx)
			})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			var took time.Duration
			for range b.N {
				b.StopTimer()
				run, err := kagzi.Start(ctx, sender, wf, memory)
				if err != nil {
					b.Fatal(err)
				}
				await.True(b, "the run waits", func() bool {
					info, _ := run.Info(ctx)
					return info.Status == kagzi.StatusSleeping || memory && info.Status == kagzi.StatusRunning
				})
				b.StartTimer()
				sent := time.Now()
				if err := sender.Signal(ctx, run.ID(), s.With(1)); err != nil {
					b.Fatal(err)
				}
				took += (<-begun).Sub(sent)
				if _, err := run.Result(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs/signal-to-step")
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
