//go:build long

package main

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
