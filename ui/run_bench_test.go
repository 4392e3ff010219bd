package ui

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
)

// Random digits, which Postgres cannot make much smaller.
const insertSteps = `
	INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, position,
		run_attempt, first_attempt, output, started_at, finished_at)
	SELECT $1, 'page ' || n, 1, 'default', 'COMPLETED', 'FUNCTION', n, 1, 1,
		convert_to('"' || (SELECT string_agg(md5(n::text || '.' || i), '')
			FROM generate_series(1, $2::int / 32) i) || '"', 'UTF8'),
		now() - interval '1 hour' + n * interval '1 second', now() - interval '1 hour' + n * interval '2 seconds'
	FROM generate_series(1, 2000) n`

// BenchmarkStepsOfALongRun measures how long the steps of a run of 2,000 steps take to read: with all payloads, with
// none, and with those of one page.
//
//	BENCH_RUNS=1000 go test -run '^$' -bench StepsOfALongRun .
func BenchmarkStepsOfALongRun(b *testing.B) {
	pool, client := benchNamespace(b)
	runs, err := client.List(b.Context(), kagzi.RunFilter{Limit: 2})
	if err != nil || len(runs) < 2 {
		b.Fatal(len(runs), err)
	}
	var page []string
	for n := range stepsPerPage {
		page = append(page, fmt.Sprintf("page %d", n+1))
	}
	for i, size := range []int{256, 8 << 10} {
		if _, err := pool.Exec(b.Context(), insertSteps, runs[i].ID, size); err != nil {
			b.Fatal(err)
		}
		for _, c := range []struct {
			name   string
			filter kagzi.StepFilter
		}{
			{"all", kagzi.StepFilter{}},
			{"no-payloads", kagzi.StepFilter{NoPayloads: true}},
			{"page", kagzi.StepFilter{Steps: page}},
		} {
			b.Run(fmt.Sprintf("bytes=%d/%s", size, c.name), func(b *testing.B) {
				for b.Loop() {
					if _, err := client.Steps(b.Context(), runs[i].ID, c.filter); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
