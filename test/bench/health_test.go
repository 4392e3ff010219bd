package bench_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// BenchmarkHealth shows that a report costs the same whatever waits: with nothing in the tables; with 200,000 runs of
// 100,000 keys that are full, and 10,000 of 1,000 keys in the line; with a million runs asleep, a million over, 100,000
// failed within the hour and 300,000 due; and when 200,000 of those have just been claimed and nothing was vacuumed.
func BenchmarkHealth(b *testing.B) {
	pool := benchPool(b, 4)
	c := kit.NewClient(b, pool)
	run := func(name string) {
		b.Run(name, func(b *testing.B) {
			var worst time.Duration
			for b.Loop() {
				begun := time.Now()
				if r, err := admin.New(c).Health(b.Context()); err != nil ||
					r.Check("database").Status != health.Healthy {
					b.Fatal(r, err)
				}
				worst = max(worst, time.Since(begun))
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
	run("empty")
	dbtest.Exec(b, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at, run_key,
			key_scope)
		SELECT gen_random_uuid(), 'default', 'default', 'ship', 'PENDING', now() - interval '1 hour',
			CASE WHEN g <= 200000 THEN 'full ' || g % 100000 ELSE 'key ' || g % 1000 END, 'default'
		FROM generate_series(1, 210000) AS g`)
	dbtest.Exec(b, pool, `
		INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		SELECT DISTINCT key_scope, run_key, 'default', CASE WHEN run_key < 'key' THEN 'infinity' ELSE now() END
			FROM kagzi.workflow_runs`)
	run("keys")
	for _, rows := range []struct {
		status, at, ended string
		n                 int
	}{
		{"SLEEPING", "now() + interval '1 day'", "NULL", 1_000_000},
		{"COMPLETED", "NULL", "now()", 1_000_000},
		{"PENDING", "now() - interval '1 hour'", "NULL", 300_000},
	} {
		dbtest.Exec(b, pool, `
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at,
				finished_at)
			SELECT gen_random_uuid(), 'default', 'default', 'ship', $1,
				`+rows.at+`, `+rows.ended+` FROM generate_series(1, $2::int)`, rows.status, rows.n)
	}
	dbtest.Exec(b, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at,
			error_kind)
		SELECT gen_random_uuid(), 'default', 'default', 'ship', 'FAILED', now() - g * interval '20 ms',
			'kind-' || g % 20 FROM generate_series(1, 100000) AS g`)
	run("millions")
	dbtest.Exec(b, pool, `
		UPDATE kagzi.workflow_runs SET status = 'RUNNING', available_at = now() + interval '5 minutes'
		WHERE run_id IN (SELECT run_id FROM kagzi.workflow_runs WHERE status = 'PENDING' LIMIT 200000)`)
	run("claimed")
}
