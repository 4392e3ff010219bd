package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A runsPage is the list of runs.
type runsPage struct {
	client *kagzi.Client
	admin  *admin.Client
	names  *runNames
	cache  *web.Cache
}

// pages are the pages about several runs.
func (p *runsPage) pages() []web.Page {
	return []web.Page{{
		Path: "/runs", Action: asks(View, OnRun), Template: "runs",
		Live: []string{"tabs", "rows"}, Look: p.runs,
		Parts: []web.Part{{Name: "tabs", Every: 2 * time.Second, Look: p.runCounts}},
	}}
}

// A runList is the view model of the list of runs.
type runList struct {
	Wrong     string // the error of the filter; empty if there is none
	Filtered  bool   // not all runs are asked for
	More      bool   // fields beyond the usual ones are set
	Runs      []kagzi.RunInfo
	Pauses    []admin.Pause
	Behind    map[kagzi.RunID]string // the runs that runs wait behind
	Hidden    int                    // runs that were read for the page and are not shown
	Next      string                 // path of the next page; empty on the last one
	First     bool                   // this is the first page
	Workflows []string
	Queues    []string
	Kinds     []string
	Suggested map[string][]string // for other fields, by their names
}

func (p *runsPage) runs(ctx context.Context, q web.Query) (any, error) {
	v := runList{First: q.Get("after") == "", More: q.Has(rareFields...)}
	v.Filtered = q.Has("hide") || q.Has(runFields...)
	v.suggest(ctx, sharedStats{p.admin, p.cache})
	f, err := runFilter(q, time.Now())
	if err == nil {
		err = wrongSort(q)
	}
	if err != nil {
		v.Wrong = web.Sentence(err)
		return v, nil
	}
	h, err := p.hidingOf(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := v.sift(ctx, p.client, q, f, h); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(v.Runs, func(r kagzi.RunInfo) bool { return r.Status == kagzi.StatusPending }) {
		if v.Pauses, err = p.admin.Pauses.List(ctx); err != nil {
			return nil, err
		}
	}
	if v.Behind, err = p.behind(ctx, v.Runs); err != nil {
		return nil, err
	}
	v.Suggested = suggestFrom(v.Runs)
	p.names.note(v.Runs...)
	var parents []kagzi.RunID
	for _, r := range v.Runs {
		parents = append(parents, r.Parent)
	}
	return v, p.names.learn(ctx, parents...)
}

// suggest fills the suggestions of the form's fields from runs that are active or have failed lately. Without them the
// form works as well.
func (v *runList) suggest(ctx context.Context, shared sharedStats) {
	stats, err := shared.get(ctx)
	if err != nil {
		return
	}
	workflows, queues, kinds := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, w := range stats.Workflows {
		workflows[w.Workflow], queues[w.Queue] = true, true
		for _, f := range w.Failed {
			kinds[f.Kind] = true
		}
	}
	for _, q := range stats.Queues {
		queues[q.Queue] = true
	}
	for _, k := range usualKinds {
		kinds[string(k)] = true
	}
	v.Workflows, v.Queues, v.Kinds = slices.Sorted(maps.Keys(workflows)), slices.Sorted(maps.Keys(queues)),
		slices.Sorted(maps.Keys(kinds))
}

// A tabs is the view model of the counts per status.
type tabs struct {
	Counts  map[string]int // by the names of statuses
	TooMany bool           // to be counted in time
}

// countTimeout bounds the counting, which reads all runs that the filter selects. Tests wait longer, as their machine
// may be slow.
var countTimeout = 2 * time.Second

// late reports whether err says that the time of ctx is over. A connection may notice that before the context does.
func late(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
}

// runCounts counts the runs that the filter selects, whatever their status.
func (p *runsPage) runCounts(ctx context.Context, q web.Query) (any, error) {
	f, err := runFilter(q, time.Now())
	if err != nil {
		return tabs{}, nil
	}
	f.Status, f.After = nil, ""
	look := ctx
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	h, err := p.hidingOf(ctx, q)
	if err != nil {
		return nil, err
	}
	if h.compensations { // no count is without them
		return tabs{}, nil
	}
	by := []admin.CountBy{admin.ByStatus}
	if h.any() {
		by = append(by, admin.ByWorkflow)
	}
	counts, err := p.admin.Runs.Count(ctx, f, by...)
	if err != nil && late(ctx, err) {
		// in an outage the counts before it stay
		_, err = p.client.List(look, kagzi.RunFilter{Limit: 1})
		return tabs{TooMany: true}, err
	}
	if err != nil {
		return nil, err
	}
	t := tabs{Counts: map[string]int{"": 0}}
	for name, same := range deeds.Statuses {
		t.Counts[name] = 0
		for _, c := range counts {
			if slices.Contains(same, c.Status) && !h.consumers[c.Workflow] {
				t.Counts[name] += c.Runs
			}
		}
	}
	t.Counts[""] = t.Counts["active"] + t.Counts["ended"]
	return t, nil
}

// A tab is a link to the runs of a status, among those that the filter selects.
type tab struct {
	Name, Title string
	Current     bool
	Count       string // empty if it is not known
}

// Tabs returns the links to the statuses of a list of runs.
func (s *screen) Tabs() (out []tab) {
	counted, _ := s.Part("tabs").(tabs)
	for _, name := range append([]string{""}, statusNames...) {
		t := tab{Name: name, Title: statusTitle(name), Current: s.Query.Get("status") == name}
		if n, ok := counted.Counts[name]; ok {
			t.Count = count(n)
		}
		out = append(out, t)
	}
	return out
}

// Selection returns the fields that select the runs of the list, for the form of a change of all of them.
func (s *screen) Selection() string { return selection(s.Query) }

func statusTitle(name string) string {
	if name == "" {
		return "All"
	}
	return fmt.Sprintf("%c%s", name[0]-'a'+'A', name[1:])
}
