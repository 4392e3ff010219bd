package driver

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
)

// TestRecords adds up two rounds.
func TestRecords(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "records")
	for _, r := range []Record{
		{Seed: 1, Verdict: Pass, Seconds: 1800, Faults: map[string]int{"F1 kill": 2}, Pairs: []string{"F1 and F4"}, Figures: check.Figures{Runs: 10, Ended: 10, KillToClaim: []time.Duration{time.Second}}},
		{Seed: 2, Verdict: Fail, Seconds: 1800, Faults: map[string]int{"F1 kill": 1}, Pairs: []string{"F1 and F4"}, Figures: check.Figures{Runs: 5, Ended: 4, KillToClaim: []time.Duration{3 * time.Second}}, Broken: []string{"L1"}},
	} {
		if err := r.Append(file); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	if err := Summarize(&said, file); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 rounds of 1.0 hours", "FAIL:1", "PASS:1", "15 runs, 14 of them over", "longest 3s", "Seeds: 1 2.", "L1 (seed 2)", "| F1 kill | 3 |", "| F1 and F4 | 1 |",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
}
