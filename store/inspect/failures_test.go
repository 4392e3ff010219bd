package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// Of each kind the runs are read that failed last, within the time and in the namespace.
func TestFailedRunsOfEachKind(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	insert := func(namespace, status, kind, text string, n int, ago time.Duration) {
		exec(t, s.pool, `
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, error_kind, error,
				finished_at)
			SELECT gen_random_uuid(), $1, 'queue', 'type', $2, $3, $4, now() - $6::bigint * interval '1 microsecond'
				- g * interval '1 ms'
			FROM generate_series(1, $5::int) AS g`, namespace, status, kind, text, n, ago.Microseconds())
	}
	insert("test", "FAILED", "network", "no answer", maxFailedCounted+1, 0)
	insert("test", "FAILED", "timeout", strings.Repeat("x", 2000), 2, time.Minute)
	insert("test", "FAILED", "timeout", "long ago", 1, 2*time.Hour)
	insert("test", "CANCELLED", "cancelled", "cancelled", 1, 0)
	insert("other", "FAILED", "network", "of another namespace", 1, 0)
	runs, err := s.Health.FailedRuns(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	counts, more := map[string]int{}, map[string]bool{}
	for i, r := range runs {
		counts[r.Error], more[r.Kind] = counts[r.Error]+1, more[r.Kind] || r.More
		if i > 0 && r.EndedAt.After(runs[i-1].EndedAt) {
			t.Fatalf("run %d failed after the one before it", i)
		}
		if r.Type != "type" || r.RunID == uuid.Nil || r.Ago < 0 || r.Ago > time.Hour {
			t.Fatalf("run %d is %+v", i, r)
		}
	}
	if counts["no answer"] != maxFailedCounted || counts[strings.Repeat("x", 1000)] != 2 || len(counts) != 2 ||
		!more["network"] || more["timeout"] {
		t.Errorf("there are %d of network, %d texts, and more of %v", counts["no answer"], len(counts), more)
	}
}
