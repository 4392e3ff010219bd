package rooms

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kagzi/kagzi/internal/source"
)

var (
	update    = flag.Bool("update", false, "lower the bounds in figures.txt to today's figures")
	offenders = flag.String("offenders", "", "print all that counts for the figure of this name")
)

// top is the folder of the repository.
const top = "../.."

// A repository is the code of all modules, and the documents.
type repository struct {
	*source.Tree
	files fs.FS
}

// whole is the repository itself, read once for all tests. It reads every file, so that the result of a test is not
// taken from the cache when one has changed.
var whole = sync.OnceValues(func() (repository, error) { return open(os.DirFS(top)) })

func open(files fs.FS) (repository, error) {
	tree, err := source.Read(files)
	if err != nil {
		return repository{}, err
	}
	return repository{tree, files}, tree.Check(top, func(*source.Package) bool { return true })
}

func load(t *testing.T) repository {
	t.Helper()
	repo, err := whole()
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// No figure is worse than its bound in figures.txt, and no bound is slack. A figure without a line there has reached
// the drawing.
func TestFigures(t *testing.T) {
	t.Parallel()
	repo := load(t)
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	bounds, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var today []figure
	for _, r := range rules {
		today = append(today, r.measure(repo)...)
		if r.name == *offenders {
			print(r, repo)
		}
	}
	worse, slack, lowered := compare(bounds, today)
	if *update {
		slack = nil
		if err := os.WriteFile(table, []byte(format(lowered)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range append(worse, slack...) {
		t.Error(problem)
	}
}

// print prints all that counts for a figure.
func print(r rule, repo repository) {
	for _, f := range r.find(repo) {
		if r.sums || f.n > r.reach {
			fmt.Printf("%s: %s (%d) %s\n", f.where, f.what, f.n, f.at)
		}
	}
}

// A rule is a figure that no commit makes worse.
type rule struct {
	name  string
	reach int    // the bound of the drawing
	sums  bool   // the figure is the sum of the findings; else the largest
	mend  string // how to better it
	find  func(repository) []finding
}

// A finding is a thing that counts for a figure.
type finding struct {
	where string // the package, module or folder that has the figure
	what  string // a function, a type, a file …
	at    string // a line, or more about it
	n     int
}

func (f finding) String() string {
	if f.at == "" {
		return fmt.Sprintf("%s (%d)", f.what, f.n)
	}
	return fmt.Sprintf("%s (%d) at %.2000s", f.what, f.n, f.at)
}

// A figure is a line of the table: a measurement, or a bound.
type figure struct {
	rule, where string
	worst       int // of the findings, or their sum
	excess      int // the sum of all above the drawing's bound; zero for a sum
	reach       int
	what        string // that has the worst
	reason      string // why the bound was raised, in the table
	advice      string // the worst, and how to mend it, when measured
}

func (f figure) name() string { return fmt.Sprintf("%s, %s", f.rule, f.where) }

// measure returns the figures that have not reached the drawing, in the order of places.
func (r rule) measure(repo repository) (all []figure) {
	places := map[string][]finding{}
	for _, f := range r.find(repo) {
		places[f.where] = append(places[f.where], f)
	}
	for _, where := range slices.Sorted(maps.Keys(places)) {
		if f := r.figure(where, places[where]); f.worst > r.reach {
			all = append(all, f)
		}
	}
	return all
}

// figure returns the figure of a place.
func (r rule) figure(where string, found []finding) figure {
	if r.sums {
		found = summed(found)
	}
	slices.SortFunc(found, func(x, y finding) int { return cmp.Or(y.n-x.n, strings.Compare(x.what+x.at, y.what+y.at)) })
	f := figure{rule: r.name, where: where, worst: found[0].n, reach: r.reach, what: found[0].what}
	if r.sums {
		for _, one := range found[1:] {
			f.worst += one.n
		}
	} else {
		found = slices.DeleteFunc(found, func(f finding) bool { return f.n <= r.reach })
		for _, one := range found {
			f.excess += one.n - r.reach
		}
	}
	for _, one := range found[:min(len(found), 30)] {
		f.advice += "\n\t" + one.String()
	}
	f.advice += "\n" + r.mend
	return f
}

// summed returns the sum of each thing.
func summed(found []finding) (sums []finding) {
	for _, f := range found {
		i := slices.IndexFunc(sums, func(s finding) bool { return s.what == f.what })
		if i < 0 {
			f.at = ""
			sums = append(sums, f)
		} else {
			sums[i].n += f.n
		}
	}
	return sums
}
