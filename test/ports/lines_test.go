package ports_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// row is a row of the table in doc.go.
var row = regexp.MustCompile(`(?m)^//\t(\S+) +(\d+) +(Test\w+) +(\d+)$`)

// TestLines compares the table in doc.go, and the comments of the tests, with their code.
func TestLines(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	have, comments := samples(t)
	together := 0
	for _, n := range have {
		together += n
	}
	if !regexp.MustCompile(fmt.Sprintf(`together +\d+ +%d\n`, together)).Match(doc) {
		t.Errorf("doc.go: together they have %d lines", together)
	}
	for _, r := range row.FindAllStringSubmatch(string(doc), -1) {
		if want := fmt.Sprint(have[r[3]]); r[4] != want {
			t.Errorf("doc.go: %s has %s lines: change %s", r[3], want, r[4])
		}
		text := fmt.Sprintf("samples-go/%s, %s lines; here %s.", r[1], r[2], r[4])
		if !strings.Contains(comments, text) {
			t.Errorf("no comment says %q", text)
		}
	}
	for name := range have {
		if !strings.Contains(string(doc), name) {
			t.Errorf("doc.go has no row for %s", name)
		}
	}
}

// samples returns the lines of each sample, and all comments as one line.
func samples(t *testing.T) (have map[string]int, comments string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	have = map[string]int{}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file != "main_test.go" && file != "lines_test.go" {
			comments += count(string(code), have)
		}
	}
	return have, comments
}

// count adds the lines of the samples of a file, and returns its comments. What stands between the end of the test
// before and the end of its own test belongs to a sample.
func count(code string, have map[string]int) (comments string) {
	_, code, _ = strings.Cut(code, "\n)\n") // behind the imports
	name, lines := "", 0
	for line := range strings.Lines(code) {
		comment, is := strings.CutPrefix(strings.TrimSpace(line), "//")
		if is {
			comments += comment
		} else if comment != "" {
			lines++
		}
		if rest, ok := strings.CutPrefix(line, "func Test"); ok {
			name = "Test" + rest[:strings.IndexByte(rest, '(')]
		}
		if line == "}\n" && name != "" {
			have[name], name, lines = lines, "", 0
		}
	}
	return comments
}
