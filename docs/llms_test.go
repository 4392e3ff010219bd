package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write llms.txt")

// sections are the parts of llms.txt, each with its pages.
var sections = []struct {
	title string
	pages []string
}{
	{"Begin", []string{"tutorial", "skills/kagzi/SKILL", "compare", "glossary"}},
	{"Write workflows", []string{
		"workflows", "steps", "doubt", "signals", "requests", "values", "children", "compensation", "batches", "topics",
		"consumers", "continue", "limits", "flow", "schedules", "interceptors", "testing", "versions",
	}},
	{"Operate", []string{
		"operating", "runs", "waiting", "repairing", "pauses", "health", "alerts", "hanging", "crashes", "workers",
		"namespaces", "statistics", "monitoring", "performance", "retention", "audit", "security", "database",
		"poolers", "distributed", "upgrading",
	}},
	{"Change Kagzi", []string{"architecture"}},
}

var opening = regexp.MustCompile(`(?s)^(?:---\n.*?\n---\n\n)?# (.+?)\n\nThis page is for (.+?)\.\s`)

// llms.txt at the root leads programs that read for people, as README.md and operating.md lead people: each page with
// the words that it says of itself.
func TestLLMs(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	want.WriteString("# Kagzi\n\n> Kagzi makes Go functions durable: a workflow is an ordinary function made of " +
		"named steps, and Postgres records each step's\n> result. It is a library: there is no server.\n\n" +
		"[README](README.md) has a complete program, the guarantees, and when not to use it.\n")
	listed := []string{}
	for _, s := range sections {
		fmt.Fprintf(&want, "\n## %s\n\n", s.title)
		for _, page := range s.pages {
			listed = append(listed, page+".md")
			m := opening.FindStringSubmatch(read(t, page+".md"))
			if m == nil {
				t.Errorf("%s.md does not begin as the others", page)
				continue
			}
			who := strings.Join(strings.Fields(m[2]), " ")
			fmt.Fprintf(&want, "- [%s](docs/%s.md): for %s\n", m[1], page, who)
		}
	}
	if found, _ := filepath.Glob("*.md"); len(found) == 0 {
		t.Error("no page was found")
	} else {
		for _, page := range found {
			if !slices.Contains(listed, page) {
				t.Errorf("no section has %s", page)
			}
		}
	}
	const file = "../llms.txt"
	if *update {
		if err := os.WriteFile(file, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, file); got != want.String() {
		t.Errorf("llms.txt is not what the pages say: go test ./docs -run TestLLMs -update")
	}
}
