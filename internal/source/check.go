package source

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Check finds the types of the packages that need accepts, and of those that they import. dir is where the repository
// is on disk. Of packages of others, it reads what the compiler declares: go list compiles them, once, and nothing of
// ours.
func (t *Tree) Check(dir string, need func(*Package) bool) error {
	wanted := map[*Package]bool{}
	for _, p := range t.Packages {
		if need(p) {
			t.want(p, wanted)
		}
	}
	exports := map[string]string{}
	for _, module := range t.Modules {
		if err := t.listExports(filepath.Join(dir, filepath.FromSlash(module)), module, wanted, exports); err != nil {
			return err
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	c := checker{t, importer.ForCompiler(t.Fset, "gc", open)}
	for _, p := range t.Packages {
		if wanted[p] {
			if _, err := c.check(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// want adds a package, and those of the repository that it imports, to wanted.
func (t *Tree) want(p *Package, wanted map[*Package]bool) {
	if wanted[p] {
		return
	}
	wanted[p] = true
	for _, imported := range t.Ours(p) {
		t.want(imported, wanted)
	}
}

// listExports adds the files with the compiled declarations of what the module's packages import from others.
func (t *Tree) listExports(dir, module string, wanted map[*Package]bool, exports map[string]string) error {
	args := []string{"list", "-export", "-f", "{{.ImportPath}} {{.Export}}"}
	for p := range wanted {
		if p.Module != module {
			continue
		}
		for _, name := range p.Imports() {
			_, ours := folderOf(name)
			if !ours && name != "unsafe" && !slices.Contains(args, name) && exports[name] == "" {
				args = append(args, name)
			}
		}
	}
	if len(args) == 4 {
		return nil
	}
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list in %s: %w\n%s", dir, err, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	return nil
}

// A checker finds types. It is the importer of what it checks.
type checker struct {
	tree   *Tree
	others types.Importer
}

// Import returns a package of the repository from its source, and others from what the compiler declared.
func (c checker) Import(path string) (*types.Package, error) {
	if folder, ours := folderOf(path); ours && c.tree.byFolder[folder] != nil {
		return c.check(c.tree.byFolder[folder])
	}
	return c.others.Import(path)
}

func (c checker) check(p *Package) (*types.Package, error) {
	if p.Types != nil {
		return p.Types, nil
	}
	p.Info = &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	var files []*ast.File
	for _, f := range p.Files {
		files = append(files, f.Syntax)
	}
	var err error
	p.Types, err = (&types.Config{Importer: c}).Check(p.Path(), c.tree.Fset, files, p.Info)
	return p.Types, err
}

// Callee returns the function that a call calls; nil for a conversion, a builtin, or a value.
func (p *Package) Callee(call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		out, _ := p.Info.Uses[f].(*types.Func)
		return out
	case *ast.SelectorExpr:
		out, _ := p.Info.Uses[f.Sel].(*types.Func)
		return out
	}
	return nil
}
