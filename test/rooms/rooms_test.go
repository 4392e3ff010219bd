// Package rooms tests that the code keeps to its drawing: each package imports only what the architecture allows (see
// docs/architecture.md), and no commit makes a figure of the drawing worse (see figures.txt).
package rooms

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/source"
)

// shared has the packages that the core of a client may depend on.
var shared = []string{
	"health", "kind", "migrations", "notify", "store", "store/inspect", "internal/batch", "internal/checkup",
	"internal/claims",
	"internal/cron", "internal/details", "internal/duration", "internal/failure", "internal/goroutine",
	"internal/hints", "internal/housekeeping", "internal/outage", "internal/payloads", "internal/plainjson",
	"internal/starts", "internal/text", "internal/timetable", "internal/topics", "internal/valid",
}

// root has the packages that the root may depend on.
var root = append([]string{
	"internal/core", "internal/epochs", "internal/kinds", "internal/limits", "internal/replay",
	"internal/standing", "internal/testhook", "internal/worker",
}, shared...)

// allowed has, for each package, the packages of the module that it may depend on, directly or indirectly.
var allowed = map[string][]string{
	"":              root,
	"admin":         append([]string{"", "topic"}, root...),
	"namespaces":    append([]string{"", "admin", "topic", "store/move"}, root...),
	"alerts":        append([]string{"", "admin", "topic"}, root...),
	"topic":         append([]string{""}, root...),
	"request":       append([]string{""}, root...),
	"value":         append([]string{""}, root...),
	"internal/core": shared,
	"internal/epochs": append([]string{
		"internal/core", "internal/limits", "internal/replay", "internal/standing", "internal/testhook",
	}, shared...),
	"internal/kinds": append([]string{
		"internal/core", "internal/limits", "internal/replay", "internal/standing", "internal/testhook",
	}, shared...),
	// for the command line and the dashboard
	"internal/explain": append([]string{"", "admin", "topic"}, root...),
	"internal/deeds":   append([]string{"", "admin", "topic", "internal/explain"}, root...),
	"doctor":           {"migrations", "store", "store/inspect", "internal/duration", "internal/text"},
	"health":           {},
	"kind":             {"internal/details"},
	"internal/details": {},
	"waits":            {},
	"internal/worker": {
		"kind", "migrations", "notify", "store", "internal/batch", "internal/claims", "internal/details",
		"internal/failure", "internal/goroutine", "internal/hints", "internal/limits", "internal/outage",
		"internal/plainjson", "internal/replay", "internal/standing", "internal/testhook", "internal/text",
	},
	"internal/replay": {
		"kind", "store", "internal/batch", "internal/details", "internal/failure", "internal/goroutine",
		"internal/limits", "internal/outage", "internal/plainjson", "internal/standing", "internal/testhook",
		"internal/text",
	},
	"internal/limits": {
		"store", "internal/batch", "internal/outage", "internal/standing", "internal/testhook", "internal/text",
	},
	"internal/standing": {"store", "internal/outage", "internal/testhook", "internal/text"},
	"internal/claims":   {"store", "internal/text"},
	"internal/housekeeping": {
		"kind", "notify", "store", "internal/batch", "internal/cron", "internal/details", "internal/failure",
		"internal/goroutine", "internal/hints", "internal/outage", "internal/text", "internal/timetable",
	},
	"internal/checkup": {
		"health", "migrations", "store", "store/inspect", "internal/duration", "internal/outage", "internal/text",
	},
	"internal/hints": {
		"notify", "store", "internal/batch", "internal/goroutine", "internal/outage", "internal/text",
	},
	"internal/outage": {"store", "internal/text"},
	"internal/starts": {
		"notify", "store", "internal/batch", "internal/goroutine", "internal/hints", "internal/outage", "internal/text",
	},
	"internal/timetable": {"internal/cron"},
	"internal/topics": {
		"notify", "store", "internal/batch", "internal/goroutine", "internal/hints", "internal/outage", "internal/text",
	},
	"internal/failure":      {"kind", "internal/details", "internal/text"},
	"internal/payloads":     {"kind", "internal/details", "internal/failure", "internal/plainjson", "internal/text"},
	"internal/valid":        {"store", "internal/duration", "internal/text"},
	"internal/duration":     {"internal/text"},
	"store":                 {"internal/pg", "internal/text", "store/internal/clause", "waits"},
	"store/inspect":         {"store"},
	"store/move":            {"internal/pg", "migrations", "store/internal/clause"},
	"internal/pg":           {},
	"notify":                {},
	"migrations":            {},
	"internal/await":        {},
	"internal/campaign":     {},
	"store/internal/clause": {},
	"store/internal/plans": { // of tests
		"store/internal/clause", "internal/campaign", "internal/dbtest", "internal/localpg", "internal/pg",
		"internal/pgbouncer", "migrations",
	},
	"internal/batch":     {},
	"internal/cron":      {},
	"internal/goroutine": {},
	"internal/testhook":  {},
	"internal/text":      {},
	"internal/localpg":   {},
	"internal/pgbouncer": {},
	"internal/pgproxy":   {},
	"internal/plainjson": {},
	"internal/dbtest":    {"migrations", "internal/localpg", "internal/pgbouncer"},
	"internal/release":   {"migrations"},
	"internal/site":      {},
	"internal/testlog":   {"internal/await"},
	"internal/source":    {},
}

// free are the packages of tests and examples: no other package depends on them, and they may depend on every package.
var free = []string{"kagzitest", "internal/kit", "docs", "test", "examples"}

// A ban is an import that must never be. It holds from the day on which the package appears.
type ban struct {
	of   string
	from []string // what the package must not import
	only []string // if any: what it may import of the module
	why  string
}

var never = []ban{
	{of: "store", from: []string{"store/inspect"}, why: "what changes rows needs nothing of what only reads"},
	{of: "internal/claims", only: []string{"store"}, why: "a policy is computed from the store's types"},
	{
		of: "internal/replay", from: []string{"internal/worker", "internal/claims", "internal/hints"},
		why: "a run in memory knows no session",
	},
	{of: "admin", from: []string{"internal/replay", "internal/worker"}, why: "operators go through the store"},
}

func TestPackagesImportWhatTheyMay(t *testing.T) {
	t.Parallel()
	for _, problem := range strays(load(t), allowed) {
		t.Error(problem)
	}
}

func TestPackagesNeverImport(t *testing.T) {
	t.Parallel()
	for _, problem := range banned(load(t), never) {
		t.Error(problem)
	}
}

// strays returns the problems of the dependencies of the root module's packages.
func strays(repo repository, allowed map[string][]string) (problems []string) {
	seen := map[string]bool{}
	for _, p := range repo.Packages {
		name := p.Name()
		if p.Module != "." || isFree(name) {
			continue
		}
		may, known := allowed[name]
		if !known {
			problems = append(problems, fmt.Sprintf("package %q is not in the table: say what it may depend on", name))
		}
		seen[name] = true
		if slices.Contains(may, "store") { // and what the store is made of
			may = slices.Concat(may, allowed["store"])
		}
		for _, dep := range slices.Sorted(maps.Keys(dependencies(repo, p))) {
			if !slices.Contains(may, dep) {
				problem := fmt.Sprintf("package %q depends on %q, which the architecture does not allow", name, dep)
				problems = append(problems, problem)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if !seen[name] {
			problems = append(problems, fmt.Sprintf("the table has package %q, which there is not", name))
		}
	}
	return problems
}

// dependencies returns the names of the packages that p imports, and of those that they import.
func dependencies(repo repository, p *source.Package) map[string]bool {
	all := map[string]bool{}
	var add func(*source.Package)
	add = func(p *source.Package) {
		for _, imported := range repo.Ours(p) {
			if !all[imported.Name()] {
				all[imported.Name()] = true
				add(imported)
			}
		}
	}
	add(p)
	return all
}

// banned returns the imports that must never be.
func banned(repo repository, never []ban) (problems []string) {
	for _, b := range never {
		p := repo.Package(path.Join(".", b.of))
		if p == nil {
			continue
		}
		for _, imported := range repo.Ours(p) {
			name := imported.Name()
			if slices.Contains(b.from, name) || len(b.only) > 0 && !slices.Contains(b.only, name) {
				problems = append(problems, fmt.Sprintf("package %q imports %q. It never may: %s", b.of, name, b.why))
			}
		}
	}
	return problems
}

func isFree(name string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}
