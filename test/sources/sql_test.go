package sources_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// noPrograms are packages that only tests use.
var noPrograms = []string{"internal/dbtest", "internal/kit", "internal/localpg", "internal/pgbouncer", "internal/pgproxy", "internal/testlog", "test", "examples", "docs"}

// serves reports whether a package is part of what users run.
func serves(path string) bool {
	name := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	return !slices.ContainsFunc(noPrograms, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

// The text of every statement is made of constants and of identifiers that pgx has quoted. There are no exceptions.
func TestSQLIsConstant(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	dirs := []string{root, filepath.Join(root, "ui"), filepath.Join(root, "cmd", "kagzi"), filepath.Join(root, "otel")}
	for _, dir := range dirs { // opened, so that the test's result is not cached when one has changed
		if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") {
				_, err = os.ReadFile(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	fset := token.NewFileSet()
	a := newAnalysis(fset, load(t, fset, dirs, serves))
	for _, f := range a.run() {
		t.Errorf("%s: in %s, the SQL %s is not made of constants: send values as arguments, and quote a name that cannot be one by pgx.Identifier", f.position, f.function, f.text)
	}
	if a.calls < 150 {
		t.Errorf("INVALID: only %d calls that send SQL were found", a.calls)
	}
}

// The analysis sees through variables, parameters, fields and functions, and finds what is not constant.
func TestAnalysis(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	a := newAnalysis(fset, load(t, fset, []string{"testdata/sql"}, func(string) bool { return true }))
	var got []string
	for _, f := range a.run() {
		got = append(got, fmt.Sprintf("%s %s", f.function[strings.LastIndexAny(f.function, "./")+1:], f.text))
	}
	slices.Sort(got)
	want := []string{
		`BadExported parameter name`, `badArgument name`, `badAssigned sql`, `badBuilder b.String()`, `badClosure "SELECT " + name`, `badConcat "SELECT '" + name + "'"`, `badField o.sql`,
		`badFormat fmt.Sprintf("SELECT %s", name)`, `badResult <-names`, `sql sender`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// A finding is an expression that is sent as SQL, or reaches such a place, and is not made of constants. So are a parameter that programs
// of others give, and a function that is called where the analysis does not see it.
type finding struct{ position, function, text string }

// sqlIndex returns which parameter of a function is the SQL of a statement, by the names and types that pgx and database/sql use; -1 if
// none is.
func sqlIndex(f *types.Func) int {
	signature := f.Signature()
	if signature.Recv() == nil {
		return -1
	}
	at, ok := map[string]int{
		"Exec": 1, "Query": 1, "QueryRow": 1, "ExecContext": 1, "QueryContext": 1, "QueryRowContext": 1, "Queue": 0, "Prepare": 2, "PrepareContext": 1,
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

// callee returns the function that a call calls; nil for a conversion, a builtin, or a value.
func (p *pkg) callee(call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		out, _ := p.info.Uses[f].(*types.Func)
		return out
	case *ast.SelectorExpr:
		out, _ := p.info.Uses[f.Sel].(*types.Func)
		return out
	}
	return nil
}
