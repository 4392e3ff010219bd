package bench_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/value"
)

// BenchmarkSetValue sets a value b.N times in one run: in a loop, and with a step after each. It reports how many rows
// the value has in the end, and what the same steps take without it: go test -run '^$' -bench SetValue -benchtime
// 10000x ./test/bench
func BenchmarkSetValue(b *testing.B) {
	state, wf := value.Define[int]("state"), kagzi.Define[int, int]("sets")
	for _, d := range []struct{ sets, steps bool }{{true, false}, {true, true}, {false, true}} {
		b.Run(fmt.Sprintf("sets=%t/steps=%t", d.sets, d.steps), func(b *testing.B) {
			c, pool := benchClient(b, 8)
			w := benchWorker(b, c, 1)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
				for i := range n {
					if d.sets {
						if err := value.Set(ctx, state, i); err != nil {
							return 0, err
						}
					}
					if d.steps {
						if err := kagzi.Do(ctx, "step", func(context.Context) error { return nil }); err != nil {
							return 0, err
						}
					}
				}
				return n, nil
			})
			kit.StartLocal(b, w)
			cpu := kit.NewCPUMeter(b, pool)
			b.ResetTimer()
			run, err := kagzi.Start(b.Context(), c, wf, b.N)
			if err == nil {
				_, err = run.Result(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			cpu.Report(b, b.N)
			printStatements(b, pool)
			rows := dbtest.QueryOne[int](b, pool, `SELECT count(*)::int FROM kagzi.step_runs WHERE step_kind = 'VALUE'`)
			b.ReportMetric(float64(rows), "rows")
			if !d.sets {
				return
			}
			if now, err := value.Get(b.Context(), c, run, state); err != nil || now.Value != b.N-1 {
				b.Errorf("the value is %+v, %v", now, err)
			}
			if rows != 1 {
				b.Errorf("the value has %d rows", rows)
			}
		})
	}
}
