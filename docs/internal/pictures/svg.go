// Package pictures draws the pictures of the documentation: go test ./docs/internal/pictures -update writes them.
package pictures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// All pictures have the same width. It is small, so that a phone shows their texts large enough.
const width, lineHeight = 560, 21

// The tones are classes, each with a colour on light and one on dark pages: most are those of the dashboard.
var tones = [][3]string{
	{"paper", "#ffffff", "#171a20"},
	{"frame", "#cdd1d9", "#3b4250"},
	{"ink", "#1a1d24", "#e8eaf0"},
	{"soft", "#4b5160", "#b3b9c6"},
	{"past", "#646b7a", "#949cab"}, // recorded before
	{"pending", "#5f6675", "#a4acbb"},
	{"running", "#2563c9", "#79aaff"},
	{"sleeping", "#7a4fc0", "#bd9bf5"},
	{"completed", "#16794a", "#58c48c"},
	{"failed", "#c22b3a", "#ff8089"},
	{"cancelled", "#7a6a52", "#c9b28d"},
}

// The file has a background of its own, because a page may be light where the system is dark.
const file = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<style>
text{fill:currentColor;font:16px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
.name{font-weight:600}
.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.box{fill:currentColor;fill-opacity:.1;stroke:currentColor;stroke-width:1.5}
.line{fill:none;stroke:currentColor;stroke-width:1.5}
.dashed{stroke-dasharray:5 4}
.full{fill:currentColor}
.frame{stroke-width:1}
%[4]s@media (prefers-color-scheme:dark){
%[5]s}
</style>
<rect class="full paper" width="%[1]d" height="%[2]d" rx="10"/>
<rect class="line frame" x="1" y="1" width="%[6]d" height="%[7]d" rx="9"/>
%[8]s</svg>
`

// A picture is a file of docs. The class of a shape is a tone, with "code" or "dashed" if it is.
type picture struct {
	name, title string
	height      int
	boxes       []box
	arrows      []arrow
	texts       []text
}

// A box is a rectangle with centred lines of text. A later box covers the earlier ones.
type box struct {
	class      string
	x, y, w, h int
	texts      []text
}

// A text has its anchor (start, middle or end) at x, and its baseline at y.
type text struct {
	class, anchor string
	x, y          int
	words         string
}

// An arrow goes straight across and down, from point to point.
type arrow struct {
	class  string
	points [][2]int
}

// box draws a box around lines of text, of which the first is its name.
func (p *picture) box(class string, x, y, w, h int, lines ...string) {
	b := box{class, x, y, w, h, nil}
	class += " name"
	for i, words := range lines {
		b.texts = append(b.texts, text{class, "middle", x + w/2, y + h/2 + 6 + (2*i-len(lines)+1)*lineHeight/2, words})
		class = "soft"
	}
	p.boxes = append(p.boxes, b)
}

// write writes lines of text, one below the other.
func (p *picture) write(class, anchor string, x, y int, lines ...string) {
	for i, words := range lines {
		p.texts = append(p.texts, text{class, anchor, x, y + i*lineHeight, words})
	}
}

// arrow draws an arrow along the points, which are pairs of x and y.
func (p *picture) arrow(class string, points ...int) {
	a := arrow{class: class}
	for xy := range slices.Chunk(points, 2) {
		a.points = append(a.points, [2]int(xy))
	}
	p.arrows = append(p.arrows, a)
}

// message draws an arrow from one x to another, and words above it.
func (p *picture) message(class string, from, to, y int, words string) {
	p.arrow(class, from, y, to, y)
	p.write("ink", "middle", (from+to)/2, y-8, words)
}

// lifeline draws an actor, and below it the line on which its deeds stand, down to end.
func (p *picture) lifeline(class string, x, end int, actor string) {
	p.box(class, x-70, 20, 140, 40, actor)
	p.box("frame", x, 61, 1, end-61)
}

// svg returns the file.
func (p *picture) svg() string {
	var light, dark, body strings.Builder
	for _, t := range tones {
		fmt.Fprintf(&light, ".%s{color:%s}\n", t[0], t[1])
		fmt.Fprintf(&dark, ".%s{color:%s}\n", t[0], t[2])
	}
	texts := p.texts
	for _, b := range p.boxes {
		at := fmt.Sprintf(`x="%d" y="%d" width="%d" height="%d" rx="%d"`, b.x, b.y, b.w, b.h, min(7, b.w/2))
		fmt.Fprintf(&body, `<rect class="full paper" %s/><rect class="box %s" %[1]s/>`+"\n", at, b.class)
		texts = append(texts, b.texts...)
	}
	for _, a := range p.arrows {
		l, h := a.paths()
		fmt.Fprintf(&body, `<path class="line %s" d="%s"/><path class="full %[1]s" d="%[3]s"/>`+"\n", a.class, l, h)
	}
	for _, t := range texts {
		at := fmt.Sprintf(`x="%d" y="%d" text-anchor="%s"`, t.x, t.y, t.anchor)
		fmt.Fprintf(&body, `<text class="%s" %s>%s</text>`+"\n", t.class, at, t.words)
	}
	return fmt.Sprintf(file, width, p.height, p.title, &light, &dark, width-2, p.height-2, &body)
}

// paths returns the path of the arrow's line, with round corners, and that of its head, a triangle.
func (a arrow) paths() (line, head string) {
	last := len(a.points) - 1
	line = fmt.Sprintf("M%d %d", a.points[0][0], a.points[0][1])
	for i, at := range a.points[1:last] {
		from, to := toward(at, a.points[i], 8), toward(at, a.points[i+2], 8)
		line += fmt.Sprintf("L%d %dQ%d %d %d %d", from[0], from[1], at[0], at[1], to[0], to[1])
	}
	tip, base := a.points[last], toward(a.points[last], a.points[last-1], 10)
	x, y := (base[1]-tip[1])/2, (base[0]-tip[0])/2
	head = fmt.Sprintf("M%d %dL%d %dL%d %dZ", tip[0], tip[1], base[0]+x, base[1]+y, base[0]-x, base[1]-y)
	return line + fmt.Sprintf("L%d %d", base[0], base[1]), head
}

// toward returns the point that is so far from one point on the straight way to another.
func toward(from, to [2]int, far int) [2]int {
	return [2]int{from[0] + far*cmp.Compare(to[0], from[0]), from[1] + far*cmp.Compare(to[1], from[1])}
}
