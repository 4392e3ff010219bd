package dbtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Statements returns the SQL statements of the packages in some folders, by the names of their constants, read from the
// source. The statements may use constants of other packages. The packages have no two constants of one name.
func Statements(t testing.TB, others []string, folders ...string) map[string]string {
	t.Helper()
	values, used := map[string]ast.Expr{}, map[string]ast.Expr{}
	readFolders(t, others, used)
	readFolders(t, folders, values)
	maps.Copy(used, values)
	found := map[string]string{}
	for name, e := range values {
		if sql := textOf(e, used); isStatement(sql) {
			found[name] = sql
		}
	}
	return found
}

// readFolders adds the constants of packages to values, and the statements in their functions.
func readFolders(t testing.TB, folders []string, values map[string]ast.Expr) {
	t.Helper()
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
				readStatements(t, filepath.Join(folder, e.Name()), values)
			}
		}
	}
}

// readStatements adds the constants of a file to values, and the statements in its functions.
func readStatements(t testing.TB, name string, values map[string]ast.Expr) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok != token.CONST {
				return true
			}
			for _, spec := range n.Specs {
				s := spec.(*ast.ValueSpec)
				for i, name := range s.Names {
					if i < len(s.Values) {
						values[name.Name] = s.Values[i]
					}
				}
			}
			return false
		case *ast.BinaryExpr: // in a function, which joins a text: its parts are none
			return false
		case *ast.BasicLit: // in a function
			if text, err := strconv.Unquote(n.Value); err == nil && isStatement(text) {
				values[filepath.Base(name)+": "+text] = n
			}
		}
		return true
	})
}

// textOf returns the value of a constant that is a text.
func textOf(e ast.Expr, values map[string]ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return textOf(e.X, values) + textOf(e.Y, values)
	case *ast.SelectorExpr: // of another package
		return textOf(e.Sel, values)
	case *ast.Ident:
		if v, ok := values[e.Name]; ok {
			return textOf(v, values)
		}
	}
	return ""
}

func isStatement(s string) bool {
	for _, verb := range []string{"SELECT", "WITH", "INSERT", "UPDATE", "DELETE"} {
		if strings.HasPrefix(strings.TrimSpace(s), verb+" ") || strings.HasPrefix(strings.TrimSpace(s), verb+"\n") {
			return true
		}
	}
	return false
}
