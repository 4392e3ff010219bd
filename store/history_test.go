package store

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// fillSteps gives the run steps, each with that many attempts.
func fillSteps(t *testing.T, s *Store, run uuid.UUID, prefix string, steps, attempts int) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind,
		run_attempt, first_attempt, output, started_at, finished_at)
		SELECT $1::uuid, $2::text || n, a, $5, 'FAILED', 'FUNCTION', 1, 1, convert_to(n || '/' || a, 'UTF8'), now(),
			now()
		FROM generate_series(1, $3::int) n, generate_series(1, $4::int) a`, run, prefix, steps, attempts, s.namespace)
}

// The history is read in portions: whatever lies on their bounds, it is the latest attempt of each step, each once.
func TestHistoryIsTheLatestAttemptOfEachStep(t *testing.T) {
	t.Parallel()
	s := open(t)
	type part struct {
		prefix          string
		steps, attempts int
	}
	for _, parts := range [][]part{
		{{"one", 1, 1}},
		{{"one", 1, 127}},
		{{"one", 1, 128}},
		{{"one", 1, 129}},
		{{"one", 1, 1000}},
		{{"many", 127, 1}},
		{{"many", 128, 1}},
		{{"many", 129, 1}},
		{{"many", 1000, 1}},
		{{"a", 127, 1}, {"z", 1, 500}},
		{{"a", 1, 500}, {"z", 127, 1}},
		{{"a", 1, 500}, {"b", 128, 1}, {"z", 1, 500}},
		{{"a", 64, 2}, {"b", 1, 1}, {"c", 3, 200}, {"d", 1, 1}},
		{{"pairs", 300, 2}},
		{{"a", 10, 128}, {"b", 10, 127}},
	} {
		name := fmt.Sprint(parts)
		runs := running(t, s, 2) // beside another one
		want := map[string]int{}
		for _, p := range parts {
			for i := range p.steps {
				want[fmt.Sprint(p.prefix, i+1)] = p.attempts
			}
			fillSteps(t, s, runs[0].RunID, p.prefix, p.steps, p.attempts)
		}
		fillSteps(t, s, runs[1].RunID, "one", 1, 1)
		got, err := s.Histories.Latest(t.Context(), []uuid.UUID{runs[0].RunID, runs[1].RunID})
		if err != nil {
			t.Fatal(err)
		}
		if other := got[runs[1].RunID]; len(other) != 1 || other[0].StepID != "one1" {
			t.Errorf("%s: the other run's history is %v", name, other)
		}
		seen := map[string]bool{}
		for _, row := range got[runs[0].RunID] {
			if row.Attempt != want[row.StepID] || seen[row.StepID] || row.RunID != runs[0].RunID {
				t.Errorf("%s: attempt %d of %s, want %d, once", name, row.Attempt, row.StepID, want[row.StepID])
			}
			seen[row.StepID] = true
		}
		if len(seen) != len(want) {
			t.Errorf("%s: %d steps, want %d", name, len(seen), len(want))
		}
	}
}

// What a step costs at each wake of its run does not grow with the number of its attempts.
func TestHistoryReadsFewAttempts(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	fillSteps(t, s, r.RunID, "poll", 3, 10_000)
	fillSteps(t, s, r.RunID, "other", 20, 1)
	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	p := plans.Explain(t, tx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)", history, s.namespace,
		array([]uuid.UUID{r.RunID}), NoLimit)
	if p.Buffers() > 500 || p.MaxRows("step_runs") > 128 {
		t.Errorf("reads %d pages, up to %v rows in a search\n%s", p.Buffers(), p.MaxRows("step_runs"), p.Text)
	}
}
