package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// BenchmarkFlush measures a flush of 100 records, and how much of it is spent on encoding its arguments.
func BenchmarkFlush(b *testing.B) {
	const n = 100
	b.Run("Arguments", func(b *testing.B) {
		s := New(nil, "test")
		f := &Flush{}
		for range n {
			r := &ClaimedRun{RunID: uuid.New(), Lease: uuid.New()}
			f.Records, f.Suspensions, f.Finishes = append(f.Records, record(r, "step", "output")), append(f.Suspensions, sleep(r, time.Hour)), append(f.Finishes, finish(r))
		}
		b.ReportAllocs()
		for b.Loop() {
			if len(recordColumns.args(s.namespace, f.Records))+len(suspendColumns.args(s.namespace, f.Suspensions))+len(finishColumns.args(s.namespace, f.Finishes)) != 22+15+8 {
				b.Fatal("other arguments")
			}
		}
	})
	b.Run("Records", func(b *testing.B) {
		s := New(dbtest.Pool(b, dbtest.Unchecked()), "test")
		runs := many(n)
		if _, err := s.Start(b.Context(), nil, runs); err != nil {
			b.Fatal(err)
		}
		c, err := s.Claim(b.Context(), request(n, func(r *ClaimRequest) { r.LeaseTimeout = time.Hour }))
		if err != nil || len(c.Runs) != n {
			b.Fatalf("claimed %d, error %v", len(c.Runs), err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f := &Flush{}
			for _, r := range c.Runs {
				f.Records = append(f.Records, record(r, fmt.Sprint("step ", i), "output"))
			}
			if err := s.Flush(b.Context(), f); err != nil || f.Records[n-1].Outcome != Done {
				b.Fatalf("outcome %d, error %v", f.Records[n-1].Outcome, err)
			}
		}
	})
}
