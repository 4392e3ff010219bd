package checkup_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// insertEnds registers a worker that started so long ago, was last heard of so long ago, and has ended so many runs.
func insertEnds(t *testing.T, pool *pgxpool.Pool, namespace string, lived, silent time.Duration, completed,
	failed int,
) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status, lease_timeout,
			stale_after, started_at, heartbeat_at, completed_count, failed_count)
		VALUES ($1, $2, '{default}', '{ship}', 'OFFLINE', '5 minutes', '1 minute', clock_timestamp() - $3::interval,
			clock_timestamp() - $4::interval, $5, $6)`,
		uuid.New(), namespace, lived, silent, completed, failed)
}

func TestHealthOfFailures(t *testing.T) {
	t.Parallel()
	failed := func(n int, kind string) oddRuns { return oddRuns{status: "FAILED", kind: kind, n: n, ago: time.Minute} }
	for _, tt := range []struct {
		name   string
		runs   []oddRuns
		ends   func(*testing.T, *pgxpool.Pool)
		status health.Status
		texts  []string
	}{
		{"None", nil, nil, health.Healthy, []string{"No run failed within the last hour."}},
		{
			"LongAgo",
			[]oddRuns{{status: "FAILED", kind: "timeout", n: 20, ago: 2 * time.Hour}},
			nil, health.Healthy,
			[]string{"No run failed"},
		},
		{
			"OfOthers",
			[]oddRuns{{status: "FAILED", kind: "timeout", n: 20, namespace: "other"}},
			nil, health.Healthy,
			[]string{"No run failed"},
		},
		{
			"Few",
			[]oddRuns{failed(9, "timeout")},
			nil, health.Healthy,
			[]string{`9 runs failed within the last hour: 9 runs of workflow "ship" with kind timeout.`},
		},
		{"All", []oddRuns{failed(10, "timeout")}, nil, health.Degraded, []string{"10 runs failed within the last " +
			"hour, about 100 % of those that ended", "remove the cause, and resume them."}},
		{
			"Some",
			[]oddRuns{
				failed(10, "timeout"), failed(20, "unavailable"),
				{status: "FAILED", kind: "unavailable", typ: "bill", n: 3},
			},
			func(t *testing.T, pool *pgxpool.Pool) {
				insertEnds(t, pool, "default", 10*time.Minute, time.Second, 167, 33)
			},
			health.Degraded,
			[]string{"33 runs failed within the last hour, about 17 % of those that ended: " +
				`20 runs of workflow "ship" with kind unavailable, 10 runs of workflow "ship" with kind timeout, ` +
				`3 runs of workflow "bill" with kind unavailable.`},
		},
		{"OneInTen", []oddRuns{failed(20, "timeout")}, func(t *testing.T, pool *pgxpool.Pool) {
			insertEnds(t, pool, "default", 10*time.Minute, time.Second, 80, 20)
			insertEnds(t, pool, "default", 30*time.Minute, 10*time.Minute, 100, 0)
		}, health.Healthy, []string{"20 runs failed within the last hour, about 10 % of those that ended"}},
		{"OldCounters", []oddRuns{failed(20, "timeout")}, func(t *testing.T, pool *pgxpool.Pool) {
			insertEnds(t, pool, "default", 10*time.Hour, 0, 1000, 0)          // a tenth of them
			insertEnds(t, pool, "default", 9*time.Hour, 2*time.Hour, 9999, 0) // none
			insertEnds(t, pool, "other", time.Hour, 0, 9999, 0)
		}, health.Degraded, []string{"about 20 % of those that ended"}},
		{"Many", []oddRuns{failed(1001, "timeout"), failed(1, "panic")}, func(t *testing.T, pool *pgxpool.Pool) {
			insertEnds(t, pool, "default", 10*time.Minute, 0, 20_000, 5_000)
		}, health.Degraded, []string{"more than 1001 runs failed within the last hour, about 20 % of those that " +
			"ended: more than 1000 runs", "1 run of workflow \"ship\" with kind panic"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			for _, o := range tt.runs {
				o.insert(t, pool)
			}
			if tt.ends != nil {
				tt.ends(t, pool)
			}
			wantHealth(t, examine(t, newClient(t, pool)), "failures", tt.status, tt.texts...)
		})
	}
}

// The report lists the most frequent failures.
func TestHealthListsFailures(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	for i := range 25 {
		oddRuns{status: "FAILED", kind: fmt.Sprintf("kind-%02d", i), n: 1 + i%24, ago: time.Minute}.insert(t, pool)
	}
	r := examine(t, newClient(t, pool))
	if len(r.Failed) != 20 || !slices.IsSortedFunc(r.Failed, func(a, b health.Failed) int { return b.Runs - a.Runs }) {
		t.Fatalf("%+v", r.Failed)
	}
	if f := r.Failed[0]; f.Workflow != "ship" || f.Kind != "kind-23" || f.Runs != 24 || f.More ||
		r.At.Sub(f.Last) < time.Minute || r.At.Sub(f.Last) > time.Hour {
		t.Errorf("%+v at %v", f, r.At)
	}
}
