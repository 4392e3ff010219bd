package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// printJSON prints one value.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.screen.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// A listing says how the items of a list are shown.
type listing[T any] struct {
	columns []screen.Column
	row     func(T) []any
	none    string // what people read if there is no item
}

// print prints the items as a table, or as a JSON array with one element in each line. It returns their number.
func (l listing[T]) print(a *app, items iter.Seq2[T, error]) (n int, err error) {
	if a.json {
		return printArray(a.screen.Out, items)
	}
	t := a.screen.Table(l.columns...)
	for item, err := range items {
		if err != nil {
			return 0, err
		}
		t.Row(l.row(item)...)
	}
	if t.Len() == 0 {
		a.say("%s", l.none)
		return 0, nil
	}
	return t.Len(), t.Print()
}

func printArray[T any](w io.Writer, items iter.Seq2[T, error]) (n int, err error) {
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

// each returns the items of a slice.
func each[T any](items []T) iter.Seq2[T, error] {
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

// pages returns up to limit items, all if that is zero. next returns a page of up to n items after the last one, which
// is nil for the first page.
func pages[T any](limit int, next func(n int, last *T) ([]T, error)) iter.Seq2[T, error] {
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

// done prints what a command has changed: a sentence for people, or v as JSON.
func (a *app) done(v any, format string, args ...any) error {
	if a.json {
		return a.printJSON(v)
	}
	return a.screen.Printf(format, args...)
}
