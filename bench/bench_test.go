package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/campaign"
)

func TestMain(m *testing.M) {
	runAsChild()
	os.Exit(m.Run())
}

// light are the engines that each change tries. Temporal's server takes minutes to build.
var light = regexp.MustCompile("^(Kagzi|River.*|DBOS.*|go-workflows.*|raw SQL)$")

// TestEveryFigure tries figures with few runs, in a long campaign every figure of every engine. A figure fails if its
// runs do not all complete.
func TestEveryFigure(t *testing.T) {
	const rows = 10_000
	out := t.TempDir()
	log, err := os.Create(filepath.Join(out, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	all := campaign.Some(figures(&lab{quick: true, rows: rows}), 5)
	var names []string
	for _, f := range all {
		names = append(names, regexp.QuoteMeta(f.group+": "+f.name))
	}
	only := regexp.MustCompile("^(" + strings.Join(names, "|") + ")$")
	cfg := config{run: only, quick: true, rows: rows, out: out, log: log}
	if !campaign.Long {
		cfg.only = light
	}
	if err := measure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	results, err := os.ReadFile(filepath.Join(out, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, s := range f.subjects {
			row := strings.Contains(string(results), "| "+f.name+" | "+s.name+" | ")
			if want := cfg.measures(s.name); row != want {
				t.Errorf("RESULTS.md has a row of %q for %q: %t, want %t", f.name, s.name, row, want)
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
	if err := soak(t.Context(), config{quick: true, out: out}, 2*time.Second, 0); err != nil {
		t.Fatal(err)
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
	if curve, err := os.ReadFile(filepath.Join(out, "soak.svg")); err != nil ||
		!strings.Contains(string(curve), "<polyline") {
		t.Errorf("soak.svg has no curve: %v\n%s", err, curve)
	}
}

// TestCheckSeesEveryRun: a run without its step is found, wherever in the round it was, and so is a missing run.
func TestCheckSeesEveryRun(t *testing.T) {
	checkSeesEveryRun(t, ours, riverTuned, dbosTuned, goWorkflowsTuned, floor)
}

func checkSeesEveryRun(t *testing.T, engines ...engine) {
	l, err := openLab(t.Context(), config{quick: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, e := range engines {
		trial, err := l.newTrial(t.Context(), e, used, 8)
		if err != nil {
			t.Fatal(err)
		}
		defer trial.close()
		for _, steps := range []int{0, 1} {
			if _, err := trial.drain(t.Context(), 5, 10, steps); err != nil {
				t.Fatal(err)
			}
		}
		for _, wrong := range []struct{ runs, steps int }{{10, 1}, {10, 0}, {9, 1}, {11, 1}} {
			if err := trial.check(t.Context(), wrong.runs, wrong.steps); err == nil {
				t.Errorf("%s: no error for %d runs of %d steps", e.name(), wrong.runs, wrong.steps)
			}
		}
		if _, err := trial.drain(t.Context(), 5, 10, 1); err != nil {
			t.Fatal(err)
		}
		trial.completed += 10
		if err := trial.check(t.Context(), 5, 1); err != nil {
			t.Error(err)
		}
	}
}

// TestDisturbedRounds: a round in which others used the processors is repeated, but not for ever.
func TestDisturbedRounds(t *testing.T) {
	others := []float64{0.5, 0.3, 0.1}
	round := func(context.Context) (sample, error) {
		s := sample{values: []float64{1}, cost: cost{Others: others[0]}}
		others = append(others[1:], 0.9)
		return s, nil
	}
	o := outcome{}
	cfg := config{log: os.Stderr}
	for range 2 {
		if err := o.measure(t.Context(), subject{"it", round}, cfg, 2); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.samples) != 2 || o.thrown != 4 || o.noisy != 1 {
		t.Errorf("%d rounds, %d thrown away, %d disturbed; want 2, 4, 1", len(o.samples), o.thrown, o.noisy)
	}
}

func TestProcessorSecondsOfATree(t *testing.T) {
	all := processes{0: {{1, 100}}, 1: {{7, 1}, {8, 2}}, 7: {{9, 4}, {10, 8}}, 10: {{11, 16}}}
	for root, want := range map[int]float64{7: 29, 8: 2, 10: 24, 1: 131, 99: 0} {
		if got := all.tree(root); got != want {
			t.Errorf("tree of %d: %v, want %v", root, got, want)
		}
	}
}

func TestMedianAndSpread(t *testing.T) {
	for want, values := range map[string][]float64{
		"–": {}, "12.3": {12.34}, "2.00 (1.00–1,234,567)": {1234567, 1, 2}, "0.015 (0.010–0.020)": {0.02, 0.01},
	} {
		if got := spread(values); got != want {
			t.Errorf("spread of %v: %q, want %q", values, got, want)
		}
	}
}
