package bench_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

// A keyed says by how many keys the runs of a benchmark are limited; none: they have no key.
type keyed struct {
	keys  int
	limit int // of each key; zero: the queue's limits stay as they are
	queue int // the limit of the queue, which has no keys; zero: there is none
}

func (k keyed) String() string {
	if k.queue > 0 {
		return fmt.Sprintf("queue=%d", k.queue)
	}
	if k.keys == 0 {
		return "plain"
	}
	return fmt.Sprintf("keys=%d/limit=%d", k.keys, k.limit)
}

// start sets the limit, and starts n runs whose keys alternate.
func (k keyed) start(b *testing.B, c *kagzi.Client, n int) {
	b.Helper()
	if k.queue > 0 {
		setQueue(b, c, admin.QueueLimits{MaxRunning: k.queue})
	}
	if k.keys == 0 {
		startCalls(b, c, n, func(i int) kagzi.Call { return drainedWorkflow.With(i) })
		return
	}
	if k.limit > 0 {
		setQueue(b, c, admin.QueueLimits{EachKey: admin.KeyLimits{MaxRunning: k.limit}})
	}
	startCalls(b, c, n, func(i int) kagzi.Call { return drainedWorkflow.With(i, keyName(i%k.keys)) })
}

// setQueue sets the limits of the default queue.
func setQueue(b *testing.B, c *kagzi.Client, l admin.QueueLimits) {
	b.Helper()
	l.Queue = "default"
	if err := admin.New(c).Queues.Set(b.Context(), l); err != nil {
		b.Fatal(err)
	}
}

// settle lets a measurement begin with nothing left to do.
func settle(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	dbtest.Exec(b, pool, "VACUUM ANALYZE")
	quiet(b, pool)
}

// quiet is settle without new statistics. A minute after a change of limits, a coordinator would look at all keys
// again.
func quiet(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	for _, sql := range []string{
		"UPDATE kagzi.queues SET settled = true", "CHECKPOINT",
		"SELECT pg_stat_statements_reset()",
	} {
		dbtest.Exec(b, pool, sql)
	}
}

// BenchmarkKeys executes b.N runs that wait in the queue: runs without keys, runs of many keys with one slot each, and
// runs of one key with many slots. It reports the processor time of a run, which other programs on the machine change
// less than the rate: go test -run '^$' -bench Keys/ -benchtime 20000x ./test/bench
func BenchmarkKeys(b *testing.B) {
	for _, k := range []keyed{{}, {1000, 1, 0}, {1, 100, 0}} {
		for _, concurrency := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/concurrency=%d", k, concurrency), func(b *testing.B) {
				c, pool := benchClient(b, 8)
				drainKeyed(b, c, pool, k, workers{1, concurrency, 0})
			})
		}
	}
}

// BenchmarkKeysWorkers is BenchmarkKeys for a fleet: a thousand slots in one worker, and in eight with pools of their
// own: go test -run '^$' -bench KeysWorkers -benchtime 20000x ./test/bench
func BenchmarkKeysWorkers(b *testing.B) {
	for _, k := range []keyed{{}, {1000, 1, 0}} {
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/workers=%d", k, n), func(b *testing.B) {
				c, pool := benchClient(b, 8)
				drainKeyed(b, c, pool, k, workers{n, 1000 / n, 0})
			})
		}
	}
}

// drainKeyed starts b.N runs, and then measures their execution by a fleet.
func drainKeyed(b *testing.B, c *kagzi.Client, pool *pgxpool.Pool, k keyed, by workers) {
	b.Helper()
	k.start(b, c, b.N)
	settle(b, pool)
	measureDrain(b, pool, by)
}

// fillKeys makes n keys that hold all of their slots and have two more runs each, or n keys without runs.
func fillKeys(b *testing.B, pool *pgxpool.Pool, n int, full bool) {
	b.Helper()
	dbtest.Exec(b, pool, `
		INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		SELECT 'default', 'beside-' || g, 'default', 'infinity' FROM generate_series(1, $1::int) AS g`, n)
	if !full {
		return
	}
	dbtest.Exec(b, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
			started_at, run_key, key_scope, slot)
		SELECT gen_random_uuid(), 'default', 'default', 'drained', 1, CASE WHEN i = 1 THEN 'SLEEPING'
			ELSE 'PENDING' END,
			CASE WHEN i = 1 THEN 'infinity' ELSE now() END, CASE WHEN i = 1 THEN now() END, 'beside-' || g, 'default',
				CASE WHEN i = 1 THEN 2 END
		FROM generate_series(1, $1::int) AS g, generate_series(1, 3) AS i`, n)
}

// BenchmarkKeysBeside is BenchmarkKeys of a thousand keys, beside 100,000 others: full ones, of which 200,000 runs
// wait, and idle ones. At the end it measures how long a coordinator takes to delete these: go test -run '^$' -bench
// KeysBeside -benchtime 20000x .
func BenchmarkKeysBeside(b *testing.B) {
	const others = 100_000
	c, pool := benchClient(b, 8)
	setQueue(b, c, admin.QueueLimits{EachKey: admin.KeyLimits{MaxRunning: 1}})
	drain := func(name string) {
		for _, concurrency := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/concurrency=%d", name, concurrency), func(b *testing.B) {
				drainKeyed(b, c, pool, keyed{keys: 1000}, workers{1, concurrency, 0})
			})
		}
	}
	drain("alone")
	fillKeys(b, pool, others, true)
	drain("full")
	dbtest.Exec(b, pool, `DELETE FROM kagzi.workflow_runs`)
	drain("idle")
	b.Run("delete", func(b *testing.B) {
		dbtest.Exec(b, pool, `DELETE FROM kagzi.run_keys`)
		fillKeys(b, pool, others, false)
		settle(b, pool)
		cpu := kit.NewCPUMeter(b, pool)
		b.ResetTimer()
		benchPasses(b.Context(), b, c, func(p testhook.Passes) {
			for left := others; left > 0; {
				if _, err := p.(interface {
					KeepKeys(ctx context.Context) (time.Duration, error)
				}).KeepKeys(b.Context()); err != nil {
					b.Fatal(err)
				}
				left = dbtest.QueryOne[int](b, pool, `SELECT count(*)::int FROM kagzi.run_keys`)
			}
		})
		b.StopTimer()
		cpu.Report(b, others)
		b.ReportMetric(others/b.Elapsed().Seconds(), "keys/s")
	})
}

// BenchmarkKeysSnapshot is BenchmarkKeys before and after a snapshot has been held for 20 seconds, in which the same
// keys had 1,000 runs a second. BENCH_SNAPSHOT=2m holds it longer: go test -run '^$' -bench KeysSnapshot -benchtime
// 20000x ./test/bench
func BenchmarkKeysSnapshot(b *testing.B) {
	hold := 20 * time.Second
	if s := os.Getenv("BENCH_SNAPSHOT"); s != "" {
		var err error
		if hold, err = time.ParseDuration(s); err != nil {
			b.Fatal(err)
		}
	}
	for _, k := range []keyed{{1000, 1, 0}, {1, 100, 0}, {0, 0, 100}} {
		b.Run(k.String(), func(b *testing.B) { drainBesideSnapshot(b, k, hold) })
	}
}

func drainBesideSnapshot(b *testing.B, k keyed, hold time.Duration) {
	c, pool := benchClient(b, 8)
	b.Run("before", func(b *testing.B) { drainKeyed(b, c, pool, k, workers{1, 1000, 0}) })
	tx, err := pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(b.Context(), "SELECT FROM kagzi.queues"); err != nil {
		b.Fatal(err)
	}
	const each = 10_000
	ended := 0
	pace := time.NewTicker(each * time.Millisecond)
	defer pace.Stop()
	for began := time.Now(); time.Since(began) < hold; ended += each {
		k.start(b, c, each)
		runFleet(b, pool, each, workers{1, 1000, 0})
		<-pace.C
	}
	b.Run("held", func(b *testing.B) {
		drainKeyed(b, c, pool, k, workers{1, 1000, 0})
		b.ReportMetric(float64(ended/max(k.keys, 1)), "dead-runs/key")
	})
}

// BenchmarkKeysStatistics executes b.N of 200,000 runs of a thousand keys, with statistics of all tables, without any,
// and with those of empty tables: go test -run '^$' -bench KeysStatistics -benchtime 20000x ./test/bench
func BenchmarkKeysStatistics(b *testing.B) {
	for _, statistics := range []string{"fresh", "none", "stale"} {
		b.Run(statistics, func(b *testing.B) {
			if b.N == 1 {
				return // the testing package tries it once
			}
			c, pool := benchClient(b, 8)
			for _, table := range []string{"workflow_runs", "run_keys", "key_changes", "queues"} {
				dbtest.Exec(b, pool, `ALTER TABLE kagzi.`+table+` SET (autovacuum_enabled = false)`)
			}
			if statistics == "stale" {
				dbtest.Exec(b, pool, "VACUUM ANALYZE")
			}
			keyed{1000, 1, 0}.start(b, c, 200_000)
			if statistics == "fresh" {
				dbtest.Exec(b, pool, "VACUUM ANALYZE")
			}
			quiet(b, pool)
			measureDrain(b, pool, workers{1, 1000, 0})
		})
	}
}
