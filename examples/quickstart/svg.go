package main

import (
	"bytes"
	"fmt"
	"html"
	"time"
)

// The sizes of the picture, in pixels. It has a background of its own, so that it is legible on light and dark pages.
const (
	pictureWidth = 800
	margin       = 24
	lineHeight   = 24
	chartLeft    = 110
	chartWidth   = pictureWidth - chartLeft - margin
	laneHeight   = 44
	slices       = 96 // bars of a lane
)

var laneColors = []string{"#79c0ff", "#7ee787"}

// draw returns a picture in SVG: how many steps each worker executed over time, the kill, and the table.
func draw(s *show, executions []execution, rows []row) []byte {
	chart := 72
	table := chart + len(workers)*(laneHeight+16) + 40
	height := table + len(rows)*lineHeight + 40
	var b bytes.Buffer
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" `+
			`font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">`+"\n",
		pictureWidth, height)
	fmt.Fprintf(&b, `<title>%d checkouts, two workers, one killed with kill -9</title>`+"\n", checkouts)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", pictureWidth, height)
	label(&b, margin, 36, "#e6edf3", "start", "$ go run -C examples/quickstart .")
	label(&b, pictureWidth-margin, 36, "#8b949e", "end", fmt.Sprintf("%d checkouts, two worker processes", checkouts))

	length := s.finished.Sub(s.began)
	for i, name := range workers {
		bottom := chart + (i+1)*laneHeight + i*16
		label(&b, margin, bottom-laneHeight/2+5, laneColors[i], "start", name)
		drawLane(&b, perSlice(executions, name, s.began, length), bottom, laneColors[i])
	}
	end := chart + len(workers)*(laneHeight+16)
	killed := chartLeft + int(float64(chartWidth)*float64(s.killed.Sub(s.began))/float64(length))
	fmt.Fprintf(&b, `<line x1="%d" x2="%[1]d" y1="%d" y2="%d" stroke="#ff7b72" stroke-width="2"/>`+"\n", killed,
		chart-8, end)
	label(&b, killed+8, chart+6, "#ff7b72", "start", "kill -9 "+s.victim)
	label(&b, chartLeft, end+8, "#8b949e", "start", "0 s; each bar counts the steps begun")
	label(&b, pictureWidth-margin, end+8, "#8b949e", "end", fmt.Sprintf("%.1f s", length.Seconds()))

	for i, r := range rows {
		y := table + i*lineHeight + 12
		label(&b, margin, y, "#e6edf3", "start", r.name)
		label(&b, margin+240, y, "#e6edf3", "end", r.found)
		label(&b, margin+264, y, "#8b949e", "start", r.remark)
	}
	label(&b, margin, height-22, "#7ee787", "start", "Every promise was kept.")
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func label(b *bytes.Buffer, x, y int, color, anchor, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s" text-anchor="%s">%s</text>`+"\n", x, y, color, anchor,
		html.EscapeString(text))
}

// perSlice counts the steps that a worker began in each slice of the time.
func perSlice(executions []execution, worker string, began time.Time, length time.Duration) (counts [slices]int) {
	for _, e := range executions {
		if e.worker == worker {
			at := int(e.at.Sub(began) * slices / length)
			counts[max(0, min(at, slices-1))]++
		}
	}
	return counts
}

func drawLane(b *bytes.Buffer, counts [slices]int, bottom int, color string) {
	const fullLane = 25 // steps; a higher bar is truncated
	fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%d" y2="%[3]d" stroke="#30363d"/>`+"\n", chartLeft, chartLeft+
		chartWidth, bottom)
	for i, n := range counts {
		if n == 0 {
			continue
		}
		height := max(2, min(n, fullLane)*laneHeight/fullLane)
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
			chartLeft+float64(i*chartWidth)/slices, bottom-height, float64(chartWidth)/slices-1, height, color)
	}
}
