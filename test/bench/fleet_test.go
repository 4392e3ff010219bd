package bench_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// workers are so many workers of this process, each with slots and a pool of its own. Their function has so many steps.
type workers struct{ n, slots, steps int }

var drainedWorkflow = kagzi.Define[int, int]("drained")

// BenchmarkFleet executes b.N runs by 512 slots: of one worker, of 8, and of 32. Workers in processes of their own are
// slower: the module bench has them. Of few runs it measures how these begin: go test -run '^$' -bench Fleet -benchtime
// 100000x ./test/bench
func BenchmarkFleet(b *testing.B) {
	for _, steps := range []int{0, 5} {
		for _, n := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("steps=%d/workers=%d", steps, n), func(b *testing.B) {
				c, pool := benchClient(b, 8)
				drainKeyed(b, c, pool, keyed{}, workers{n, 512 / n, steps})
			})
		}
	}
}

// measureDrain reports what the execution of b.N runs costs for each of them: the processor time, and the time that the
// server took for claims.
func measureDrain(b *testing.B, pool *pgxpool.Pool, by workers) {
	b.Helper()
	cpu := kit.NewCPUMeter(b, pool)
	b.ResetTimer()
	runFleet(b, pool, b.N, by)
	b.StopTimer()
	cpu.Report(b, b.N)
	ms := dbtest.QueryOne[float64](b, pool, `
		SELECT sum(total_exec_time) FROM pg_stat_statements
		WHERE query ~ 'kagzi\.run_keys|kagzi\.pauses' AND query !~ '^\s*(INSERT|VACUUM|ANALYZE)'`)
	b.ReportMetric(ms*1000/float64(b.N), "claim-us/run")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	printStatements(b, pool)
}

// runFleet lets workers execute n runs.
func runFleet(b *testing.B, pool *pgxpool.Pool, n int, by workers) {
	b.Helper()
	ctx, end := context.WithCancel(b.Context())
	defer end()
	stop := fleet(b, pool, by, drained(n, by.steps, end))
	<-ctx.Done()
	stop()
}

// fleet runs workers until the benchmark ends, or stop is called.
func fleet(b *testing.B, pool *pgxpool.Pool, by workers, fn func(kagzi.Context, int) (int, error)) (stop func()) {
	b.Helper()
	var stops []func()
	for range by.n {
		own := ownPool(b, pool)
		w := benchWorker(b, kit.NewClient(b, own), by.slots)
		kagzi.Handle(w, drainedWorkflow, fn)
		stops = append(stops, kit.StartLocal(b, w), own.Close)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ownPool returns another pool of pool's server.
func ownPool(b *testing.B, pool *pgxpool.Pool) *pgxpool.Pool {
	b.Helper()
	own, err := pgxpool.NewWithConfig(b.Context(), pool.Config())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(own.Close)
	return own
}

// BenchmarkBesideEnded executes b.N runs by turns in a new database, and in one that has ended runs: a million, or
// BENCH_ENDED. Ten million take minutes to insert, and much of the disk: BENCH_ENDED=10000000 go test -run '^$' -bench
// BesideEnded -benchtime 100000x -timeout 1h ./test/bench
func BenchmarkBesideEnded(b *testing.B) {
	ended := 1_000_000
	if s := os.Getenv("BENCH_ENDED"); s != "" {
		var err error
		if ended, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	_, beside := benchClient(b, 8)
	for at := 0; at < ended; at += 100_000 {
		dbtest.Exec(b, beside, insertEnded, at, min(100_000, ended-at))
	}
	settle(b, beside)
	for i := range 3 {
		for name, pool := range map[string]*pgxpool.Pool{"new": nil, "beside": beside} {
			b.Run(fmt.Sprintf("%s/%d", name, i+1), func(b *testing.B) {
				db := pool
				if db == nil {
					_, db = benchClient(b, 8)
				}
				drainKeyed(b, kit.NewClient(b, db), db, keyed{}, workers{1, 100, 0})
			})
		}
	}
}

// The IDs are UUIDv7, in the order of the rows.
const insertEnded = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, created_at,
		started_at, finished_at, input, output)
	SELECT (lpad(to_hex(1700000000000 + $1::bigint + i), 12, '0') || '70008' || lpad(to_hex(i), 15, '0'))::uuid,
		'default', 'default', 'drained', 1, 'COMPLETED', now() - interval '1 day' + i * interval '1 ms', now(), now(),
		'1', '1'
	FROM generate_series(1, $2::bigint) i`
