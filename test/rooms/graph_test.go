package rooms

import (
	"maps"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/source"
)

// circles returns the files that refer to each other in a circle, for each circle of each package. A file refers to
// another if it uses a type, a function, a field or a method that the other declares.
func circles(repo repository) (all []finding) {
	for _, p := range repo.Packages {
		for _, circle := range cyclesOf(references(repo, p)) {
			all = append(all, finding{pattern(p.Module), p.Folder, strings.Join(circle, " "), len(circle)})
		}
	}
	return all
}

// references returns, for each file of the package, the files of the package that it refers to.
func references(repo repository, p *source.Package) map[string]map[string]bool {
	refs := map[string]map[string]bool{}
	for id, obj := range p.Info.Uses {
		if obj.Pkg() != p.Types || !obj.Pos().IsValid() {
			continue
		}
		from, to := repo.FileOf(id.Pos()), repo.FileOf(obj.Pos())
		if refs[from] == nil {
			refs[from] = map[string]bool{}
		}
		refs[from][to] = true
	}
	return refs
}

// cyclesOf returns the strongly connected parts of a graph, by Tarjan's algorithm.
func cyclesOf(refs map[string]map[string]bool) (cycles [][]string) {
	index, low, open := map[string]int{}, map[string]int{}, map[string]bool{}
	var path []string
	var visit func(string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		path, open[v] = append(path, v), true
		for _, w := range slices.Sorted(maps.Keys(refs[v])) {
			switch {
			case index[w] == 0:
				visit(w)
				low[v] = min(low[v], low[w])
			case open[w]:
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		i := slices.Index(path, v)
		cycle := slices.Sorted(slices.Values(path[i:]))
		for _, w := range cycle {
			open[w] = false
		}
		path, cycles = path[:i], append(cycles, cycle)
	}
	for _, v := range slices.Sorted(maps.Keys(refs)) {
		if index[v] == 0 {
			visit(v)
		}
	}
	return cycles
}
