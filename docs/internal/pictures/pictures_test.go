package pictures

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pictures into docs")

// docs is the folder of the pictures, and of the pages that show them.
const docs = "../.."

func TestPicturesAreUpToDate(t *testing.T) {
	t.Parallel()
	for _, draw := range all {
		p := draw()
		file := filepath.Join(docs, p.name)
		if *update {
			if err := os.WriteFile(file, []byte(p.svg()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if there, err := os.ReadFile(file); err != nil || string(there) != p.svg() {
			t.Errorf("docs/%s is not what this package draws (%v): run this test with -update", p.name, err)
		}
	}
}

// A reader who does not see a picture has its alternative text.
func TestPagesShowPictures(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	var text []byte
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, content...)
	}
	for _, draw := range all {
		name := draw().name
		shown := regexp.MustCompile(`!\[([^\]]*)\]\(`+regexp.QuoteMeta(name)+`\)`).FindAllSubmatch(text, -1)
		if len(shown) == 0 {
			t.Errorf("no page shows %s", name)
		}
		for _, s := range shown {
			if len(bytes.Fields(s[1])) < 6 {
				t.Errorf("the alternative text of %s, %q, does not say what it shows", name, s[1])
			}
		}
	}
}

// A new status needs a place in the life of a run.
func TestLifeHasAllStates(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), docs+"/../run_info.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	states := 0
	ast.Inspect(file, func(n ast.Node) bool {
		c, ok := n.(*ast.ValueSpec)
		if !ok || len(c.Values) != 1 || !strings.HasPrefix(c.Names[0].Name, "Status") ||
			c.Names[0].Name == "StatusInDoubt" { // that of a step
			return true
		}
		if value, ok := c.Values[0].(*ast.BasicLit); ok {
			states++
			if !slices.ContainsFunc(life().boxes, func(b box) bool {
				return len(b.texts) > 0 && fmt.Sprintf("%q", b.texts[0].words) == value.Value
			}) {
				t.Errorf("life.svg lacks kagzi.%s", c.Names[0].Name)
			}
		}
		return true
	})
	if states == 0 {
		t.Error("no status was found")
	}
}

func TestPicturesAreLegible(t *testing.T) {
	t.Parallel()
	for _, draw := range all {
		p := draw()
		if err := xml.Unmarshal([]byte(p.svg()), new(struct{})); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		if heads := strings.Count(p.svg(), `Z"/>`); heads != len(p.arrows) {
			t.Errorf("%s has %d heads for %d arrows", p.name, heads, len(p.arrows))
		}
		for _, problem := range problems(p) {
			t.Errorf("%s: %s", p.name, problem)
		}
	}
	wrong := &picture{height: 100}
	wrong.box("ink", 20, 20, 60, 40, "too long for it")
	wrong.write("ink", "start", 500, 50, "over the edge")
	wrong.write("ink", "start", 20, 80, "one")
	wrong.write("ink", "start", 30, 80, "upon another")
	wrong.write("ink", "start", 70, 40, "half inside")
	wrong.arrow("ink", 200, 10, 300, 10)
	wrong.arrow("ink", 40, 20, 40, 90)
	wrong.arrow("purple", 20, 20, 40, 40)
	found := strings.Join(problems(wrong), "\n")
	for _, problem := range []string{
		`"too long for it" overflows its box`, `"over the edge" overflows`, `"upon another" is on "one"`,
		`"half inside" is on the edge of a box`, "[200 10] is in the air", "crosses \"one\"", `no tone "purple"`,
		"neither across nor down",
	} {
		if !strings.Contains(found, problem) {
			t.Errorf("the test does not find that %s, only:\n%s", problem, found)
		}
	}
}

// An area has its left upper and right lower corner.
type area struct{ x0, y0, x1, y1 int }

func (a area) meets(b area) bool { return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1 }
func (a area) has(b area) bool   { return a.x0 <= b.x0 && b.x1 <= a.x1 && a.y0 <= b.y0 && b.y1 <= a.y1 }

// area returns where the text is if its letters are as wide as those of DejaVu, the widest of the usual fonts.
func (t text) area() area {
	w := 0.0
	for _, r := range t.words {
		switch {
		case strings.Contains(t.class, "code"):
			w += 9.7
		case strings.ContainsRune("fijlrt ,.:;'-", r):
			w += 6
		case strings.ContainsRune("mwMW", r):
			w += 15
		default:
			w += 10.2
		}
	}
	if strings.Contains(t.class, "name") && !strings.Contains(t.class, "code") {
		w *= 1.1
	}
	x := t.x
	switch t.anchor {
	case "middle":
		x -= int(w / 2)
	case "end":
		x -= int(w)
	}
	return area{x, t.y - 13, x + int(w), t.y + 4}
}

func (x box) area() area { return area{x.x, x.y, x.x + x.w, x.y + x.h} }

// problems returns what a reader or a designer would complain about.
func problems(p *picture) (all []string) {
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	classes := []string{"name", "code", "dashed"}
	for _, t := range tones {
		classes = append(classes, t[0])
	}
	known := func(class string) {
		for _, c := range strings.Fields(class) {
			if !slices.Contains(classes, c) {
				complain("there is no tone %q", c)
			}
		}
	}
	texts := slices.Clone(p.texts)
	for _, b := range p.boxes {
		known(b.class)
		inner := area{b.x + 6, b.y + 3, b.x + b.w - 6, b.y + b.h - 3}
		for _, t := range b.texts {
			if !inner.has(t.area()) {
				complain("%q overflows its box", t.words)
			}
		}
		for _, t := range p.texts {
			if b.area().meets(t.area()) && !b.area().has(t.area()) {
				complain("%q is on the edge of a box", t.words)
			}
		}
		texts = append(texts, b.texts...)
	}
	for i, t := range texts {
		known(t.class)
		if !(area{12, 12, width - 12, p.height - 12}).has(t.area()) {
			complain("%q overflows the picture", t.words)
		}
		for _, other := range texts[:i] {
			if t.area().meets(other.area()) {
				complain("%q is on %q", t.words, other.words)
			}
		}
	}
	for _, a := range p.arrows {
		known(a.class)
		last := a.points[len(a.points)-1]
		for i, to := range a.points[1:] {
			from := a.points[i]
			if from[0] != to[0] && from[1] != to[1] {
				complain("the line from %v to %v goes neither across nor down", from, to)
			}
			for _, t := range texts {
				part := area{min(from[0], to[0]), min(from[1], to[1]), max(from[0], to[0]) + 1, max(from[1], to[1]) + 1}
				if part.meets(t.area()) {
					complain("the arrow to %v crosses %q", last, t.words)
				}
			}
		}
		for _, end := range [][2]int{a.points[0], last} {
			if !p.attached(end) {
				complain("the end of an arrow at %v is in the air", end)
			}
		}
	}
	return all
}

// attached reports whether a point is on the edge of a box.
func (p *picture) attached(at [2]int) bool {
	return slices.ContainsFunc(p.boxes, func(b box) bool {
		return b.area().has(area{at[0], at[1], at[0], at[1]}) &&
			(at[0] == b.x || at[0] == b.x+b.w || at[1] == b.y || at[1] == b.y+b.h)
	})
}
