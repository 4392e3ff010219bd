package bench_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
)

var (
	askedWorkflow = kagzi.Define[int, int]("asked")
	increment     = request.Define[int, int]("increment")
)

// epoch is how many requests an epoch answers: each wake-up reads its history.
const epoch = 10

// answering answers so many requests, epoch by epoch.
func answering(ctx kagzi.Context, left int) (int, error) {
	for range min(left, epoch) {
		r, err := request.Wait(ctx, increment)
		if err != nil {
			return 0, err
		}
		if err := r.Reply(ctx, r.In+1); err != nil {
			return 0, err
		}
	}
	if left -= epoch; left > 0 {
		return 0, kagzi.Continue(ctx, left)
	}
	return 0, nil
}

// answerers starts a worker and n runs that answer so many requests each. It returns once all of them sleep. The client
// that asks is the worker's if here is set, and otherwise hears of answers from the database alone, as in another
// process.
func answerers(b *testing.B, n, each int, here bool) (c *kagzi.Client, pool *pgxpool.Pool, runs []kagzi.RunID) {
	b.Helper()
	c, pool = benchClient(b, 8)
	w := benchWorker(b, c, 100)
	kagzi.Handle(w, askedWorkflow, answering)
	kit.StartLocal(b, w)
	startCalls(b, c, n, func(int) kagzi.Call { return askedWorkflow.With(each) })
	await.True(b, "all runs sleep", func() bool {
		return n == dbtest.QueryOne[int](b, pool,
			`SELECT count(*)::int FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`)
	})
	runs = queryAll[kagzi.RunID](b, pool, `SELECT run_id::text FROM kagzi.workflow_runs`)
	if !here {
		pool = ownPool(b, pool)
		c = kit.NewClient(b, pool)
	}
	return c, pool, runs
}

// askOne asks the run, and returns how long the answer took.
func askOne(b *testing.B, c *kagzi.Client, run kagzi.RunID, n int) time.Duration {
	began := time.Now()
	got, err := request.Ask(b.Context(), c, run, increment.With(n))
	if err != nil || got != n+1 {
		b.Errorf("got %d, %v", got, err)
	}
	return time.Since(began)
}

// reportFloor reports how long the pool takes for a statement that does nothing, and for one that commits a row. A
// question of a sleeping run commits three times: the message, the claim, and the answer.
func reportFloor(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	dbtest.Exec(b, pool, "CREATE TABLE floor (n int)")
	for what, sql := range map[string]string{"select": "SELECT 1", "commit": "INSERT INTO floor VALUES (1)"} {
		times := make([]time.Duration, 500)
		for i := range times {
			began := time.Now()
			dbtest.Exec(b, pool, sql)
			times[i] = time.Since(began)
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/"+what+"-p50")
	}
}

// BenchmarkAsk measures how long an answer takes. Each of b.N sleeping runs is asked once, or one run all the time. The
// asker has the worker's client, or another one: go test -run '^$' -bench 'Ask$' -benchtime 2000x ./test/bench
func BenchmarkAsk(b *testing.B) {
	for _, where := range []string{"same process", "other client"} {
		for _, one := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/one run=%t", where, one), func(b *testing.B) {
				const warm = 20 // the statements are prepared, and the client listens
				n, each := warm+b.N, 1
				if one {
					n, each = 1, warm+b.N
				}
				c, pool, runs := answerers(b, n, each, where == "same process")
				times := make([]time.Duration, 0, warm+b.N)
				b.ResetTimer()
				for i := range warm + b.N {
					times = append(times, askOne(b, c, runs[i%n], i))
				}
				b.StopTimer()
				printStatements(b, pool)
				reportTimes(b, "answer", times[warm:])
				reportFloor(b, pool)
			})
		}
	}
}

// BenchmarkAskRate asks a thousand sleeping runs, in turn, a thousand times in a second. It reports the processor time
// of a question with its answer, in this process and with the server, and how long the answers take: go test -run '^$'
// -bench AskRate -benchtime 10000x ./test/bench
func BenchmarkAskRate(b *testing.B) {
	const runsAsked, inASecond = 1000, 1000
	for _, where := range []string{"same process", "other client"} {
		b.Run(where, func(b *testing.B) {
			c, pool, runs := answerers(b, runsAsked, 2+b.N/runsAsked, where == "same process")
			askOne(b, c, runs[0], 0) // the client listens
			times := make([]time.Duration, b.N)
			cpu := kit.NewCPUMeter(b, pool)
			b.ResetTimer()
			var all sync.WaitGroup
			for i, began := 0, time.Now(); i < b.N; i++ {
				<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / inASecond)))
				all.Go(func() { times[i] = askOne(b, c, runs[i%runsAsked], i) })
			}
			all.Wait()
			b.StopTimer()
			cpu.Report(b, b.N)
			cpu.ReportOwn(b, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
			printStatements(b, pool)
			reportTimes(b, "answer", times)
			reportFloor(b, pool)
		})
	}
}
