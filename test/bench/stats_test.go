package bench_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store/inspect"
)

// BenchmarkStats measures the statements of Client.Stats, without its cache, with BENCH_STATS_RUNS runs (zero: 200,000)
// of 40 and of 320 pairs of queue and workflow: half of them asleep, a twentieth due, the others over, some of these
// failed. Each pair has more due runs and more sleeping ones than are counted, so all of the bound is read.
//
//	BENCH_STATS_RUNS=2000000 go test -run '^$' -bench 'Stats$' -benchtime 100x ./test/bench
func BenchmarkStats(b *testing.B) {
	n := 200_000
	if text := os.Getenv("BENCH_STATS_RUNS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for _, workflows := range []int{2, 16} { // of each of 20 queues
		b.Run(fmt.Sprintf("pairs=%d", 20*workflows), func(b *testing.B) { benchStats(b, n, workflows) })
	}
}

func benchStats(b *testing.B, n, workflows int) {
	pool := benchPool(b, 4)
	s := inspect.New(pool, "default")
	dbtest.Exec(b, pool, `ALTER TABLE kagzi.workflow_runs SET (autovacuum_enabled = off)`)
	run := func(name string) {
		b.Run(name, func(b *testing.B) {
			var best, worst time.Duration
			for b.Loop() {
				begun := time.Now()
				if _, err := s.Stats(b.Context(), pool, time.Hour); err != nil {
					b.Fatal(err)
				}
				took := time.Since(begun)
				worst = max(worst, took)
				if best == 0 || took < best {
					best = took
				}
			}
			b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
	run("empty")
	dbtest.Exec(b, pool, `ANALYZE kagzi.workflow_runs`)
	dbtest.Exec(b, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
			finished_at, error_kind)
		SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - g), 12, '0') || '7' || substr(md5(g::text), 1,
			3) || '8' || substr(md5(g::text), 4, 15))::uuid,
			'default', 'queue-' || g / 100 % 20, 'workflow-' || g / 2000 % $2::int, 1,
			CASE WHEN g % 20 < 10 THEN 'SLEEPING' WHEN g % 20 = 10 THEN 'PENDING' WHEN g % 20 = 11 THEN 'FAILED'
				ELSE 'COMPLETED' END,
			CASE WHEN g % 20 < 10 THEN now() + interval '1 hour' + g * interval '80 ms' WHEN g % 20 = 10
				THEN now() - g * interval '1 ms' END,
			CASE WHEN g % 20 > 10 THEN now() - g * interval '10 ms' END, CASE WHEN g % 20 = 11
				THEN 'kind-' || g / 20 % 7 END
		FROM generate_series(1, $1::int) AS g`, n, workflows)
	run(fmt.Sprintf("runs=%d/statistics=stale", n))
	dbtest.Exec(b, pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	run(fmt.Sprintf("runs=%d/statistics=fresh", n))
	dbtest.Exec(b, pool, `
		UPDATE kagzi.workflow_runs SET status = 'RUNNING', available_at = now() + interval '5 minutes'
		WHERE run_id IN (SELECT run_id FROM kagzi.workflow_runs WHERE status = 'PENDING' LIMIT $1::int)`, n/40)
	run(fmt.Sprintf("runs=%d/claimed", n))
	if st, err := admin.New(kit.NewClient(b, pool)).Stats(b.Context()); err != nil ||
		len(st.Workflows) != 20*workflows {
		b.Fatalf("%d workflows, %v", len(st.Workflows), err)
	}
}
