package ui

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi/health"
)

// What a check has found stands together, with the worst check first.
func TestFindingsStandTogether(t *testing.T) {
	v := overview{Report: health.Report{Checks: []health.Check{
		{Name: "schema", Status: health.Healthy, Detail: "fine"},
		{Name: "pauses", Status: health.Degraded, Detail: "queue a"},
		{Name: "workers", Status: health.Unhealthy, Detail: "none"},
		{Name: "pauses", Status: health.Unhealthy, Detail: "queue b"},
		{Name: "pauses", Status: health.Degraded, Detail: "queue c"},
	}}}
	v.find()
	got := ""
	for _, f := range v.Wrong {
		got += fmt.Sprintln(f.Status, f.Title, f.Details)
	}
	const want = "unhealthy Workers [none]\nunhealthy Pauses [queue b queue a queue c]\n"
	if got != want || len(v.Fine) != 1 {
		t.Errorf("the findings are\n%sand %d checks passed, not\n%sand 1", got, len(v.Fine), want)
	}
}
