package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	runAsChild()
	os.Exit(m.Run())
}

// TestEveryFigure tries every figure with few runs. A figure fails if its runs do not all complete.
func TestEveryFigure(t *testing.T) {
	out := t.TempDir()
	log, err := os.Create(filepath.Join(out, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := measure(t.Context(), config{run: regexp.MustCompile(""), quick: true, out: out, log: log}); err != nil {
		fatal(t, err)
	}
	results, err := os.ReadFile(filepath.Join(out, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures(&lab{quick: true}) {
		for _, s := range f.subjects {
			if !strings.Contains(string(results), "| "+f.name+" | "+s.name+" | ") {
				t.Errorf("RESULTS.md has no row of %q for %q", f.name, s.name)
			}
		}
		if plot, err := os.ReadFile(filepath.Join(out, plotName(f.group))); err != nil {
			t.Error(err)
		} else if !strings.HasSuffix(string(plot), "</svg>\n") {
			t.Errorf("the plot of %q is incomplete", f.group)
		}
	}
}

func TestSoak(t *testing.T) {
	out := t.TempDir()
	if err := soak(t.Context(), config{quick: true, out: out}, 2*time.Second); err != nil {
		fatal(t, err)
	}
	lines, err := os.ReadFile(filepath.Join(out, "soak.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{",true,", ",false,", ",workflow_runs,"} {
		if !strings.Contains(string(lines), want) {
			t.Errorf("soak.csv has no line with %q:\n%s", want, lines)
		}
	}
}

// fatal ends the test: it is skipped if Postgres was installed without its extensions.
func fatal(t *testing.T, err error) {
	t.Helper()
	if strings.Contains(err.Error(), `could not access file "pg_stat_statements"`) {
		t.Skip(err)
	}
	t.Fatal(err)
}
