package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sources are the files of the module that architecture.md may cite, and the names that they declare.
type sources struct {
	packages  map[string]map[string]bool // the names of each package: "Flush", "Store.Flush"
	declared  map[string]bool            // the names of all packages, methods and fields also without their types
	tests     map[string]bool            // the names of test functions
	text      map[string]string          // each Go or SQL file that mentions architecture.md or a protocol, in one line
	protocols map[string][]string        // the files whose package comments tell protocols, by their names
}

// lineBreak is the end of a line, with the mark that continues a comment on the next one.
var lineBreak = regexp.MustCompile(`\s*\n\s*(//|--)?\s*`)

// readSources reads the Go and SQL files of the module, once for all tests.
var readSources = sync.OnceValues(func() (*sources, error) {
	s := &sources{
		packages: map[string]map[string]bool{}, declared: map[string]bool{}, tests: map[string]bool{},
		text: map[string]string{}, protocols: map[string][]string{},
	}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" && filepath.Ext(path) != ".sql":
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if protocolFile.MatchString(entry.Name()) {
			s.protocols[entry.Name()] = append(s.protocols[entry.Name()], path)
		}
		if bytes.Contains(content, []byte("architecture.md")) || toProtocol.Match(content) {
			s.text[path] = lineBreak.ReplaceAllString(string(content), " ")
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.add(file, strings.HasSuffix(path, "_test.go"))
		return nil
	})
	for _, names := range s.packages {
		for name := range names {
			s.declared[name] = true
			s.declared[name[strings.LastIndex(name, ".")+1:]] = true
		}
	}
	return s, err
})

// add adds the names that a file declares.
func (s *sources) add(file *ast.File, isTest bool) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && isTest {
			s.tests[f.Name.Name] = s.tests[f.Name.Name] || f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test")
		}
	}
	if isTest {
		return
	}
	names := s.packages[file.Name.Name]
	if names == nil {
		names = map[string]bool{}
		s.packages[file.Name.Name] = names
	}
	for _, d := range file.Decls {
		for _, name := range declared(d) {
			names[name] = true
		}
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					for _, member := range members(spec.Type) {
						names[spec.Name.Name+"."+member] = true
					}
				}
			}
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members returns the fields of a struct, or the methods of an interface.
func members(e ast.Expr) (names []string) {
	var list []*ast.Field
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields.List
	case *ast.InterfaceType:
		list = e.Methods.List
	}
	for _, field := range list {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// The ways in which architecture.md cites the code, in code spans: a path, a test, a name of a package, or a member of
// one of package kagzi's types.
var (
	span        = regexp.MustCompile("`([^`\n]+)`")
	citedPath   = regexp.MustCompile(`^([a-z_]+/)+[\w.-]*$|^\w+\.go$`)
	citedTest   = regexp.MustCompile(`^Test[A-Z]\w*$`)
	citedName   = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)$`)
	citedMember = regexp.MustCompile(`^[A-Z]\w*\.[A-Z]\w*$`)
)

// cites reports whether a code span cites the code. It returns an error if the code has no such file or name.
func (s *sources) cites(cited string) (yes bool, err error) {
	if citedPath.MatchString(cited) {
		_, err := os.Stat(filepath.Join("..", filepath.FromSlash(cited)))
		return true, err
	}
	if citedTest.MatchString(cited) && !s.tests[cited] {
		return true, fmt.Errorf("there is no test %s", cited)
	}
	if m := citedName.FindStringSubmatch(cited); m != nil && s.packages[m[1]] != nil {
		for name := range s.packages[m[1]] {
			if name == m[2] || strings.HasSuffix(name, "."+m[2]) {
				return true, nil
			}
		}
		return true, fmt.Errorf("package %s has no %s", m[1], m[2])
	}
	if citedMember.MatchString(cited) && !s.packages["kagzi"][cited] {
		return true, fmt.Errorf("package kagzi has no %s", cited)
	}
	return citedTest.MatchString(cited) || citedMember.MatchString(cited), nil
}

func TestArchitectureCitesWhatThereIs(t *testing.T) {
	t.Parallel()
	s, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	cited := 0
	for i, line := range strings.Split(withoutFences(read(t, "architecture.md")), "\n") {
		for _, m := range span.FindAllStringSubmatch(line, -1) {
			yes, err := s.cites(m[1])
			if err != nil {
				t.Errorf("architecture.md:%d: %v", i+1, err)
			}
			if yes {
				cited++
			}
		}
	}
	if cited == 0 {
		t.Error("nothing is cited")
	}
	for _, wrong := range []string{
		"store.Flushed", "internal/engine/inboxes.go", "TestOfNothing", "Worker.Walk",
		"store.Suspension.Needs", "languages.go",
	} {
		if _, err := s.cites(wrong); err == nil {
			t.Errorf("%s is accepted, so the test proves nothing", wrong)
		}
	}
}

// withoutFences empties the lines of fenced blocks, so that the other lines keep their numbers.
func withoutFences(page string) string {
	return fence.ReplaceAllStringFunc(page, func(block string) string {
		return strings.Repeat("\n", strings.Count(block, "\n"))
	})
}

// reference precedes the title of a section in a comment.
const reference = "architecture.md, "

// unknownSection returns the first reference to a section that is not among the titles; "" if there is none.
func unknownSection(text string, titles []string) string {
	for _, after := range strings.Split(text, reference)[1:] {
		isTitle := func(title string) bool {
			rest, ok := strings.CutPrefix(after, title)
			return ok && (rest == "" || !wordStart.MatchString(rest))
		}
		if !slices.ContainsFunc(titles, isTitle) {
			return after[:min(len(after), 40)]
		}
	}
	return ""
}

var wordStart = regexp.MustCompile(`^\w`)

func TestCommentsNameSections(t *testing.T) {
	t.Parallel()
	var titles []string
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(read(t, "architecture.md"), ""), -1) {
		titles = append(titles, h[1])
	}
	s, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, text := range s.text {
		if filepath.Base(path) == "architecture_test.go" {
			continue
		}
		seen += strings.Count(text, reference)
		if unknown := unknownSection(text, titles); unknown != "" {
			t.Errorf("%s names a section that architecture.md does not have: %s", path, unknown)
		}
	}
	if seen == 0 {
		t.Error("no comment names a section")
	}
	title := titles[len(titles)-1]
	if unknownSection("see "+reference+title+".", titles) != "" ||
		unknownSection("see "+reference+title+"s.", titles) == "" {
		t.Error("sections are not told apart, so the test proves nothing")
	}
}
