package ui

import (
	"context"
	"net/url"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// bounded returns the first n elements, and how many there are besides.
func bounded[T any](all []T, n int) (shown []T, more int) {
	if len(all) <= n {
		return all, 0
	}
	return all[:n], len(all) - n
}

// contains reports whether a name contains the text that a visitor searches for.
func contains(name, part string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(part))
}

// A recent is the view model of the partial "recent-runs": some runs of a thing, newest first.
type recent struct {
	Runs []kagzi.RunInfo
	All  string // path of the list that has all of them
	More bool
}

// mostRecent is how many runs the pages of other things show.
const mostRecent = 20

// recentRuns returns the newest runs that f selects. pairs are the same selection as fields of the page Runs.
func recentRuns(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter, pairs ...string) (recent, error) {
	f.Limit = mostRecent + 1
	runs, err := c.List(ctx, f)
	shown, more := bounded(runs, mostRecent)
	return recent{shown, web.Query{URL: "/runs"}.With(pairs...), more > 0}, err
}

// at returns a path of the dashboard whose last segment is a name of the application.
func at(path, name string) string { return path + url.PathEscape(name) }

// pageSize is how many rows a list has.
const pageSize = 50

// mostRows is how many rows a table has that is not a list of its own.
const mostRows = 100

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
