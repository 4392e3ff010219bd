package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/chaos/internal/driver"
	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// Each text to replace occurs once, and each name does.
func TestMutantsAreOfThisCode(t *testing.T) {
	t.Parallel()
	root := mustRoot(t)
	names := map[string]bool{}
	for _, m := range Mutants() {
		if names[m.Name] {
			t.Errorf("two mutants have the name %q", m.Name)
		}
		names[m.Name] = true
		if m.Breaks == "" || len(m.Edits) == 0 {
			t.Errorf("mutant %q breaks %q by %d edits", m.Name, m.Breaks, len(m.Edits))
		}
		if _, err := overlay(root, t.TempDir(), m.Edits); err != nil {
			t.Errorf("mutant %q: %v", m.Name, err)
		}
	}
}

// Rounds can be planned, and tests can be run, that are to kill a mutant.
func TestMutantsAreShownToSomething(t *testing.T) {
	t.Parallel()
	for _, m := range Mutants() {
		s := m.Shown
		if s.Test != "" {
			continue
		}
		faults, err := regexp.Compile(s.Faults)
		if err != nil {
			t.Errorf("mutant %q: %v", m.Name, err)
			continue
		}
		for _, seed := range s.Seeds {
			if _, err := driver.Make(driver.Options{Seed: seed, Duration: s.Duration, Faults: faults}, fault.All()); err != nil {
				t.Errorf("mutant %q: %v", m.Name, err)
			}
		}
		if _, err := regexp.Compile(s.By); err != nil || s.By == "" || len(s.Seeds) == 0 {
			t.Errorf("mutant %q is killed by %q in %d rounds: %v", m.Name, s.By, len(s.Seeds), err)
		}
	}
}

// Each mutant compiles. Those that change different places are compiled together, because that is much faster.
func TestMutantsCompile(t *testing.T) {
	t.Parallel()
	root := mustRoot(t)
	for left := Mutants(); len(left) > 0; {
		var together, later []Mutant
		var edits []Edit
		for _, m := range left {
			if _, err := overlay(root, t.TempDir(), slices.Concat(edits, m.Edits)); err == nil {
				together, edits = append(together, m), slices.Concat(edits, m.Edits)
			} else {
				later = append(later, m)
			}
		}
		if len(together) == 0 {
			t.Fatalf("mutant %q does not fit this code", left[0].Name)
		}
		compile(t, root, together, edits)
		left = later
	}
}

func compile(t *testing.T, root string, mutants []Mutant, edits []Edit) {
	t.Helper()
	file, err := overlay(root, t.TempDir(), edits)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, e := range edits {
		packages["./"+filepath.ToSlash(filepath.Dir(e.File))] = true
	}
	cmd := exec.Command("go", append([]string{"build", "-overlay", file}, slices.Sorted(maps.Keys(packages))...)...)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		var names []string
		for _, m := range mutants {
			names = append(names, m.Name)
		}
		t.Errorf("%v\n%s\none of: %s", err, text, strings.Join(names, "; "))
	}
}

func mustRoot(t *testing.T) string {
	t.Helper()
	root, err := rootDir()
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "go.mod"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}
