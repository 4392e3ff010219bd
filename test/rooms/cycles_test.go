package rooms

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostInCycle is the most files of a package that may refer to each other in a circle. A file refers to another if it uses a
// type, a function, a field or a method that the other declares.
const mostInCycle = 6

func TestFilesFormLayers(t *testing.T) {
	t.Parallel()
	readSources(t)
	all := listed(t, "-export", "-json=ImportPath,Dir,GoFiles,Export")
	exports := map[string]string{}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	for _, p := range all {
		name, ours := cut(p.ImportPath)
		if !ours || isFree(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, cycle := range cyclesOf(references(t, p, exports)) {
				if len(cycle) > mostInCycle {
					t.Errorf("%d files refer to each other in a circle, %d may: %s", len(cycle), mostInCycle, strings.Join(cycle, " "))
				}
			}
		})
	}
}

// A listedPackage is a package as go list describes it.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles, Deps           []string
}

// listed returns the packages that this module consists of and depends on.
func listed(t *testing.T, args ...string) (all []listedPackage) {
	t.Helper()
	cmd := exec.Command("go", append(append([]string{"list", "-deps"}, args...), module+"/...")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// references returns, for each file of the package, the others of the package that it refers to. exports has the file of the
// compiled declarations of each package.
func references(t *testing.T, p listedPackage, exports map[string]string) map[string]map[string]bool {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	cfg := types.Config{Importer: importer.ForCompiler(files, "gc", open)}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	if _, err := cfg.Check(p.ImportPath, files, parsed, &info); err != nil {
		t.Fatal(err)
	}
	refs := map[string]map[string]bool{}
	for id, obj := range info.Uses {
		if obj.Pkg() == nil || obj.Pkg().Path() != p.ImportPath {
			continue
		}
		from, to := filepath.Base(files.Position(id.Pos()).Filename), filepath.Base(files.Position(obj.Pos()).Filename)
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
