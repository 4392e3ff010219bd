// Package docs checks the documentation: every Go block compiles, every relative link leads to a file and a heading,
// and every Example is attached to a name of its package.
package docs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns every page of the documentation, relative to this folder.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "spec/*.md", "skills/*/*.md", "../*.md", "../examples/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ---- links ----

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the fragments that the headings of a page have on GitHub.
func anchors(page string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		for i, first := 1, anchor; slices.Contains(all, anchor); i++ {
			anchor = fmt.Sprintf("%s-%d", first, i)
		}
		all = append(all, anchor)
	}
	return all
}

// files returns the files of the repository, of all modules, that have one of these extensions.
func files(t *testing.T, extensions ...string) (all []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains(extensions, filepath.Ext(path)):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Links are checked in every Markdown file of the repository, also in those of other modules.
func TestRelativeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, page := range files(t, ".md") {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			seen++
			path, fragment, _ := strings.Cut(l[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, l[1], err)
			} else if fragment != "" && !slices.Contains(anchors(read(t, target)), fragment) {
				t.Errorf("%s links to %s: %s has no such heading", page, l[1], target)
			}
		}
	}
	if seen == 0 {
		t.Error("no link was found")
	}
}

// A comment or a help text that names a page names one that exists. test/rooms has made-up ones.
func TestPagesNamedInGoExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\bdocs/[a-z/-]+\.md\b`)
	seen := 0
	for _, file := range files(t, ".go", ".sql") {
		if strings.HasPrefix(file, filepath.FromSlash("../test/rooms/")) {
			continue
		}
		for _, page := range named.FindAllString(read(t, file), -1) {
			seen++
			if _, err := os.Stat(filepath.Join("..", page)); err != nil {
				t.Errorf("%s names %s: %v", file, page, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no page is named")
	}
}

// A reader of a page's first sentence knows whether to go on, and finds the page from README.md or operating.md.
func TestPagesSayWhomTheyAreFor(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("*.md")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	leads := read(t, "operating.md") + strings.ReplaceAll(read(t, "../README.md"), "](docs/", "](")
	for _, page := range found {
		if page == "architecture.md" {
			continue // for those who change Kagzi
		}
		if !regexp.MustCompile(`^# .+\n\nThis page is for `).MatchString(read(t, page)) {
			t.Errorf("%s does not begin with a title and the sentence \"This page is for …\"", page)
		}
		if !regexp.MustCompile(`\]\(` + regexp.QuoteMeta(page) + `[#)]`).MatchString(leads) {
			t.Errorf("neither README.md nor operating.md links to %s", page)
		}
	}
}

// ---- Go blocks ----

// A block is one piece of Go code of a page.
type block struct {
	page string
	line int
	code string
}

var goBlock = regexp.MustCompile("(?ms)^( *)```go\n(.*?)^ *```$")

func goBlocks(t *testing.T) []block {
	t.Helper()
	var all []block
	for _, page := range pages(t) {
		text := read(t, page)
		for _, m := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			all = append(all, block{page, 2 + strings.Count(text[:m[0]], "\n"), text[m[4]:m[5]]})
		}
	}
	return all
}

// A compiler type-checks programs that use Kagzi as it is.
type compiler struct {
	fset    *token.FileSet
	imports types.Importer
	prelude string
	uses    string // the import declarations of every block
}

// used are the packages that blocks may name without importing them.
var used = []string{
	"context", "encoding/json", "errors", "fmt", "log", "log/slog", "net/http", "net/smtp", "os", "os/signal", "slices",
	"sync", "syscall", "testing", "time",
	"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
	"github.com/kagzi/kagzi", "github.com/kagzi/kagzi/admin", "github.com/kagzi/kagzi/alerts",
	"github.com/kagzi/kagzi/doctor", "github.com/kagzi/kagzi/health",
	"github.com/kagzi/kagzi/kagzitest", "github.com/kagzi/kagzi/namespaces", "github.com/kagzi/kagzi/request",
	"github.com/kagzi/kagzi/topic", "github.com/kagzi/kagzi/value",
	"github.com/kagzi/kagzi/kind", "github.com/kagzi/kagzi/migrations",
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"},
		used...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	c := &compiler{fset: token.NewFileSet(), prelude: read(t, "testdata/prelude.go")}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range used {
		c.uses += fmt.Sprintf("import %q\n", path)
	}
	return c
}

// check returns the errors of a program of these files, but not that something is declared and not used.
func (c *compiler) check(files ...*ast.File) (errs []error) {
	conf := types.Config{Importer: c.imports, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); !ok || !e.Soft {
			errs = append(errs, err)
		}
	}}
	_, _ = conf.Check("program", c.fset, files, nil) // Error has them all
	return errs
}

// split divides a block into its declarations and its statements.
func split(code string) (decls, statements string) {
	chunk := ""
	for line := range strings.Lines(code + "\n") {
		if chunk += line; strings.TrimSpace(line) != "" || strings.TrimSpace(chunk) == "" {
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+chunk, 0); err == nil {
			decls, chunk = decls+chunk, ""
		} else if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+chunk+"\n}",
			0); err == nil {
			statements, chunk = statements+chunk, ""
		}
	}
	return decls, statements + chunk
}

// The functions that statements may stand in: those of a workflow and others, with the results that their returns need.
var functions = []string{
	"func _(ctx context.Context) error",
	"func _(ctx kagzi.Context) error",
	"func _(ctx kagzi.Context) (Receipt, error)",
}

// compile returns why the block compiles in no function; nil if it does in one.
func (c *compiler) compile(code string) []error {
	if strings.HasPrefix(code, "package ") {
		file, err := parser.ParseFile(c.fset, "", code, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		return c.check(file)
	}
	decls, statements := split(code)
	var best []error
	for _, function := range functions {
		source := "package program\n" + c.uses + decls + function + " {\n" + statements + "\npanic(0)\n}\n"
		file, err := parser.ParseFile(c.fset, "", source, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		prelude, err := parser.ParseFile(c.fset, "prelude.go", c.prelude, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		without(prelude, file)
		errs := c.check(file, prelude)
		if errs == nil {
			return nil
		}
		if best == nil || len(errs) < len(best) {
			best = errs
		}
	}
	return best
}

// without removes from the prelude the declarations that the block has itself.
func without(prelude, block *ast.File) {
	names := map[string]bool{}
	for _, d := range block.Decls {
		for _, name := range declared(d) {
			names[name] = name != "_"
		}
	}
	of := func(name string) bool { return names[name] }
	prelude.Decls = slices.DeleteFunc(prelude.Decls, func(d ast.Decl) bool {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok != token.IMPORT {
			g.Specs = slices.DeleteFunc(g.Specs, func(s ast.Spec) bool {
				return slices.ContainsFunc(declared(&ast.GenDecl{Specs: []ast.Spec{s}}), of)
			})
			return len(g.Specs) == 0
		}
		return slices.ContainsFunc(declared(d), of)
	})
}

// declared returns the names that a declaration at package level declares.
func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

func TestGoBlocksCompile(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	blocks := goBlocks(t)
	if len(blocks) == 0 {
		t.Fatal("no Go block was found")
	}
	for _, b := range blocks {
		if b.page == tutorial {
			continue
		}
		for _, err := range c.compile(b.code) {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
		}
	}
	for _, wrong := range []string{
		"err := kagzi.Sleep(ctx, time.Second)\n", "var x int = kagzi.ID(\"x\")\n",
		"nothing(ctx)\n",
	} {
		if c.compile(wrong) == nil {
			t.Errorf("this compiles, so the test proves nothing: %s", wrong)
		}
	}
}

// ---- Examples ----

// An Example whose name belongs to nothing is shown nowhere.
func TestExamplesAreAttached(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, dir := range []string{
		"..", "../alerts", "../doctor", "../health", "../kagzitest", "../migrations", "../namespaces",
	} {
		fset := token.NewFileSet()
		names, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		lost := map[string]bool{}
		for _, name := range names {
			file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				examples := doc.Examples(file)
				if len(examples) > 0 && !strings.HasSuffix(file.Name.Name, "_test") {
					t.Errorf("%s has examples: put them into package %s_test, so that they read as a user's program",
						name, file.Name.Name)
				}
				if !strings.HasSuffix(file.Name.Name, "_test") {
					continue
				}
				for _, e := range examples {
					lost[e.Name] = true
					seen++
				}
			}
			files = append(files, file)
		}
		if files == nil {
			continue
		}
		p, err := doc.NewFromFiles(fset, files, "github.com/kagzi/kagzi/"+filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		attached := slices.Clone(p.Examples)
		for _, f := range p.Funcs {
			attached = append(attached, f.Examples...)
		}
		for _, typ := range p.Types {
			attached = append(attached, typ.Examples...)
			for _, f := range slices.Concat(typ.Funcs, typ.Methods) {
				attached = append(attached, f.Examples...)
			}
		}
		for _, e := range attached {
			delete(lost, e.Name)
		}
		for name := range lost {
			t.Errorf("%s: Example%s belongs to no exported name", cmp.Or(p.Name, dir), name)
		}
	}
	if seen == 0 {
		t.Error("no example was found")
	}
}

// ---- the Makefile ----

// A target that has the name of a file or folder is phony: else make finds it up to date, and does nothing.
func TestTargetsOfTheMakefileArePhony(t *testing.T) {
	t.Parallel()
	text := read(t, "../Makefile")
	_, list, _ := strings.Cut(text, "\n.PHONY:")
	list, _, _ = strings.Cut(list, "\n")
	for _, target := range regexp.MustCompile(`(?m)^([a-z-]+):( |$)`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(strings.Fields(list), target[1]) {
			t.Errorf("%s is not phony", target[1])
		}
	}
}
