package bench_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/kagzi/kagzi"
)

// BenchmarkFanOut has one parent start 1,000 children and await them: all at once, and each as it ends.
func BenchmarkFanOut(b *testing.B) {
	const children = 1000
	child := kagzi.Define[int, int]("child")
	for name, fn := range map[string]func(kagzi.Context, int) (int, error){
		"results": func(ctx kagzi.Context, n int) (int, error) {
			all := make([]*kagzi.Child[int], n)
			for i := range all {
				var err error
				if all[i], err = kagzi.StartChild(ctx, "child-"+strconv.Itoa(i), child, i); err != nil {
					return 0, err
				}
			}
			out, err := kagzi.Results(ctx, all)
			return len(out), err
		},
		"map": func(ctx kagzi.Context, n int) (int, error) {
			items := make([]int, n)
			for i := range items {
				items[i] = i
			}
			out, err := kagzi.Map(ctx, "all", items, func(ctx kagzi.Context, i int) (int, error) {
				return kagzi.RunChild(ctx, "child", child, i)
			})
			return len(out), err
		},
	} {
		b.Run(name, func(b *testing.B) {
			c, _ := benchClient(b, 8)
			w := benchWorker(b, c, 1000)
			parent := kagzi.Define[int, int]("parent")
			executions := 0 // of parents, one at a time
			kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (int, error) {
				executions++
				return fn(ctx, n)
			})
			kagzi.Handle(w, child, func(_ kagzi.Context, n int) (int, error) { return n, nil })
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			b.ResetTimer()
			for range b.N {
				run, err := kagzi.Start(ctx, c, parent, children)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := run.Result(ctx); err != nil || n != children {
					b.Fatal(n, err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N*children)/b.Elapsed().Seconds(), "children/s")
			b.ReportMetric(float64(executions)/float64(b.N), "claims/parent")
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
