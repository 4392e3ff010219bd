package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/kagzi/kagzi"
)

// A document has fields like those of a real one: names that come again and again, and values that do not.
type document struct {
	Rows []row
}

type row struct {
	ID, Customer, Comment string
	Amount                int
}

// documentOf returns a document of about so many bytes as JSON.
func documentOf(size int) (d document) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < size; n += 180 {
		d.Rows = append(d.Rows, row{
			ID: fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64()), Customer: fmt.Sprint("customer-", r.IntN(1000)),
			Comment: strings.Repeat("please deliver on time ", 2), Amount: r.IntN(100_000),
		})
	}
	return d
}

// BenchmarkPayload starts and executes runs whose input, step and result are documents, one after the other. It reports
// the processor time of this process for each MB that is written: three documents a run. That of the server comes from
// the caller's time command.
func BenchmarkPayload(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%dkB", size>>10), func(b *testing.B) {
			c, pool := benchClient(b, 8)
			wf := kagzi.Define[document, document]("echo")
			w := benchWorker(b, c, 4)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, d document) (document, error) {
				return kagzi.Step(ctx, "echo", func(context.Context) (document, error) { return d, nil })
			})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			defer func() {
				cancel()
				<-done
			}()
			d := documentOf(size)
			b.ResetTimer()
			before := processor(b)
			for range b.N {
				run, err := kagzi.Start(b.Context(), c, wf, d)
				if err == nil {
					_, err = run.Result(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			mb := float64(3*size*b.N) / (1 << 20)
			b.ReportMetric((processor(b)-before)*1000/mb, "client-ms/MB")
			b.ReportMetric(b.Elapsed().Seconds()*1000/mb, "ms/MB")
			printStatements(b, pool)
		})
	}
}

// processor returns the processor seconds of this process.
func processor(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
