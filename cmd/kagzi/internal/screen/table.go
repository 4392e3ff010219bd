package screen

import (
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// A Column is a column of a [Table].
type Column struct {
	Title string
	// Min is the width to which the column may be cut if the terminal is narrow. Zero means that its cells are never
	// cut, as they are names that people copy.
	Min int
	// Drop says which columns are left out first if cutting does not suffice: those with the highest. Zero means never.
	Drop  int
	Right bool // numbers
}

// A Cell is a text with a tone.
type Cell struct {
	Text string
	Tone Tone
}

// A Table collects rows and writes them with aligned columns.
type Table struct {
	screen  *Screen
	columns []Column
	rows    [][]Cell
}

// Table returns an empty table for the screen.
func (s *Screen) Table(columns ...Column) *Table { return &Table{screen: s, columns: columns} }

// Row adds a row: for each column a Cell, or a value that fmt prints.
func (t *Table) Row(cells ...any) {
	row := make([]Cell, len(t.columns))
	for i, c := range cells {
		cell, ok := c.(Cell)
		if !ok {
			cell.Text = fmt.Sprint(c)
		}
		cell.Text = Line(cell.Text)
		row[i] = cell
	}
	t.rows = append(t.rows, row)
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// gap is between two columns.
const gap = 2

// Print writes the table to the screen's Out.
func (t *Table) Print() error {
	_, err := io.WriteString(t.screen.Out, t.String())
	return err
}

// String returns the table with its header.
func (t *Table) String() string {
	widths := t.fit()
	var b strings.Builder
	header := make([]Cell, len(t.columns))
	for i, c := range t.columns {
		header[i] = Cell{c.Title, Faint}
	}
	t.line(&b, widths, header)
	for _, row := range t.rows {
		t.line(&b, widths, row)
	}
	return b.String()
}

// fit returns the widths of the columns. A column with width zero is left out: it is empty in all rows, or there is no
// room.
func (t *Table) fit() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		for _, row := range t.rows {
			widths[i] = max(widths[i], lipgloss.Width(row[i].Text))
		}
		if widths[i] > 0 || len(t.rows) == 0 {
			widths[i] = max(widths[i], lipgloss.Width(c.Title))
		}
	}
	if t.screen.Width == 0 {
		return widths
	}
	for over := total(widths) - t.screen.Width; over > 0; over = total(widths) - t.screen.Width {
		widest, dropped := -1, -1
		for i, c := range t.columns {
			if c.Min > 0 && widths[i] > c.Min && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
			if c.Drop > 0 && widths[i] > 0 && (dropped < 0 || c.Drop > t.columns[dropped].Drop) {
				dropped = i
			}
		}
		switch {
		case widest >= 0:
			widths[widest]--
		case dropped >= 0:
			widths[dropped] = 0
			t.widen(widths)
		default:
			return widths // the terminal wraps the lines
		}
	}
	return widths
}

// widen gives the columns that were cut their full widths again, after another one was left out.
func (t *Table) widen(widths []int) {
	for i, c := range t.columns {
		if widths[i] == 0 || c.Min == 0 {
			continue
		}
		widths[i] = lipgloss.Width(c.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], lipgloss.Width(row[i].Text))
		}
	}
}

// total returns the columns that a line has.
func total(widths []int) (n int) {
	for _, w := range widths {
		if w > 0 {
			n += w + gap
		}
	}
	return n - gap
}

func (t *Table) line(b *strings.Builder, widths []int, row []Cell) {
	var line strings.Builder
	pad := 0
	for i, c := range row {
		if widths[i] == 0 {
			continue
		}
		text := Cut(c.Text, widths[i])
		space := widths[i] - lipgloss.Width(text)
		if t.columns[i].Right {
			pad, space = pad+space, 0
		}
		line.WriteString(strings.Repeat(" ", pad) + t.screen.Paint(c.Tone, text))
		pad = space + gap
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}
