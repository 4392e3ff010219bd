package command

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// PrintJSON prints one value.
func (p *Program) PrintJSON(v any) error {
	e := json.NewEncoder(p.Screen.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// A Listing says how the items of a list are shown.
type Listing[T any] struct {
	Columns []screen.Column
	Row     func(T) []any
	None    string // what people read if there is no item
}

// Print prints the items as a table, or as a JSON array with one element in each line. It returns their number.
func (l Listing[T]) Print(p *Program, items iter.Seq2[T, error]) (n int, err error) {
	if p.JSON {
		return PrintArray(p.Screen.Out, items)
	}
	t := p.Screen.Table(l.Columns...)
	for item, err := range items {
		if err != nil {
			return 0, err
		}
		t.Row(l.Row(item)...)
	}
	if t.Len() == 0 {
		p.Say("%s", l.None)
		return 0, nil
	}
	return t.Len(), t.Print()
}

// PrintArray prints the items as a JSON array with one element in each line.
func PrintArray[T any](w io.Writer, items iter.Seq2[T, error]) (n int, err error) {
	before := "["
	for item, err := range items {
		if err != nil {
			return n, err
		}
		line, err := json.Marshal(item)
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n  %s", before, line)
		}
		if err != nil {
			return n, err
		}
		before = ","
		n++
	}
	end := "\n]\n"
	if n == 0 {
		end = "[]\n"
	}
	_, err = io.WriteString(w, end)
	return n, err
}

// Each returns the items of a slice.
func Each[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// mostPerPage is the largest page that a list asks for.
const mostPerPage = 500

// Pages returns up to limit items, all if that is zero. next returns a page of up to n items after the last one, which
// is nil for the first page.
func Pages[T any](limit int, next func(n int, last *T) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *T
		for seen := 0; limit == 0 || seen < limit; {
			n := mostPerPage
			if limit > 0 {
				n = min(n, limit-seen)
			}
			page, err := next(n, last)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if len(page) < n {
				return
			}
			last, seen = &page[n-1], seen+n
		}
	}
}

// Done prints what a command has changed: a sentence for people, or v as JSON.
func (p *Program) Done(v any, format string, args ...any) error {
	if p.JSON {
		return p.PrintJSON(v)
	}
	return p.Screen.Printf(format, args...)
}

// Say prints a message for people to stderr.
func (p *Program) Say(format string, args ...any) {
	fmt.Fprintln(p.Screen.Err, screen.Fill(fmt.Sprintf(format, args...), p.Screen.Live, 0))
}

// PrintFields prints names and values in two columns. Empty values are left out.
func (p *Program) PrintFields(fields [][2]string) error {
	for _, f := range fields {
		if f[1] == "" {
			continue
		}
		if err := p.Screen.Printf("%s %s", p.Screen.Paint(screen.Faint, fmt.Sprintf("%-14s", f[0])), f[1]); err != nil {
			return err
		}
	}
	return nil
}

// A NamedChange is what the change of something with a name prints as JSON.
type NamedChange struct {
	Verb    string `json:"verb"`
	Name    string `json:"name"`
	Already bool   `json:"already,omitempty"` // it was so before
}
