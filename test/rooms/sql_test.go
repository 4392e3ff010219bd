package rooms

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi/internal/source"
)

var (
	statement = regexp.MustCompile(`^\s*(SELECT|WITH|INSERT|UPDATE|DELETE|MERGE|VALUES)\s`)
	// fragment matches text that only SQL has.
	fragment = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|JOIN|WHEN|NULL|AND|kagzi\.[a-z_]+)\b`)
	// expression matches the name of a CTE, and a window before it.
	expression = regexp.MustCompile(`(WINDOW\s+)?\b(\w+)\s*(?:\([\w\s,]+\)\s*)?AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?\(`)
)

// statements finds how many lines each SQL statement has, the constants that it is made of included.
func statements(repo repository) (all []finding) {
	for _, p := range repo.Packages {
		eachText(p, func(name string, e ast.Expr, text string) {
			if statement.MatchString(text) {
				n := strings.Count(strings.TrimSpace(text), "\n") + 1
				all = append(all, finding{pattern(p.Module), p.Folder + ": " + name, repo.Position(e.Pos()), n})
			}
		})
	}
	return all
}

// eachText calls do for each text that is not part of a longer one, with the name of the constant, the
// variable or the function that has it.
func eachText(p *source.Package, do func(name string, e ast.Expr, text string)) {
	for _, file := range p.Files {
		for _, d := range file.Syntax.Decls {
			var name string
			if f, ok := d.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok {
					name = spec.Names[0].Name
				}
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, ok := textOf(p, e)
				_, mentioned := e.(*ast.Ident)
				_, called := e.(*ast.CallExpr)
				if ok && !mentioned && !called {
					do(name, e, text)
				}
				return !ok
			})
		}
	}
}

// textOf returns the value of a constant string; of one that is joined, as far as its parts are constants or calls of
// functions that return such.
func textOf(p *source.Package, e ast.Expr) (string, bool) {
	if v := p.Info.Types[e].Value; v != nil {
		if v.Kind() != constant.String {
			return "", false
		}
		return constant.StringVal(v), true
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x, constant := textOf(p, e.X)
			y, too := textOf(p, e.Y)
			return x + y, constant || too
		}
	case *ast.CallExpr:
		if returned := returnedBy(p, p.Callee(e)); returned != nil {
			return textOf(p, returned)
		}
	}
	return "", false
}

// returnedBy returns what a function of the package returns that does nothing else.
func returnedBy(p *source.Package, f *types.Func) ast.Expr {
	for _, file := range p.Files {
		for _, d := range file.Syntax.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || f == nil || p.Info.Defs[d.Name] != f || d.Body == nil || len(d.Body.List) != 1 {
				continue
			}
			if r, ok := d.Body.List[0].(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				return r.Results[0]
			}
		}
	}
	return nil
}

// replaced finds SQL text that is given to the functions of package strings that replace some of it.
func replaced(repo repository) (all []finding) {
	for _, p := range repo.Packages {
		for _, file := range p.Files {
			ast.Inspect(file.Syntax, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !replaces(p, call) {
					return true
				}
				for _, arg := range call.Args {
					if text, ok := textOf(p, arg); ok && fragment.MatchString(text) {
						all = append(all, finding{pattern(p.Module), file.Path, repo.Position(call.Pos()), 1})
						break
					}
				}
				return true
			})
		}
	}
	return all
}

func replaces(p *source.Package, call *ast.CallExpr) bool {
	f := p.Callee(call)
	if f == nil {
		return false
	}
	switch f.FullName() {
	case "strings.Replace", "strings.ReplaceAll", "strings.NewReplacer", "(*strings.Replacer).Replace":
		return true
	}
	return false
}

// shortNames finds the CTEs whose name is shorter than three letters.
func shortNames(repo repository) (all []finding) {
	for _, p := range repo.Packages {
		for _, file := range p.Files {
			ast.Inspect(file.Syntax, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil || !strings.Contains(text, "AS") {
					return true
				}
				for _, m := range expression.FindAllStringSubmatch(text, -1) {
					if m[1] == "" && len(m[2]) < 3 {
						at := repo.Position(literal.Pos()) + " " + m[2]
						all = append(all, finding{pattern(p.Module), file.Path, at, 1})
					}
				}
				return true
			})
		}
	}
	return all
}
