package checkup_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// calls are names of Go in a text for people: operators read the details of a report, too.
var calls = regexp.MustCompile(`"[^"` + "`" + `]*\b(Client|kagzi|doctor|WorkerConfig|CoordinatorConfig)\.[A-Z][^"` +
	"`" + `]*"`)

func TestDetailsNameNoGo(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d files: %v", len(files), err)
	}
	for _, file := range files {
		if matched, _ := filepath.Match("*_test.go", file); matched {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range calls.FindAll(source, -1) {
			t.Errorf("%s has the text %s: say what to do without the names of Go", file, found)
		}
	}
}
