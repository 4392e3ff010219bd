package ui

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/kagzi/kagzi"
)

// strandedPages are the page about runs that no worker can execute.
func (d *dashboard) strandedPages() []page {
	return []page{{
		path: "/stranded", action: Action{Verb: View, Object: OnOverview}, template: "stranded",
		live: []string{"stranded"}, look: d.stranded,
	}}
}

// A strandedList is the view model of that page.
type strandedList struct {
	Rows []strandedRow
	More int
	Runs int
	Any  bool // Runs is a part
}

// A strandedRow is a version of a workflow that no live worker of the queue has.
type strandedRow struct {
	kagzi.StrandedRuns
	Workers int      // live ones of the queue
	Others  []string // versions that these have of the workflow
	Queues  []string // other queues, of which live workers have the version
}

func (d *dashboard) stranded(ctx context.Context, _ query) (any, error) {
	all, err := d.client.Stranded(ctx)
	if err != nil || len(all) == 0 {
		return strandedList{}, err
	}
	var v strandedList
	slices.SortStableFunc(all, func(a, b kagzi.StrandedRuns) int {
		return cmp.Or(compareBool(a.DueAt.IsZero(), b.DueAt.IsZero()), a.DueAt.Compare(b.DueAt))
	})
	for _, s := range all {
		v.Runs, v.Any = v.Runs+s.Count, v.Any || s.More
	}
	all, v.More = bounded(all, mostRows)
	live, _, err := d.client.Workers(ctx, kagzi.WorkerFilter{Status: []string{"ONLINE"}, Limit: mostFleet})
	if err != nil {
		return nil, err
	}
	live = slices.DeleteFunc(live, func(w kagzi.WorkerInfo) bool { return w.Silent })
	for _, s := range all {
		v.Rows = append(v.Rows, advise(s, live))
	}
	return v, nil
}

// advise says what the live workers have in place of what the runs need.
func advise(s kagzi.StrandedRuns, live []kagzi.WorkerInfo) strandedRow {
	r := strandedRow{StrandedRuns: s}
	others, queues := map[string]int{}, []string{}
	for _, w := range live {
		inQueue := slices.Contains(w.Queues, s.Queue)
		if inQueue {
			r.Workers++
		}
		for _, h := range w.Handlers {
			name, version := handlerOf(h)
			switch {
			case name != s.Workflow:
			case inQueue:
				others[version]++
			case s.Version == 0 || version == strconv.Itoa(s.Version):
				queues = append(queues, w.Queues...)
			}
		}
	}
	for _, o := range counted(others) {
		r.Others = append(r.Others, o.Name)
	}
	slices.Sort(queues)
	r.Queues = slices.Compact(queues)
	return r
}

// Deploy returns the lines of Go that a worker needs.
func (r strandedRow) Deploy() string {
	version := ""
	if r.Version > 1 {
		version = ", kagzi.Version(" + strconv.Itoa(r.Version) + ")"
	}
	return "worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{Queue: " + strconv.Quote(r.Queue) + "})\n" +
		"kagzi.Handle(worker, kagzi.Define[In, Out](" + strconv.Quote(r.Workflow) + "), fn" + version + ")"
}
