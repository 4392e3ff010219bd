package driver

import (
	"io"
	"os"
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
		{
			Seed: 1, Verdict: Pass, Seconds: 1800, Faults: map[string]int{"F1 kill": 2}, Pairs: []string{"F1 and F4"},
			Figures: check.Figures{Runs: 10, Ended: 10, KillToClaim: []time.Duration{time.Second}},
		},
		{
			Seed: 2, Verdict: Fail, Seconds: 1800, Faults: map[string]int{"F1 kill": 1}, Pairs: []string{"F1 and F4"},
			Figures: check.Figures{Runs: 5, Ended: 4, KillToClaim: []time.Duration{3 * time.Second}},
			Broken:  []string{"L1"},
		},
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
		"2 rounds in 1h0m0s: 1 FAIL, 1 PASS.", "15 runs, 14 of them over", "longest 3s", "Seeds: 1 2.", "L1 (seed 2)",
		"| F1 kill | 3 |", "| F1 and F4 | 1 |",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
}

// A file without records, or with a line that is none, is refused with its name.
func TestNoRecords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "has no records", "{}\nseed 7\n": "line 2 of"} {
		file := filepath.Join(t.TempDir(), "records")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Summarize(io.Discard, file); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
