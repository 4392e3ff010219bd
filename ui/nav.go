package ui

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A navItem is a link in the navigation.
type navItem struct {
	Title, Path, Icon string
	Current           bool
	Count             navCount // the zero one shows nothing
}

// A navCount says on every page that something needs an operator.
type navCount struct {
	tallied
	Tone string // as in badge
	What string // "failed within the last hour"
	Path string // what they are
}

// navigation is the order of the pages.
var navigation = []navItem{
	{Title: "Overview", Path: "/", Icon: "overview"},
	{Title: "Runs", Path: "/runs", Icon: "runs"},
	{Title: "Failures", Path: "/failures", Icon: "failures"},
	{Title: "Schedules", Path: "/schedules", Icon: "schedules"},
	{Title: "Topics", Path: "/topics", Icon: "topics"},
	{Title: "Limits", Path: "/limits", Icon: "limits"},
	{Title: "Workers", Path: "/workers", Icon: "workers"},
	{Title: "Stranded", Path: "/stranded", Icon: "stranded"},
	{Title: "Audit log", Path: "/audit", Icon: "audit"},
	{Title: "Doctor", Path: "/doctor", Icon: "doctor"},
}

// sections are the first elements of paths whose pages belong to another one's item of the navigation.
var sections = map[string]string{"consumers": "topics", "queues": "limits", "groups": "limits"}

// Nav returns the navigation of the page. Only viewers of the overview see its counts.
func (s *screen) Nav() (items []navItem) {
	counts := s.Tally().counts()
	for _, item := range navigation {
		item.Current = item.Path == "/"+cmp.Or(sections[s.Section()], s.Section())
		item.Count = counts[item.Title]
		items = append(items, item)
	}
	return items
}

// Tally returns the counts for the navigation; zero ones if they are not known, or not for the viewer.
func (s *screen) Tally() tally {
	t, _ := s.Part("nav").(tally)
	if !s.Sees(asks(View, OnOverview)) {
		return tally{}
	}
	return t
}

// A tallied is a number of runs, which may be a lower bound.
type tallied struct {
	N    int
	More bool
}

// A tally counts the runs that need an operator.
type tally struct {
	Failed   tallied // within the last hour
	Doubts   tallied // that wait until a step in doubt is resolved
	Paused   tallied // themselves, or due and stopped by a pause
	Stranded tallied
}

// counts returns the counts by the titles of the navigation.
func (t tally) counts() map[string]navCount {
	return map[string]navCount{
		"Runs":     {t.Doubts, "warning", "in doubt: a call of a step may have been made", "/runs?waiting-on=doubt"},
		"Failures": {t.Failed, "failed", "failed within the last hour", "/failures?within=1h"},
		"Limits":   {t.Paused, "warning", "paused, or due and stopped by a pause", "/limits"},
		"Stranded": {t.Stranded, "warning", "stranded: no live worker has their code", "/stranded"},
	}
}

// Title says what is counted.
func (c navCount) Title() string {
	return fmt.Sprintf("%s %s %s", atLeast(c.N, c.More), map[bool]string{true: "run", false: "runs"}[c.N == 1], c.What)
}

// tallies count the runs that need an operator, once for all pages.
type tallies struct {
	client *kagzi.Client
	admin  *admin.Client
	shared sharedStats
}

const (
	tallyEvery  = 5 * time.Second
	mostTallied = 100 // runs in doubt that are counted
)

// tallyTimeout bounds the counting, because pages wait for it. Tests wait longer, as their machine may be slow.
var tallyTimeout = time.Second

// look counts. If there are no statistics in time, the last counts stay. Other counts that do not come in time are
// zero: a page is better without a count than late.
func (p *tallies) look(ctx context.Context, _ web.Query) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, tallyTimeout)
	defer cancel()
	var t tally
	err := p.stats(ctx, &t)
	if err != nil {
		return nil, err
	}
	if err = p.doubts(ctx, &t); err == nil {
		err = p.stranded(ctx, &t)
	}
	if err != nil && !late(ctx, err) {
		return nil, err
	}
	return t, nil
}

func (p *tallies) stats(ctx context.Context, t *tally) error {
	stats, err := p.shared.inTime(ctx)
	for _, w := range stats.Workflows {
		t.Paused.N += w.Paused
		for _, f := range w.Failed {
			t.Failed = tallied{t.Failed.N + f.Runs, t.Failed.More || f.More}
		}
	}
	return err
}

// doubts counts the runs that wait for a person: they sleep.
func (p *tallies) doubts(ctx context.Context, t *tally) error {
	runs, err := p.client.List(ctx, kagzi.RunFilter{
		Status: []kagzi.Status{kagzi.StatusSleeping}, WaitingOn: "doubt", Limit: mostTallied,
	})
	t.Doubts = tallied{len(runs), len(runs) == mostTallied}
	return err
}

func (p *tallies) stranded(ctx context.Context, t *tally) error {
	all, err := p.admin.Stranded(ctx)
	for _, s := range all {
		t.Stranded = tallied{t.Stranded.N + s.Count, t.Stranded.More || s.More}
	}
	return err
}
