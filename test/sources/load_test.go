// Package sources_test checks the source: the text of every SQL statement is made from constants.
package sources_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/kagzi/kagzi"

// A pkg is a package of which the source was read, without its tests.
type pkg struct {
	path  string
	files []*ast.File
	info  *types.Info
}

// A listed package is one that go list knows.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// load reads the packages of modules in these folders that serves accepts.
func load(t *testing.T, fset *token.FileSet, dirs []string, serves func(path string) bool) (all []*pkg) {
	t.Helper()
	for _, dir := range dirs {
		var packages []listed
		exports := map[string]string{}
		cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", dir, err)
		}
		for in := json.NewDecoder(strings.NewReader(string(out))); ; {
			var p listed
			if err := in.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			exports[p.ImportPath] = p.Export
			if here, err := filepath.Abs(dir); err == nil && strings.HasPrefix(p.Dir+"/", here+"/") && serves(p.ImportPath) {
				packages = append(packages, p)
			}
		}
		imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
		for _, p := range packages {
			all = append(all, check(t, fset, imports, p))
		}
	}
	return all
}

// check parses a package and finds its types.
func check(t *testing.T, fset *token.FileSet, imports types.Importer, p listed) *pkg {
	t.Helper()
	out := &pkg{path: p.ImportPath, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out.files = append(out.files, file)
	}
	if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, out.files, out.info); err != nil {
		t.Fatal(err)
	}
	return out
}
