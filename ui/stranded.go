package ui

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A strandedPage is about runs that no worker can execute.
type strandedPage struct {
	admin *admin.Client
}

// pages are that page.
func (p *strandedPage) pages() []web.Page {
	return []web.Page{{
		Path: "/stranded", Action: asks(View, OnOverview), Template: "stranded",
		Live: []string{"stranded"}, Look: p.stranded,
	}}
}

// A strandedList is the view model of that page.
type strandedList struct {
	Queues []strandedQueue
	More   int // versions besides those that are shown
	Runs   int
	Any    bool // Runs is a part
}

// A strandedQueue has the stranded runs of a queue.
type strandedQueue struct {
	Queue   string
	Workers int // live ones
	Rows    []strandedRow
	Pauses  []admin.Pause // of the queue, or of its workflows
}

// A strandedRow is a version of a workflow that no live worker of the queue has.
type strandedRow struct {
	admin.StrandedRuns
	Others []string // versions that live workers of the queue have of the workflow
	Queues []string // other queues, of which live workers have the version
}

func (p *strandedPage) stranded(ctx context.Context, _ web.Query) (any, error) {
	all, err := p.admin.Stranded(ctx)
	if err != nil || len(all) == 0 {
		return strandedList{}, err
	}
	var v strandedList
	slices.SortStableFunc(all, func(a, b admin.StrandedRuns) int {
		return cmp.Or(compareBool(a.DueAt.IsZero(), b.DueAt.IsZero()), a.DueAt.Compare(b.DueAt))
	})
	for _, s := range all {
		v.Runs, v.Any = v.Runs+s.Count, v.Any || s.More
	}
	all, v.More = bounded(all, mostRows)
	live, _, err := p.admin.Workers.List(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}, Limit: mostFleet})
	if err != nil {
		return nil, err
	}
	pauses, err := p.admin.Pauses.List(ctx)
	if err != nil {
		return nil, err
	}
	live = slices.DeleteFunc(live, func(w admin.WorkerInfo) bool { return w.Silent })
	for _, s := range all {
		v.add(s, live, pauses)
	}
	return v, nil
}

// add puts the runs into their queue. The queue whose runs are due first stands first.
func (v *strandedList) add(s admin.StrandedRuns, live []admin.WorkerInfo, pauses []admin.Pause) {
	i := slices.IndexFunc(v.Queues, func(q strandedQueue) bool { return q.Queue == s.Queue })
	if i < 0 {
		q := strandedQueue{Queue: s.Queue}
		for _, w := range live {
			if slices.Contains(w.Queues, s.Queue) {
				q.Workers++
			}
		}
		i, v.Queues = len(v.Queues), append(v.Queues, q)
	}
	q := &v.Queues[i]
	q.Rows = append(q.Rows, advise(s, live))
	for _, p := range pauses {
		ofQueue := explain.Holds(p, kagzi.RunInfo{Queue: s.Queue, Workflow: s.Workflow})
		if ofQueue && !slices.Contains(q.Pauses, p) {
			q.Pauses = append(q.Pauses, p)
		}
	}
}

// advise says what the live workers have in place of what the runs need.
func advise(s admin.StrandedRuns, live []admin.WorkerInfo) strandedRow {
	r := strandedRow{StrandedRuns: s}
	others, queues := map[string]int{}, []string{}
	for _, w := range live {
		inQueue := slices.Contains(w.Queues, s.Queue)
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
	r.Others = countedNames(others)
	slices.Sort(queues)
	r.Queues = slices.Compact(queues)
	return r
}

// Other reports whether the live workers of the queue have other versions of one of the workflows.
func (q strandedQueue) Other() bool {
	return slices.ContainsFunc(q.Rows, func(r strandedRow) bool { return len(r.Others) > 0 })
}

// Elsewhere reports whether live workers of other queues have the code of one of the workflows.
func (q strandedQueue) Elsewhere() bool {
	return slices.ContainsFunc(q.Rows, func(r strandedRow) bool { return len(r.Others) == 0 && len(r.Queues) > 0 })
}

// Missing reports whether no live worker has any code of one of the workflows.
func (q strandedQueue) Missing() bool {
	return slices.ContainsFunc(q.Rows, func(r strandedRow) bool { return len(r.Others)+len(r.Queues) == 0 })
}

// Deploy returns the lines of Go that a worker of the queue needs.
func (q strandedQueue) Deploy() string {
	code := "worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{Queue: " + strconv.Quote(q.Queue) + "})"
	for _, r := range q.Rows {
		version := ""
		if r.Version > 1 {
			version = ", kagzi.Version(" + strconv.Itoa(r.Version) + ")"
		}
		code += "\nkagzi.Handle(worker, kagzi.Define[In, Out](" + strconv.Quote(r.Workflow) + "), fn" + version + ")"
	}
	return code
}
