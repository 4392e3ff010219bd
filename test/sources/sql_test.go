// Package sources_test checks the source: the text of every SQL statement is made from constants.
package sources_test

import (
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/source"
)

// programs are the modules of what users run.
var programs = []string{".", "ui", "cmd/kagzi", "otel"}

// noPrograms are packages that only tests use.
var noPrograms = []string{
	"internal/dbtest", "internal/kit", "internal/localpg", "internal/pgbouncer", "internal/pgproxy", "internal/source",
	"internal/testlog", "store/internal/plans", "test", "examples", "docs",
}

// serves reports whether a package is part of what users run.
func serves(p *source.Package) bool {
	within := func(folder string) bool { return strings.HasPrefix(p.Folder+"/", folder+"/") }
	return slices.Contains(programs, p.Module) && !slices.ContainsFunc(noPrograms, within)
}

// load reads the packages of a repository that serves accepts. It reads every file, so that the result of a test is not
// taken from the cache when one has changed.
func load(t *testing.T, dir string, serves func(*source.Package) bool) (*source.Tree, []*source.Package) {
	t.Helper()
	tree, err := source.Read(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Check(dir, serves); err != nil {
		t.Fatal(err)
	}
	return tree, slices.DeleteFunc(tree.Packages, func(p *source.Package) bool { return !serves(p) })
}

// The text of every statement is made of constants and of identifiers that pgx has quoted. There are no exceptions.
func TestSQLIsConstant(t *testing.T) {
	t.Parallel()
	a := newAnalysis(load(t, "../..", serves))
	for _, f := range a.run() {
		t.Errorf("%s: in %s, the SQL %s is not made of constants: send values as arguments, and quote a name that "+
			"cannot be one by pgx.Identifier", f.position, f.function, f.text)
	}
	if a.calls < 150 {
		t.Errorf("INVALID: only %d calls that send SQL were found", a.calls)
	}
}

// The analysis sees through variables, parameters, fields and functions, and finds texts that are not constant.
func TestAnalysis(t *testing.T) {
	t.Parallel()
	a := newAnalysis(load(t, "testdata/sql", func(*source.Package) bool { return true }))
	var got []string
	for _, f := range a.run() {
		got = append(got, fmt.Sprintf("%s %s", f.function[strings.LastIndexAny(f.function, "./")+1:], f.text))
	}
	slices.Sort(got)
	want := []string{
		`BadExported parameter name`, `badArgument name`, `badAssigned sql`, `badBuilder b.String()`,
		`badClosure "SELECT " + name`, `badConcat "SELECT '" + name + "'"`, `badField o.sql`,
		`badFormat fmt.Sprintf("SELECT %s", name)`, `badResult <-names`, `kagzi sender`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// A finding is an expression that is sent as SQL, or reaches such a place, and is not made of constants. So are a
// parameter that programs of others give, and a function that is called where the analysis does not see it.
type finding struct{ position, function, text string }

// sqlIndex returns which parameter of a function is the SQL of a statement, by the names and types that pgx and
// database/sql use; -1 if none is.
func sqlIndex(f *types.Func) int {
	signature := f.Signature()
	if signature.Recv() == nil {
		return -1
	}
	at, ok := map[string]int{
		"Exec": 1, "Query": 1, "QueryRow": 1, "ExecContext": 1, "QueryContext": 1, "QueryRowContext": 1, "Queue": 0,
		"Prepare": 2, "PrepareContext": 1,
		"ExecParams": 1, "ExecPrepared": -1,
	}[f.Name()]
	params := signature.Params()
	if !ok || at < 0 || params.Len() <= at {
		return -1
	}
	if basic, ok := params.At(at).Type().(*types.Basic); !ok || basic.Kind() != types.String {
		return -1
	}
	if f.Name() == "Queue" && !signature.Variadic() {
		return -1
	}
	return at
}
