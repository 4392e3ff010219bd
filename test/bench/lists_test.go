package bench_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// fillListed inserts $1 runs of the last 30 days, of which the middle half sleeps and the newest thousands are active;
// all others have ended. A twentieth is of another namespace.
const fillListed = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
		error_kind, error, waiting_on, started_at, finished_at, created_at,
		external_id, input, output, parent_run_id, schedule_id, fire_at, metadata)
	SELECT (lpad(to_hex((extract(epoch FROM k.at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(g % 4096), 3,
		'0') || '8' || substr(md5(g::text), 4, 15))::uuid,
		CASE WHEN g % 20 = 0 THEN 'other' ELSE 'default' END, CASE WHEN g % 100001 = 7 THEN 'rare'
			ELSE 'queue-' || g % 3 END, CASE WHEN g % 50021 = 3 THEN 'rare' ELSE 'workflow-' || g % 6 END,
		1, k.status, CASE k.status WHEN 'SLEEPING' THEN now() + g % 1000000 * interval '1 second' WHEN 'PENDING'
			THEN k.at WHEN 'RUNNING' THEN now() + interval '4 minutes' END,
		CASE k.status WHEN 'FAILED' THEN 'kind-' || g % 4 WHEN 'CANCELLED' THEN 'cancelled' END,
			CASE WHEN k.status IN ('FAILED', 'CANCELLED') THEN 'an error' END,
		CASE WHEN k.status = 'SLEEPING' THEN CASE WHEN g % 10000 = 1
			THEN '[{"kind": "signal", "name": "approved"}]'::jsonb
			ELSE '[{"kind": "timer", "name": "cooling-off"}]' END END, k.at,
		CASE WHEN k.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN k.at + interval '2 seconds' END, k.at,
			CASE WHEN g % 10 = 1 THEN 'id-' || g END,
		'{"order": "42", "note": "an input of the usual length"}', CASE WHEN k.status = 'COMPLETED'
			THEN '{"receipt": 43}'::bytea END,
		CASE WHEN g % 1000 = 4 THEN '00000000-0000-7000-8000-000000000001'::uuid END, CASE WHEN g % 1000 = 5
			THEN '00000000-0000-7000-8000-000000000002'::uuid END,
		CASE WHEN g % 1000 = 5 THEN k.at END, CASE WHEN g % 1000 = 1 THEN '{"customer": "ada"}'::jsonb END
	FROM generate_series(1, $1::int) AS g
	CROSS JOIN LATERAL (
		SELECT now() - interval '30 days' + g * (interval '30 days' / $1::int) AS at, CASE
			WHEN g > $1::int - 4000 AND g % 3 = 0 THEN 'RUNNING' WHEN g > $1::int - 4000 AND g % 3 = 1 THEN 'PENDING'
				WHEN g > $1::int / 4 AND g <= $1::int * 3 / 4 THEN 'SLEEPING'
			WHEN g % 500 = 1 THEN 'FAILED' WHEN g % 700 = 2 THEN 'CANCELLED' ELSE 'COMPLETED' END AS status
		OFFSET 0
	) k
	ON CONFLICT DO NOTHING`

// BenchmarkList lists a page of 100 among BENCH_RUNS runs, 200,000 unless it is set: BENCH_RUNS=2000000 go test -run
// '^$' -bench 'List$' -benchtime 20x ./test/bench. It makes no statistics with BENCH_UNANALYZED=1.
func BenchmarkList(b *testing.B) {
	rows := 200_000
	if n, err := strconv.Atoi(os.Getenv("BENCH_RUNS")); err == nil {
		rows = n
	}
	c, pool := benchClient(b, 4)
	for _, sql := range []string{
		"ALTER TABLE kagzi.workflow_runs SET (autovacuum_enabled = off)", fillListed,
		"VACUUM ANALYZE kagzi.workflow_runs",
	} {
		var args []any
		if sql == fillListed {
			args = []any{rows}
		}
		if sql == "VACUUM ANALYZE kagzi.workflow_runs" && os.Getenv("BENCH_UNANALYZED") != "" {
			continue
		}
		if _, err := pool.Exec(b.Context(), sql, args...); err != nil {
			b.Fatal(err)
		}
	}
	days := func(n time.Duration) time.Time { return time.Now().Add(-n * 24 * time.Hour) }
	of := func(s ...kagzi.Status) []kagzi.Status { return s }
	middle, err := c.List(b.Context(), kagzi.RunFilter{Until: days(15), Limit: 1})
	if err != nil || len(middle) == 0 {
		b.Fatal(middle, err)
	}
	after := middle[0].ID
	for _, bb := range []struct {
		name string
		f    kagzi.RunFilter
	}{
		{"all", kagzi.RunFilter{}},
		{"after", kagzi.RunFilter{After: after}},
		{"ID", kagzi.RunFilter{ID: "id-1001"}},
		{"pending", kagzi.RunFilter{Status: of(kagzi.StatusPending)}},
		{"running", kagzi.RunFilter{Status: of(kagzi.StatusRunning)}},
		{"sleeping", kagzi.RunFilter{Status: of(kagzi.StatusSleeping)}},
		{"completed", kagzi.RunFilter{Status: of(kagzi.StatusCompleted)}},
		{"failed", kagzi.RunFilter{Status: of(kagzi.StatusFailed)}},
		{"cancelled", kagzi.RunFilter{Status: of(kagzi.StatusCancelled)}},
		{"completed/after", kagzi.RunFilter{Status: of(kagzi.StatusCompleted), After: after}},
		{"failed/after", kagzi.RunFilter{Status: of(kagzi.StatusFailed), After: after}},
		{"workflow", kagzi.RunFilter{Workflow: "workflow-2"}},
		{"workflow/rare", kagzi.RunFilter{Workflow: "rare"}},
		{"workflow/none", kagzi.RunFilter{Workflow: "none"}},
		{"queue", kagzi.RunFilter{Queue: "queue-1"}},
		{"queue/rare", kagzi.RunFilter{Queue: "rare"}},
		{"since", kagzi.RunFilter{Since: days(1)}},
		{"since/future", kagzi.RunFilter{Since: days(-1)}},
		{"until", kagzi.RunFilter{Until: days(20)}},
		{"between", kagzi.RunFilter{Since: days(20), Until: days(20).Add(time.Hour)}},
		{"ended since", kagzi.RunFilter{EndedSince: days(1)}},
		{"ended since/future", kagzi.RunFilter{EndedSince: days(-1)}},
		{"ended until", kagzi.RunFilter{EndedUntil: days(25)}},
		{"failed/ended since", kagzi.RunFilter{Status: of(kagzi.StatusFailed), EndedSince: days(1)}},
		{"kind", kagzi.RunFilter{Kind: "kind-1"}},
		{"failed/kind", kagzi.RunFilter{Status: of(kagzi.StatusFailed), Kind: "kind-1"}},
		{"waiting", kagzi.RunFilter{WaitingOn: "signal"}},
		{"parent", kagzi.RunFilter{Parent: "00000000-0000-7000-8000-000000000001"}},
		{"metadata", kagzi.RunFilter{Metadata: kagzi.Metadata{"customer": "ada"}}},
		{"workflow/failed", kagzi.RunFilter{Workflow: "workflow-2", Status: of(kagzi.StatusFailed)}},
		{"workflow/running", kagzi.RunFilter{Workflow: "workflow-2", Status: of(kagzi.StatusRunning)}},
		{"workflow/completed until", kagzi.RunFilter{
			Workflow: "workflow-2", Status: of(kagzi.StatusCompleted),
			Until: days(20),
		}},
		{"workflow/between", kagzi.RunFilter{Workflow: "workflow-3", Since: days(20), Until: days(19)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			n := 0
			for range b.N {
				runs, err := c.List(b.Context(), bb.f)
				if err != nil {
					b.Fatal(err)
				}
				n = len(runs)
			}
			b.ReportMetric(float64(n), "runs")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/list")
		})
	}
	for name, by := range map[string][]admin.CountBy{"status": {admin.ByStatus}, "workflow and day": {
		admin.ByWorkflow,
		admin.ByStarted(24 * time.Hour),
	}, "kind and step": {admin.ByKind, admin.ByStep}} {
		b.Run("counts by "+name, func(b *testing.B) {
			f := kagzi.RunFilter{}
			if name == "kind and step" {
				f = kagzi.RunFilter{Status: of(kagzi.StatusFailed), EndedSince: days(1)}
			}
			for range b.N {
				if _, err := admin.New(c).Runs.Count(b.Context(), f, by...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/count")
		})
	}
}
