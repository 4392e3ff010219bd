package rooms

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kagzi/kagzi/internal/source"
)

// made is a repository of these files. Each has at least a file in the root package.
func made(t *testing.T, files map[string]string) repository {
	t.Helper()
	all := fstest.MapFS{"go.mod": {}, "kagzi.go": {Data: []byte("package kagzi\n")}}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	repo, err := open(all)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// repeat returns lines of which each has its number.
func repeat(n int, line string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, line+"\n", i)
	}
	return out.String()
}

// numbered returns files with numbers in their names.
func numbered(n int, name, text string) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf(name, i)] = text
	}
	return files
}

// imports imports a package of the repository.
func imports(name string) string { return "\nimport _ \"" + source.Module + "/" + name + "\"\n" }

// An offence is a repository that breaks one rule, and one that just keeps it.
type offence struct {
	rule    string
	where   string
	worst   int
	what    string
	breaks  map[string]string
	keeps   map[string]string
	another map[string]string // if any, keeps it, too
}

// Each rule finds a made-up offender, and nothing in code that is just as the drawing allows.
func TestRulesFindOffenders(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, o := range append(sizeOffences(), proseOffences()...) {
		tested[o.rule] = true
		t.Run(o.rule, func(t *testing.T) {
			t.Parallel()
			var r rule
			for _, one := range rules {
				if one.name == o.rule {
					r = one
				}
			}
			got := r.measure(made(t, o.breaks))
			if len(got) != 1 || got[0].where != o.where || got[0].worst != o.worst || got[0].what != o.what {
				t.Fatalf("the offender has the figures %+v, want %d of %s in %s", got, o.worst, o.what, o.where)
			}
			if above := got[0].worst - r.reach; !r.sums && got[0].excess != above || r.sums && got[0].excess != 0 {
				t.Errorf("the offender is %d above the drawing, want %d unless it is a sum", got[0].excess, above)
			}
			if !strings.Contains(got[0].advice, o.what) || !strings.Contains(got[0].advice, r.mend) {
				t.Errorf("the advice is %q, want it to name %s and to say how it is mended", got[0].advice, o.what)
			}
			for _, files := range []map[string]string{o.keeps, o.another} {
				if got := r.measure(made(t, files)); len(got) > 0 {
					t.Errorf("code as the drawing allows has the figures %+v", got)
				}
			}
		})
	}
	for _, r := range rules {
		if !tested[r.name] {
			t.Errorf("%s: no made-up offender breaks the rule", r.name)
		}
	}
}

// A package appears, and the bans hold for it.
func TestBansHold(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, name := range []string{
		"store", "store/inspect", "admin",
		"internal/text", "internal/hints", "internal/claims", "internal/replay", "internal/worker",
	} {
		files[name+"/a.go"] = "package " + name[strings.LastIndex(name, "/")+1:] + "\n"
	}
	graph := func(edges ...string) repository {
		files := maps.Clone(files)
		for i, edge := range edges {
			from, to, _ := strings.Cut(edge, " > ")
			files[fmt.Sprintf("%s/e%d.go", from, i)] = files[from+"/a.go"] + imports(to)
		}
		return made(t, files)
	}
	clean := graph(
		"store > internal/text", "internal/claims > store", "internal/replay > store",
		"internal/worker > internal/replay", "internal/worker > internal/claims",
		"admin > store", "admin > store/inspect",
	)
	if got := banned(clean, never); len(got) > 0 {
		t.Errorf("found %q in a clean graph", got)
	}
	for _, edge := range []string{
		"store > store/inspect", "internal/claims > internal/text", "internal/claims > store/inspect",
		"internal/replay > internal/worker", "internal/replay > internal/claims", "internal/replay > internal/hints",
		"admin > internal/replay", "admin > internal/worker",
	} {
		from, to, _ := strings.Cut(edge, " > ")
		want := fmt.Sprintf("%q imports %q", from, to)
		if got := banned(graph(edge), never); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("with the import %s, found %q", edge, got)
		}
	}
}

// A package depends on no more than the table says, through others, too, and the table has the packages that there are.
func TestStraysAreFound(t *testing.T) {
	t.Parallel()
	repo := made(t, map[string]string{
		"a/a.go": "package a\n" + imports("b"), "b/b.go": "package b\n" + imports("c"), "c/c.go": "package c\n",
		"test/x/x.go": "package x\n" + imports("a"), "ui/go.mod": "", "ui/u.go": "package ui\n" + imports("a"),
	})
	if got := strays(repo, map[string][]string{"": {}, "a": {"b", "c"}, "b": {"c"}, "c": {}}); len(got) > 0 {
		t.Errorf("found %q where all is allowed", got)
	}
	got := strays(repo, map[string][]string{"": {}, "a": {"b"}, "b": {"c"}, "gone": {}})
	want := []string{`package "a" depends on "c"`, `package "c" is not in the table`, `the table has package "gone"`}
	if len(got) != len(want) {
		t.Fatalf("found %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("found %q, want %q", got[i], want[i])
		}
	}
}

// The list of rows has no struct that there is not, or that is narrow enough without it.
func TestRowsAreWide(t *testing.T) {
	t.Parallel()
	repo := load(t)
	wide := map[string]bool{}
	for _, f := range widths(repo) {
		wide[f.what] = wide[f.what] || f.n > 16
	}
	for name, why := range rows {
		if !wide[name] || why == "" {
			t.Errorf("%s has no more than 16 fields, or no reason: remove it from the list of rows", name)
		}
	}
}
