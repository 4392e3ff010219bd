package rooms

import (
	"cmp"
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/source"
)

// fields finds the widths of the structs that are no rows of tables.
func fields(repo repository) []finding {
	return slices.DeleteFunc(widths(repo), func(f finding) bool { return rows[f.what] != "" })
}

// widths finds how many fields each struct has, an embedded one included. A struct without a name has that of the
// function or type around it.
func widths(repo repository) (all []finding) {
	eachStruct(repo, func(p *source.Package, name string, s *ast.StructType) {
		what, n := p.Folder+": "+name, 0
		for _, field := range s.Fields.List {
			n += cmp.Or(len(field.Names), 1)
		}
		all = append(all, finding{pattern(p.Module), what, repo.Position(s.Pos()), n})
	})
	return all
}

// eachStruct calls do for each struct.
func eachStruct(repo repository, do func(p *source.Package, name string, s *ast.StructType)) {
	for _, p := range repo.Packages {
		for _, file := range p.Files {
			var name string
			ast.Inspect(file.Syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					name = n.Name.Name
				case *ast.TypeSpec:
					name = n.Name.Name
				case *ast.StructType:
					do(p, name, n)
				}
				return true
			})
		}
	}
}

// homes are the packages in which fields stay home.
var homes = []string{"internal/replay", "internal/worker", "ui", "ui/internal/web"}

// fieldsAway finds the uses of fields, as in x.field, in other files than the one that declares them. Files of the same
// first word are one home, such as run.go and run_steps.go. A literal may give a field its first value anywhere.
func fieldsAway(repo repository) (all []finding) {
	owners := map[types.Object]string{}
	eachStruct(repo, func(p *source.Package, name string, s *ast.StructType) {
		for _, field := range s.Fields.List {
			for _, id := range field.Names {
				owners[p.Info.Defs[id]] = name
			}
		}
	})
	for _, p := range repo.Packages {
		if !slices.Contains(homes, p.Folder) {
			continue
		}
		for selector, s := range p.Info.Selections {
			if s.Kind() != types.FieldVal || s.Obj().Pkg() != p.Types {
				continue
			}
			field := s.Obj().(*types.Var).Origin()
			if firstWord(repo.FileOf(field.Pos())) != firstWord(repo.FileOf(selector.Sel.Pos())) {
				name := strings.TrimPrefix(owners[field]+"."+field.Name(), ".")
				all = append(all, finding{p.Folder, name, repo.Position(selector.Sel.Pos()), 1})
			}
		}
	}
	return all
}

func firstWord(file string) string {
	word, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
	return word
}

// seam finds the names of internal/replay that internal/worker uses, each once. They are none until both packages
// exist.
func seam(repo repository) (all []finding) {
	worker, replay := repo.Package("internal/worker"), repo.Package("internal/replay")
	if worker == nil || replay == nil {
		return nil
	}
	used := map[types.Object]bool{}
	for _, obj := range worker.Info.Uses {
		if obj.Pkg() == replay.Types && !used[obj] {
			used[obj] = true
			all = append(all, finding{worker.Folder, obj.Name(), repo.Position(obj.Pos()), 1})
		}
	}
	return all
}
