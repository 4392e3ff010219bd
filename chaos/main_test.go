package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory for what a round leaves is empty, or is not there yet: a round does not begin with the ledgers of another
// one.
func TestKeepIsUnused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, fresh := range []string{"", dir, filepath.Join(dir, "new")} {
		if err := unused(fresh); err != nil {
			t.Errorf("-keep %q: %v", fresh, err)
		}
	}
	ledger := filepath.Join(dir, "worker-1.1.ledger")
	if err := os.WriteFile(ledger, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unused(dir); err == nil || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory with a ledger: %v", err)
	}
	if err := unused(ledger); err == nil {
		t.Error("a file is taken for a directory")
	}
}

// A program that is told to keep what it leaves in a used directory ends before it makes anything.
func TestKeepRefusesAUsedDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "chaos.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"-seed", "1", "-plan", "-keep", dir}); code != misuse {
		t.Errorf("exit code %d", code)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%d files, %v", len(all), err)
	}
	if code := run([]string{"-seed", "1", "-plan", "-keep", filepath.Join(dir, "new")}); code != pass {
		t.Errorf("exit code %d", code)
	}
}

// Flags that leave nothing to play, and other words, are refused before a server is started.
func TestFlagsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := filepath.Join(dir, "new")
	for _, wrong := range [][]string{
		{"-duration", "0s"},
		{"-workers", "0"},
		{"-customers", "-1"},
		{"-for", "-1s"},
		{"-faults", "("},
		{"extra"},
		{"-record", filepath.Join(dir, "nowhere", "records")},
	} {
		if code := run(append([]string{"-seed", "1", "-plan", "-keep", keep}, wrong...)); code != misuse {
			t.Errorf("%v: exit code %d", wrong, code)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("%d files, %v", len(all), err)
	}
}

// A plan, and a round that cannot begin, leave no directory.
func TestNothingIsLeftOfAPlan(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for code, args := range map[int][]string{pass: {"-seed", "1", "-plan"}, misuse: {"-seed", "1", "-server", "moon"}} {
		if got := run(args); got != code {
			t.Errorf("%v: exit code %d", args, got)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "kagzi-chaos-*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
