package ui

import (
	"context"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
)

// bounded returns the first n elements, and how many there are besides.
func bounded[T any](all []T, n int) (shown []T, more int) {
	if len(all) <= n {
		return all, 0
	}
	return all[:n], len(all) - n
}

// contains reports whether a name contains what somebody searches for.
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
func (d *dashboard) recentRuns(ctx context.Context, f kagzi.RunFilter, pairs ...string) (recent, error) {
	f.Limit = mostRecent + 1
	runs, err := d.client.List(ctx, f)
	shown, more := bounded(runs, mostRecent)
	return recent{shown, query{url: "/runs"}.With(pairs...), more > 0}, err
}

// readingPages are the pages about all that is no run.
func (d *dashboard) readingPages() []page {
	return slices.Concat(d.schedulesPages(), d.topicsPages(), d.limitsPages(), d.workersPages(), d.strandedPages(),
		d.auditPages(), d.doctorPages())
}
