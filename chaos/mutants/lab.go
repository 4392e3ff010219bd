package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A lab tries mutants.
type lab struct {
	dir     string // for binaries, edited files, and what the rounds print
	out     io.Writer
	control bool // also play each round and test that has killed a mutant without the mistake, once
}

// An outcome is the fate of a mutant.
type outcome struct {
	good   bool // it was killed, or, without a mistake, everything passed
	text   string
	killer *Shown // the round, or the tests, that killed it
}

// slowest is how long a round may take longer than its faults: everything that hangs has been found by then.
const slowest = 4 * time.Minute

// unusual are the characters of a name that are not those of a file's.
var unusual = regexp.MustCompile(`[^A-Za-z0-9]+`)

// try builds a mutant and shows it to the rounds or tests that must kill it.
func (l *lab) try(ctx context.Context, m Mutant) outcome {
	dir := filepath.Join(l.dir, unusual.ReplaceAllString(m.Name, "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return outcome{text: "not tried: " + err.Error()}
	}
	root, err := rootDir()
	if err != nil {
		return outcome{text: "not tried: " + err.Error()}
	}
	file, err := overlay(root, dir, m.Edits)
	if err != nil {
		return outcome{text: "not tried: " + err.Error()}
	}
	if m.Shown.Test != "" {
		return test(ctx, root, dir, file, m)
	}
	bin := filepath.Join(dir, "chaos")
	if text, err := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", bin,
		"github.com/kagzi/kagzi/chaos").CombinedOutput(); err != nil {
		return outcome{text: fmt.Sprintf("not built: %v: %s", err, text)}
	}
	defer os.Remove(bin)
	var all []string
	for _, seed := range m.Shown.Seeds {
		r, err := play(ctx, bin, dir, seed, m.Shown)
		if err != nil {
			return outcome{text: "not played: " + err.Error()}
		}
		all = append(all, r.text)
		if r.done(m.Shown.By) {
			killer := m.Shown
			killer.Seeds = []uint64{seed}
			return outcome{good: len(m.Edits) > 0, text: strings.Join(all, "; "), killer: &killer}
		}
	}
	if len(m.Edits) == 0 {
		return outcome{good: true, text: strings.Join(all, "; ")}
	}
	return outcome{text: "**SURVIVED**: " + strings.Join(all, "; ")}
}

// test shows the mutant to tests, which must fail.
func test(ctx context.Context, root, dir, overlay string, m Mutant) outcome {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-overlay", overlay},
		strings.Fields(m.Shown.Test)...)...)
	cmd.Dir = root
	text, err := cmd.CombinedOutput()
	if err := os.WriteFile(filepath.Join(dir, "test.txt"), text, 0o600); err != nil {
		return outcome{text: "not tried: " + err.Error()}
	}
	took := time.Since(began).Round(time.Second)
	failed := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindSubmatch(text)
	switch {
	case err == nil && len(m.Edits) == 0:
		return outcome{good: true, text: fmt.Sprintf("the tests pass, %v", took)}
	case err == nil:
		return outcome{text: fmt.Sprintf("**SURVIVED** `go test %s`, %v", m.Shown.Test, took)}
	case failed == nil || len(m.Edits) == 0:
		return outcome{text: fmt.Sprintf("`go test %s`: %v", m.Shown.Test, err)}
	}
	return outcome{good: true, text: fmt.Sprintf("killed by %s, %v", failed[1], took), killer: &m.Shown}
}

// A played is a round that was played.
type played struct {
	code  int
	found []string // the names of the violations
	text  string
}

// done reports whether the round failed by one of the violations. Without a mistake any failure is one.
func (p *played) done(by string) bool {
	re := regexp.MustCompile("^(" + by + ")$")
	return p.code == 1 && (by == "" || slices.ContainsFunc(p.found, re.MatchString))
}

// violation finds the name of a violation in a line of chaos: "FAIL: S6: run …". The statements that look at the tables
// have a sentence for each: "FAIL: a sleep never ends early: run …".
var violation = regexp.MustCompile(`(?m)^FAIL: ([^:\n]+)`)

// play plays one round.
func play(ctx context.Context, bin, dir string, seed uint64, s Shown) (*played, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Duration+slowest)
	defer cancel()
	keep := filepath.Join(dir, fmt.Sprint("seed-", seed))
	// an earlier round's ledgers would be evidence, too
	if err := cmp.Or(os.RemoveAll(keep), os.MkdirAll(keep, 0o755)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"-seed", fmt.Sprint(seed), "-keep", keep}, s.args()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its server and its workers
	cmd.WaitDelay = 30 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err := os.WriteFile(filepath.Join(keep, "chaos.txt"), out.Bytes(), 0o600); err != nil {
		return nil, err
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return nil, err
	}
	p := &played{code: cmd.ProcessState.ExitCode()}
	for _, f := range violation.FindAllStringSubmatch(out.String(), -1) {
		name := f[1]
		if strings.HasPrefix(name, "seed ") { // the verdict
			continue
		}
		if !slices.Contains(p.found, name) {
			p.found = append(p.found, name)
		}
	}
	verdict := map[int]string{0: "PASS", 1: "FAIL", 2: "INVALID"}[p.code]
	if verdict == "" {
		verdict = fmt.Sprint("exit code ", p.code)
	}
	p.text = fmt.Sprintf("seed %d %s, %v", seed, strings.TrimSpace(verdict+" "+strings.Join(p.found, ", ")),
		time.Since(began).Round(time.Second))
	return p, nil
}
