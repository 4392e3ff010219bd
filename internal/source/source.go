// Package source reads the Go code of all modules of the repository, for the tests that hold it to rules.
package source

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Module is the path of the root module. The path of each other module is the path of its folder below it.
const Module = "github.com/kagzi/kagzi"

// A Tree is the source of all modules.
type Tree struct {
	Fset     *token.FileSet
	Modules  []string // their folders, "." for the root
	Packages []*Package
	Files    []*File // all Go files, those of tests, of testdata and of other systems included

	fsys     fs.FS
	byFolder map[string]*Package
}

// A Package is what one folder has of a program for this system, without tests. Types and Info are nil before Check.
type Package struct {
	Folder string // within the repository, "." for the root
	Module string // its module's folder
	Files  []*File
	Types  *types.Package
	Info   *types.Info
}

// A File is a Go file. Syntax is nil unless the file belongs to a package.
type File struct {
	Path   string // within the repository
	Module string
	Text   []byte
	Syntax *ast.File
}

// Read reads a repository, and parses the files of its packages.
func Read(fsys fs.FS) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet(), fsys: fsys, byFolder: map[string]*Package{}}
	if err := t.walk(); err != nil {
		return nil, err
	}
	slices.Sort(t.Modules)
	for _, f := range t.Files {
		f.Module = t.moduleOf(f.Path)
		if err := t.add(f); err != nil {
			return nil, err
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(t.byFolder)) {
		t.Packages = append(t.Packages, t.byFolder[folder])
	}
	return t, nil
}

// walk finds the modules and reads the Go files.
func (t *Tree) walk() error {
	return fs.WalkDir(t.fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.Name() == "go.mod" && !isData(name):
			t.Modules = append(t.Modules, path.Dir(name))
		case !entry.IsDir() && path.Ext(name) == ".go":
			text, err := fs.ReadFile(t.fsys, name)
			t.Files = append(t.Files, &File{Path: name, Text: text})
			return err
		}
		return nil
	})
}

// isData reports whether a file is data of a test.
func isData(name string) bool { return strings.Contains("/"+name, "/testdata/") }

// IsTest reports whether a file belongs to tests only.
func (f *File) IsTest() bool { return isData(f.Path) || strings.HasSuffix(f.Path, "_test.go") }

// moduleOf returns the module of a file: the nearest above it.
func (t *Tree) moduleOf(name string) string {
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		if slices.Contains(t.Modules, folder) {
			return folder
		}
	}
	return "."
}

// add parses a file and adds it to its package, unless no program for this system contains it.
func (t *Tree) add(f *File) (err error) {
	if f.IsTest() {
		return nil
	}
	system := build.Default
	system.OpenFile = func(name string) (io.ReadCloser, error) { return t.fsys.Open(name) }
	system.JoinPath = path.Join
	if ok, err := system.MatchFile(path.Dir(f.Path), path.Base(f.Path)); !ok || err != nil {
		return err
	}
	f.Syntax, err = parser.ParseFile(t.Fset, f.Path, f.Text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder := path.Dir(f.Path)
	if t.byFolder[folder] == nil {
		t.byFolder[folder] = &Package{Folder: folder, Module: f.Module}
	}
	t.byFolder[folder].Files = append(t.byFolder[folder].Files, f)
	return nil
}

// Package returns the package of a folder; nil if there is none.
func (t *Tree) Package(folder string) *Package { return t.byFolder[folder] }

// Path returns the import path of the package.
func (p *Package) Path() string { return path.Join(Module, p.Folder) }

// Name returns the path of the package within the root module: "" for the root.
func (p *Package) Name() string {
	if p.Folder == "." {
		return ""
	}
	return p.Folder
}

// Ours returns the packages of the repository that p imports.
func (t *Tree) Ours(p *Package) (all []*Package) {
	for _, name := range p.Imports() {
		if folder, ours := folderOf(name); ours && t.byFolder[folder] != nil {
			all = append(all, t.byFolder[folder])
		}
	}
	return all
}

// Position returns where a node is, as file:line.
func (t *Tree) Position(pos token.Pos) string {
	at := t.Fset.Position(pos)
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}

// FileOf returns the name of the file that has a position, without its folder.
func (t *Tree) FileOf(pos token.Pos) string { return path.Base(t.Fset.File(pos).Name()) }

// Imports returns what the package imports, sorted.
func (p *Package) Imports() (all []string) {
	for _, f := range p.Files {
		for _, spec := range f.Syntax.Imports {
			all = append(all, strings.Trim(spec.Path.Value, `"`))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// folderOf returns the folder of an import path of the repository.
func folderOf(importPath string) (folder string, ours bool) {
	rest, ours := strings.CutPrefix(importPath+"/", Module+"/")
	return cmp.Or(strings.TrimSuffix(rest, "/"), "."), ours
}
