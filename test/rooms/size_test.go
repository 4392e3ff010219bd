package rooms

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"strings"

	"github.com/kagzi/kagzi/internal/source"
)

// pattern returns the packages of a module as go list has them.
func pattern(module string) string { return module + "/..." }

// rootFiles finds the production files of the root package.
func rootFiles(repo repository) (all []finding) {
	for _, f := range repo.Package(".").Files {
		all = append(all, finding{".", f.Path, "", 1})
	}
	return all
}

// rootLines finds the lines of the root package's production files.
func rootLines(repo repository) (all []finding) {
	for _, f := range repo.Package(".").Files {
		all = append(all, finding{".", f.Path, "", bytes.Count(f.Text, []byte("\n"))})
	}
	return all
}

// rootTests finds the files with tests, benchmarks and examples beside those of the root package.
func rootTests(repo repository) (all []finding) {
	for _, f := range repo.Files {
		if path.Dir(f.Path) == "." && f.IsTest() {
			all = append(all, finding{".", f.Path, "", 1})
		}
	}
	return all
}

// rootNames finds the exported types, functions, constants and variables of the root package.
func rootNames(repo repository) (all []finding) {
	scope := repo.Package(".").Types.Scope()
	for _, name := range scope.Names() {
		if ast.IsExported(name) {
			all = append(all, finding{".", repo.FileOf(scope.Lookup(name).Pos()), name, 1})
		}
	}
	return all
}

// clientMethods finds the exported methods of kagzi.Client.
func clientMethods(repo repository) (all []finding) {
	eachFunction(repo, func(f function) {
		if f.p.Folder == "." && f.receiver == "Client" && ast.IsExported(f.name) {
			all = append(all, finding{".", f.file, "Client." + f.name, 1})
		}
	})
	return all
}

// methods finds how many methods each type has.
func methods(repo repository) (all []finding) {
	of := map[finding]int{}
	eachFunction(repo, func(f function) {
		if f.receiver != "" {
			of[finding{where: pattern(f.p.Module), what: f.p.Folder + ": " + f.receiver}]++
		}
	})
	for f, n := range of {
		f.n = n
		all = append(all, f)
	}
	return all
}

// A function is one with a name, or one that a variable of the package has.
type function struct {
	p              *source.Package
	file           string
	receiver, name string
	node           ast.Node
}

func (f function) String() string {
	return f.file + ": " + strings.TrimPrefix(f.receiver+"."+f.name, ".")
}

// eachFunction calls do for each function.
func eachFunction(repo repository, do func(function)) {
	for _, p := range repo.Packages {
		for _, file := range p.Files {
			for _, d := range file.Syntax.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					do(function{p, file.Path, receiver(d), d.Name.Name, d})
				case *ast.GenDecl:
					eachLiteral(d, func(name string, f *ast.FuncLit) { do(function{p, file.Path, "", name, f}) })
				}
			}
		}
	}
}

// eachLiteral calls do for each function literal of a declaration that is in no other, with the name of the variable
// that has it.
func eachLiteral(d *ast.GenDecl, do func(name string, literal *ast.FuncLit)) {
	var name string
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			name = n.Names[0].Name
		case *ast.FuncLit:
			do(name, n)
			return false
		}
		return true
	})
}

// receiver returns the name of the type that has a method; "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.IndexListExpr:
			of = e.X
		case *ast.Ident:
			return e.Name
		default:
			return "?"
		}
	}
}

// functionLines finds the length of each function, from its first line to its last.
func functionLines(repo repository) (all []finding) {
	eachFunction(repo, func(f function) {
		first, last := repo.Fset.Position(f.node.Pos()).Line, repo.Fset.Position(f.node.End()).Line
		all = append(all, finding{pattern(f.p.Module), f.String(), repo.Position(f.node.Pos()), last - first + 1})
	})
	return all
}

// complexities finds the cyclomatic complexity of each function as gocyclo counts it.
func complexities(repo repository) (all []finding) {
	eachFunction(repo, func(f function) {
		all = append(all, finding{pattern(f.p.Module), f.String(), repo.Position(f.node.Pos()), complexity(f.node)})
	})
	return all
}

// complexity is 1, and 1 for each if, for, case, && and ||. Those of function literals within a function are the
// function's.
func complexity(of ast.Node) int {
	n := 1
	ast.Inspect(of, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
