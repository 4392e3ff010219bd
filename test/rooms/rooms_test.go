// Package rooms tests that each package of the module imports only what the architecture allows, and that the files of a
// package form layers: see docs/architecture.md.
package rooms

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kagzi/kagzi"

// root has the packages that the root may depend on.
var root = []string{
	"health", "kind", "migrations", "notify", "store", "internal/batch", "internal/checkup", "internal/cron", "internal/duration", "internal/engine", "internal/failure",
	"internal/goroutine", "internal/hints", "internal/housekeeping", "internal/outage", "internal/plainjson", "internal/starts", "internal/testhook", "internal/text",
	"internal/timetable", "internal/topics",
}

// allowed has, for each package, the packages of the module that it may depend on, directly or indirectly.
var allowed = map[string][]string{
	"":                 root,
	"internal/explain": append([]string{""}, root...), // a user of the API, for the command line and the dashboard
	"doctor":           {"migrations", "store", "internal/duration", "internal/text"},
	"health":           {},
	"kind":             {},
	"internal/engine": {
		"kind", "migrations", "notify", "store", "internal/batch", "internal/failure", "internal/goroutine", "internal/hints", "internal/outage", "internal/plainjson", "internal/testhook",
		"internal/text",
	},
	"internal/housekeeping": {
		"kind", "notify", "store", "internal/batch", "internal/cron", "internal/failure", "internal/goroutine", "internal/hints", "internal/outage", "internal/text", "internal/timetable",
	},
	"internal/checkup":   {"health", "migrations", "store", "internal/duration", "internal/outage", "internal/text"},
	"internal/hints":     {"notify", "store", "internal/batch", "internal/goroutine", "internal/outage", "internal/text"},
	"internal/outage":    {"store", "internal/text"},
	"internal/starts":    {"notify", "store", "internal/batch", "internal/goroutine", "internal/hints", "internal/outage", "internal/text"},
	"internal/timetable": {"internal/cron"},
	"internal/topics":    {"notify", "store", "internal/batch", "internal/goroutine", "internal/hints", "internal/outage", "internal/text"},
	"internal/failure":   {"kind", "internal/text"},
	"internal/duration":  {"internal/text"},
	"store":              {"internal/text"},
	"notify":             {},
	"migrations":         {},
	"internal/await":     {},
	"internal/campaign":  {},
	"internal/batch":     {},
	"internal/cron":      {},
	"internal/goroutine": {},
	"internal/testhook":  {},
	"internal/text":      {},
	"internal/localpg":   {},
	"internal/pgbouncer": {},
	"internal/pgproxy":   {},
	"internal/plainjson": {},
	"internal/source":    {},
	"internal/dbtest":    {"migrations", "internal/localpg", "internal/pgbouncer"},
	"internal/testlog":   {"internal/await"},
}

// free are the packages of tests and examples: no other package depends on them, and they may depend on every package.
var free = []string{"kagzitest", "internal/kit", "docs", "test", "examples"}

func TestPackagesImportWhatTheyMay(t *testing.T) {
	t.Parallel()
	readSources(t)
	seen := map[string]bool{}
	for _, p := range listed(t, "-json=ImportPath,Deps") {
		name, ours := cut(p.ImportPath)
		if !ours || isFree(name) {
			continue
		}
		may, known := allowed[name]
		if !known {
			t.Errorf("package %q is not in the table: say what it may depend on", name)
		}
		seen[name] = true
		for _, dep := range p.Deps {
			if dep, ours := cut(dep); ours && !slices.Contains(may, dep) {
				t.Errorf("package %q depends on %q, which the architecture does not allow", name, dep)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if !seen[name] {
			t.Errorf("the table has package %q, which there is not", name)
		}
	}
}

// readSources opens every source file, so that the result of the test is not taken from the cache when one has changed.
func readSources(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// cut returns the path of a package within the module, and whether it belongs to the module.
func cut(path string) (name string, ours bool) {
	name, ours = strings.CutPrefix(path, module)
	return strings.TrimPrefix(name, "/"), ours
}

func isFree(name string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}
