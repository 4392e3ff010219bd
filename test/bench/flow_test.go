package bench_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// keyName returns the name of the i-th key of a benchmark.
func keyName(i int) kagzi.Key { return kagzi.Key("key-" + strconv.Itoa(i)) }

// reportTimes reports the median of the times and what 99 % of them stay below, in milliseconds.
func reportTimes(b *testing.B, what string, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(times[len(times)/2]), "ms/"+what+"-p50")
	b.ReportMetric(ms(times[len(times)*99/100]), "ms/"+what+"-p99")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHandover measures how long a slot is free before the next run of its key begins: from the statement that
// records the end of the run before, and from the return of its workflow function. There are one key and one worker, or
// 20 keys, four workers and 20 ms of work in each run: go test -run '^$' -bench Handover -benchtime 2000x ./test/bench
func BenchmarkHandover(b *testing.B) {
	for _, d := range []struct {
		keys, workers int
		work          time.Duration
	}{{1, 1, 0}, {20, 4, 20 * time.Millisecond}} {
		b.Run(fmt.Sprintf("keys=%d/workers=%d/work=%s", d.keys, d.workers, d.work), func(b *testing.B) {
			c, pool := benchClient(b, 8)
			setQueue(b, c, admin.QueueLimits{EachKey: admin.KeyLimits{MaxRunning: 1}})
			warm := 10 * d.keys // runs that begin while the workers prepare their statements
			n := warm + b.N
			startCalls(b, c, n, func(i int) kagzi.Call { return drainedWorkflow.With(i, keyName(i%d.keys)) })
			settle(b, pool)
			began, returned := make([]time.Time, n), make([]time.Time, n)
			ctx, end := context.WithCancel(b.Context())
			defer end()
			last := drained(n, 0, end)
			b.ResetTimer()
			stop := fleet(b, pool, workers{d.workers, 100, 0}, func(ctx kagzi.Context, i int) (int, error) {
				began[i] = time.Now()
				time.Sleep(d.work)
				returned[i] = time.Now()
				return last(ctx, i)
			})
			<-ctx.Done()
			b.StopTimer()
			stop()
			printStatements(b, pool)
			ended := queryAll[time.Time](b, pool, `SELECT finished_at FROM kagzi.workflow_runs
				ORDER BY convert_from(input, 'UTF8')::int`)
			var free, all []time.Duration
			for i := warm; i < n; i++ {
				free = append(free, began[i].Sub(ended[i-d.keys]))
				all = append(all, began[i].Sub(returned[i-d.keys]))
			}
			reportTimes(b, "free", free)
			reportTimes(b, "all", all)
		})
	}
}

// BenchmarkFairness measures how long after Start the runs of 49 keys begin, each of which starts one every 50 ms,
// beside a key with 100,000 due runs. One worker has 100 slots, and a run works for 5 ms: go test -run '^$' -bench
// Fairness .
func BenchmarkFairness(b *testing.B) {
	const backlog, keys, starts = 100_000, 50, 150
	c, pool := benchClient(b, 8)
	startCalls(b, c, backlog, func(int) kagzi.Call { return drainedWorkflow.With(-1, keyName(0)) })
	settle(b, pool)
	var executed atomic.Int64
	var began [keys * starts]atomic.Pointer[time.Time]
	stop := fleet(b, pool, workers{1, 100, 0}, func(_ kagzi.Context, i int) (int, error) {
		if now := time.Now(); i >= 0 {
			began[i].Store(&now)
		} else {
			executed.Add(1)
		}
		time.Sleep(5 * time.Millisecond)
		return i, nil
	})
	starter := kit.NewClient(b, ownPool(b, pool))
	b.ResetTimer()
	times := make([][]time.Duration, keys)
	var running sync.WaitGroup
	for key := 1; key < keys; key++ {
		running.Go(func() {
			due := time.Now().Add(time.Duration(key) * time.Millisecond)
			for i := range starts {
				<-time.After(time.Until(due))
				due = due.Add(50 * time.Millisecond)
				asked, in := time.Now(), key*starts+i
				run, err := kagzi.Start(b.Context(), starter, drainedWorkflow, in, keyName(key))
				if err == nil {
					_, err = run.Result(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
				times[key] = append(times[key], began[in].Load().Sub(asked))
			}
		})
	}
	running.Wait()
	b.StopTimer()
	if executed.Load() == backlog {
		b.Error("the key with the backlog has none any more")
	}
	b.ReportMetric(float64(executed.Load())/b.Elapsed().Seconds(), "backlog-runs/s")
	stop()
	printStatements(b, pool)
	reportTimes(b, "start", slices.Concat(times...))
}

// BenchmarkShares executes b.N runs of three keys with weights 1, 2 and 5, all of which have more runs. The queue has
// 40 slots. It reports each key's share by its weight, so that 1 is what the key should have: go test -run '^$' -bench
// Shares -benchtime 8000x .
func BenchmarkShares(b *testing.B) {
	weights := []int{1, 2, 5}
	c, pool := benchClient(b, 8)
	setQueue(b, c, admin.QueueLimits{MaxRunning: 40})
	for key, weight := range weights {
		if err := admin.New(c).Keys.Set(b.Context(), "default", keyName(key),
			admin.KeyLimits{Weight: weight}); err != nil {
			b.Fatal(err)
		}
		startCalls(b, c, b.N+1000, func(int) kagzi.Call { return drainedWorkflow.With(key, keyName(key)) })
	}
	settle(b, pool)
	var executed atomic.Int64
	var ran [3]atomic.Int64
	done := make(chan struct{})
	b.ResetTimer()
	fleet(b, pool, workers{1, 100, 0}, func(_ kagzi.Context, key int) (int, error) {
		switch n := executed.Add(1); {
		case n <= int64(b.N):
			ran[key].Add(1)
		case n == int64(b.N)+1:
			close(done)
		}
		time.Sleep(5 * time.Millisecond)
		return key, nil
	})
	<-done
	b.StopTimer()
	printStatements(b, pool)
	for key, weight := range weights {
		b.ReportMetric(float64(ran[key].Load())/float64(b.N)*8/float64(weight), fmt.Sprint("share-of-", weight))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkStartRate has three workers and b.N runs, and a rate of the queue or of the key. It reports how often runs
// took slots by the database's clock, and the most that did so in any second: go test -run '^$' -bench StartRate
// -benchtime 1000x ./test/bench
func BenchmarkStartRate(b *testing.B) {
	for _, burst := range []int{1, 5} {
		rate := admin.Rate{Starts: 50, Burst: burst}
		b.Run(fmt.Sprintf("queue/burst=%d", burst), func(b *testing.B) {
			startAtRate(b, admin.QueueLimits{Rate: rate}, func(i int) kagzi.Call { return drainedWorkflow.With(i) })
		})
		b.Run(fmt.Sprintf("key/burst=%d", burst), func(b *testing.B) {
			startAtRate(b, admin.QueueLimits{EachKey: admin.KeyLimits{Rate: rate}}, func(i int) kagzi.Call {
				return drainedWorkflow.With(i, keyName(0))
			})
		})
	}
}

func startAtRate(b *testing.B, limits admin.QueueLimits, call func(i int) kagzi.Call) {
	c, pool := benchClient(b, 8)
	setQueue(b, c, limits)
	startCalls(b, c, b.N, call)
	settle(b, pool)
	b.ResetTimer()
	runFleet(b, pool, b.N, workers{3, 100, 0})
	b.StopTimer()
	printStatements(b, pool)
	took := queryAll[time.Time](b, pool, `SELECT started_at FROM kagzi.workflow_runs WHERE started_at IS NOT NULL
		ORDER BY 1`)
	reportRate(b, took, "starts/s")
}

// reportRate reports how often something happened, and the most of these times that are in any second.
func reportRate(b *testing.B, times []time.Time, unit string) {
	b.Helper()
	first, most := 0, 0
	for i, t := range times {
		for t.Sub(times[first]) >= time.Second {
			first++
		}
		most = max(most, i+1-first)
	}
	if d := times[len(times)-1].Sub(times[0]); d > 0 {
		b.ReportMetric(float64(len(times)-1)/d.Seconds(), unit)
	}
	b.ReportMetric(float64(most), "most-in-a-second")
	b.ReportMetric(0, "ns/op")
}
