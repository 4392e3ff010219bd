package main

import (
	"os"
	"path/filepath"
	"regexp"
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
			if _, err := driver.Make(driver.Options{Seed: seed, Duration: s.Duration, Faults: faults},
				fault.All()); err != nil {
				t.Errorf("mutant %q: %v", m.Name, err)
			}
		}
		if _, err := regexp.Compile(s.By); err != nil || s.By == "" || len(s.Seeds) == 0 {
			t.Errorf("mutant %q is killed by %q in %d rounds: %v", m.Name, s.By, len(s.Seeds), err)
		}
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
