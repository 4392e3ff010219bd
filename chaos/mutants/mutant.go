package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A Mutant is a mistake that a good engineer could make in Kagzi.
type Mutant struct {
	Name   string
	Breaks string // the promise that does not hold any more
	Edits  []Edit // none: Kagzi as it is
	Shown  Shown
}

// An Edit replaces a text of a file by another. The text occurs once.
type Edit struct {
	File     string // of the root module
	Old, New string
}

// Shown says what must show the mistake: rounds of chaos, or tests.
type Shown struct {
	Seeds    []uint64 // of rounds, tried until one fails
	Duration time.Duration
	Faults   string // a regular expression
	Flags    string // more flags of chaos
	By       string // a regular expression for the violations, as chaos names them: "S6|L1"

	Test string // instead of rounds: the arguments of go test, in the root module
}

func (s Shown) String() string {
	if s.Test != "" {
		return "go test " + s.Test
	}
	return fmt.Sprintf("seeds %d, %s: %s", s.Seeds, s.line(), s.By)
}

// args returns the flags of a round, without its seed.
func (s Shown) args() []string {
	args := []string{"-duration", s.Duration.String()}
	if s.Faults != "" {
		args = append(args, "-faults", s.Faults)
	}
	return append(args, strings.Fields(s.Flags)...)
}

// line returns the flags of a round as they are written in a shell.
func (s Shown) line() string {
	args := s.args()
	for i, arg := range args {
		if arg == s.Faults {
			args[i] = "'" + arg + "'"
		}
	}
	return strings.Join(args, " ")
}

// control returns what must pass, if the rounds or the tests of s have killed a mutant: the same without a mistake.
func (s Shown) control() Mutant {
	if s.Test != "" {
		return Mutant{Name: "none: go test " + s.Test, Breaks: "nothing", Shown: s}
	}
	s.By = ""
	return Mutant{Name: fmt.Sprintf("none: seeds %d, %s", s.Seeds, s.line()), Breaks: "nothing", Shown: s}
}

// rootDir returns the directory of the root module.
func rootDir() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kagzi/kagzi").Output()
	if err != nil {
		return "", fmt.Errorf("find the root module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// anySpace finds text with any space where it has some, so that a mutant does not depend on where lines are folded.
func anySpace(text string) *regexp.Regexp {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	return regexp.MustCompile(strings.Join(words, `\s+`))
}

// overlay writes the edited files into dir, and the JSON with which go build takes them instead of those of root. It
// returns the path of the JSON.
func overlay(root, dir string, edits []Edit) (string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, filepath.FromSlash(e.File))
		text, ok := texts[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		found := anySpace(e.Old).FindAllStringIndex(text, -1)
		if n := len(found); n != 1 {
			return "", fmt.Errorf("%s has the text %q %d times: correct the mutant", e.File, e.Old, n)
		}
		texts[path] = text[:found[0][0]] + e.New + text[found[0][1]:]
	}
	replace := map[string]string{}
	for path, text := range texts {
		edited := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, root+string(filepath.Separator)),
			string(filepath.Separator), "_"))
		if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = edited
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}
