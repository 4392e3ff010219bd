package rooms

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kagzi/kagzi/internal/source"
)

const columns = 120

// longLines finds the lines of Go with more than 120 columns. A tab is four columns, as on most screens.
func longLines(repo repository) (all []finding) {
	for _, f := range repo.Files {
		number := 0
		for line := range strings.Lines(string(f.Text)) {
			number++
			line = strings.TrimRight(line, "\n")
			if len(line) > columns/4 && utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > columns {
				all = append(all, finding{pattern(f.Module), f.Path, fmt.Sprintf("%s:%d", f.Path, number), 1})
			}
		}
	}
	return all
}

// words finds how many words each document that accepts has.
func words(folder string, accepts func(name string) bool) func(repository) []finding {
	return func(repo repository) (all []finding) {
		names, _ := fs.Glob(repo.files, path.Join(folder, "*.md"))
		for _, name := range names {
			if text, err := fs.ReadFile(repo.files, name); err == nil && accepts(path.Base(name)) {
				all = append(all, finding{folder, name, "", len(strings.Fields(string(text)))})
			}
		}
		return all
	}
}

// nameOf returns the first name that is declared.
func nameOf(d *ast.GenDecl) string {
	switch spec := d.Specs[0].(type) {
	case *ast.TypeSpec:
		return spec.Name.Name
	case *ast.ValueSpec:
		return spec.Names[0].Name
	}
	return d.Tok.String()
}

// docComments finds how many words the doc comment of each declaration and field has. That of a package may be long: it
// has the drawing of a protocol.
func docComments(repo repository) (all []finding) {
	for _, p := range repo.Packages {
		for _, file := range p.Files {
			add := func(doc *ast.CommentGroup, name string) {
				if doc != nil {
					n := len(strings.Fields(doc.Text()))
					all = append(all, finding{pattern(p.Module), file.Path + ": " + name, repo.Position(doc.Pos()), n})
				}
			}
			ast.Inspect(file.Syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					add(n.Doc, strings.TrimPrefix(receiver(n)+"."+n.Name.Name, "."))
					return false
				case *ast.GenDecl:
					add(n.Doc, nameOf(n))
				case *ast.TypeSpec:
					add(n.Doc, n.Name.Name)
				case *ast.ValueSpec:
					add(n.Doc, n.Names[0].Name)
				case *ast.Field:
					if len(n.Names) > 0 {
						add(n.Doc, n.Names[0].Name)
					}
				}
				return true
			})
		}
	}
	return all
}

// person matches a word that does not say who acts.
var person = regexp.MustCompile(`(?i)\b((some|any|every|no)(body|one)|who(m|se)?(so)?ever|(him|her)self|he)\b`)

// parts are of the words that person matches. Without one of them, a comment is passed over quickly.
var parts = []string{"body", "one", "ever", "self", "he ", "He "}

// persons finds the words in comments that do not say who acts.
func persons(repo repository) (all []finding) {
	eachComment(repo, func(f *source.File, line int, text string) {
		if !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) }) {
			return
		}
		for _, word := range person.FindAllString(text, -1) {
			all = append(all, finding{pattern(f.Module), f.Path, fmt.Sprintf("%s:%d: %s", f.Path, line, word), 1})
		}
	})
	return all
}

var (
	// subject matches "what" and a verb: an auxiliary, or a word that ends as verbs do.
	subject = regexp.MustCompile(`(?i)\bwhat\s+(is|was|are|were|has|had|does|did|can|cannot|could|may|might|must|` +
		`will|would|should|became|came|held|kept|left|lost|made|ran|stood|took|went|woke|[a-z]+ed|[a-z]*[^s\W]s)\b`)
	// noVerb matches words that end like a verb and are none.
	noVerb = regexp.MustCompile(`(?i)\b(its|this|others|users|operators|workers|options|errors)$`)
)

// unclear finds how many clauses of 10,000 words of comments, those of all modules, have "what" as their subject: "what
// is locked".
func unclear(repo repository) []finding {
	words, of := 0, map[string]int{}
	var places []string
	eachComment(repo, func(f *source.File, line int, text string) {
		words += len(strings.Fields(text))
		if !strings.Contains(text, "hat ") && !strings.Contains(text, "hat\n") {
			return
		}
		for _, clause := range subject.FindAllString(text, -1) {
			if !noVerb.MatchString(clause) {
				of[f.Path]++
				places = append(places, fmt.Sprintf("%s:%d: %s", f.Path, line, clause))
			}
		}
	})
	if len(places) == 0 {
		return nil
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(x, y string) int { return of[x] - of[y] })
	return []finding{{"all modules", most, strings.Join(places, "\n\t"), len(places) * 10_000 / words}}
}

// eachComment calls do for each comment of each Go file. Lines that follow each other and have nothing else are one.
// Text after two slashes and a space counts as a comment: the scanner of Go would take ten times as long with the
// race detector.
func eachComment(repo repository, do func(f *source.File, line int, text string)) {
	for _, f := range repo.Files {
		var group []string
		number := 0
		for line := range strings.Lines(string(f.Text)) {
			number++
			code, text, found := strings.Cut(line, "// ")
			if !found {
				code, text, found = strings.Cut(line, "//\t")
			}
			alone := found && strings.TrimSpace(code) == ""
			if len(group) > 0 && !alone {
				do(f, number-len(group), strings.Join(group, ""))
				group = nil
			}
			if alone {
				group = append(group, text)
			} else if found && strings.TrimRight(code, " \t") != code {
				do(f, number, text)
			}
		}
		if len(group) > 0 {
			do(f, number+1-len(group), strings.Join(group, ""))
		}
	}
}
