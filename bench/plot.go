package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

const plotWidth = 860

var colours = map[string]string{
	ours.name(): "#2563eb", riverTuned.name(): "#d97706", riverDefault.name(): "#fbbf24", dbosTuned.name(): "#059669",
	dbosDefault.name(): "#6ee7b7", dbosDirect.name(): "#0f766e", floor.name(): "#9ca3af",
	goWorkflowsTuned.name(): "#db2777", goWorkflowsDefault.name(): "#f9a8d4", temporal.name(): "#7c3aed",
	temporalLocal.name(): "#c4b5fd",
}

// plot returns an SVG of a group: the curves if there are any, else bars of the first value.
func plot(group []outcome) []byte {
	var body bytes.Buffer
	if slices.ContainsFunc(group, func(o outcome) bool { return o.curve() != nil }) {
		var curves []curve
		for _, o := range group {
			curves = append(curves, curve{o.subject, o.curve()})
		}
		return svg(&body, plotCurves(&body, group[0].figure.group+": milliseconds of a claim, by seconds", curves))
	}
	return svg(&body, plotBars(&body, group))
}

func svg(body *bytes.Buffer, height int) []byte {
	return fmt.Appendf(nil, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "+
		"font-family=\"sans-serif\" font-size=\"12\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n", plotWidth, height, body.Bytes())
}

type curve struct {
	name   string
	points []point
}

// curve returns that of the last round.
func (o outcome) curve() []point {
	if len(o.samples) == 0 {
		return nil
	}
	return o.samples[len(o.samples)-1].curve
}

// plotBars draws the median of each outcome as a bar, and the spread as a line. The bars of a figure have a scale of
// their own, because the figures' values lie far apart.
func plotBars(w *bytes.Buffer, group []outcome) (height int) {
	const left, length, bar = 180, 440, 18
	y := 24
	text(w, 8, y-6, "bold", group[0].figure.group+": "+group[0].figure.valueColumns()[0])
	for i, o := range group {
		if i == 0 || group[i-1].figure.name != o.figure.name {
			y += 24
			text(w, 8, y-6, "normal", o.figure.name)
		}
		largest := 0.0
		for _, other := range group {
			if other.figure.name == o.figure.name && !math.IsNaN(median(other.values(0))) {
				largest = max(largest, slices.Max(other.values(0)))
			}
		}
		v := o.values(0)
		text(w, 24, y+13, "normal", o.subject)
		if m := median(v); !math.IsNaN(m) {
			at := func(f float64) float64 { return left + length*max(f, 0)/max(largest, 1e-9) }
			fmt.Fprintf(w, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", left, y+1,
				at(m)-left, bar-3, colours[o.subject])
			fmt.Fprintf(w, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"black\"/>\n", at(slices.Min(v)),
				at(slices.Max(v)), y+8, y+8)
			text(w, left+length+12, y+13, "normal", spread(v))
		}
		y += bar
	}
	return y + 12
}

func plotCurves(w *bytes.Buffer, title string, curves []curve) (height int) {
	const left, top, width, tall = 60, 40, 760, 300
	var right, upper float64
	for _, c := range curves {
		for _, p := range c.points {
			right, upper = max(right, p.x), max(upper, p.y)
		}
	}
	x := func(f float64) float64 { return left + width*f/max(right, 1e-9) }
	y := func(f float64) float64 { return top + tall - tall*f/max(upper, 1e-9) }
	text(w, 8, 18, "bold", title)
	for i := range 5 {
		fy, fx := upper*float64(i)/4, right*float64(i)/4
		fmt.Fprintf(w, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e7eb\"/>\n", left, left+width,
			y(fy), y(fy))
		text(w, 8, int(y(fy))+4, "normal", short(fy))
		text(w, int(x(fx))-8, top+tall+18, "normal", fmt.Sprintf("%.0f", fx))
	}
	for i, c := range curves {
		var points string
		for _, p := range c.points {
			points += fmt.Sprintf("%.1f,%.1f ", x(p.x), y(p.y))
		}
		fmt.Fprintf(w, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", points,
			colours[c.name])
		fmt.Fprintf(w, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", left+10, top+18*i,
			colours[c.name])
		text(w, left+28, top+18*i+11, "normal", c.name)
	}
	return top + tall + 32
}

func text(w *bytes.Buffer, x, y int, weight, s string) {
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" font-weight=\"%s\">%s</text>\n", x, y, weight, html.EscapeString(s))
}
