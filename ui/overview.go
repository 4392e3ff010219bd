package ui

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// An overviewPage says whether the work goes on.
type overviewPage struct {
	admin *admin.Client
	rates *throughput
	names *runNames
	stats sharedStats
	links web.Links
}

// A sharedStats shares what Stats answers between the pages that show some of it.
type sharedStats struct {
	admin *admin.Client
	cache *web.Cache
}

// get returns the answer.
func (s sharedStats) get(ctx context.Context) (admin.Stats, error) {
	f := s.cache.Get(ctx, "stats", s.cache.Every, func(ctx context.Context) (any, error) { return s.admin.Stats(ctx) })
	stats, _ := f.View.(admin.Stats)
	return stats, f.Err
}

// inTime is get for a caller that does not wait longer than ctx.
func (s sharedStats) inTime(ctx context.Context) (admin.Stats, error) {
	f := s.cache.Peek("stats")
	if stats, ok := f.View.(admin.Stats); ok && f.Err == nil && time.Since(f.At) < s.cache.Every {
		return stats, nil
	}
	return s.admin.Stats(ctx)
}

// pages are that page.
func (p *overviewPage) pages() []web.Page {
	return []web.Page{{
		Path: "/", Action: asks(View, OnOverview), Template: "overview",
		Live: []string{"state", "throughput", "outcomes", "due", "latencies", "failures", "slots"}, Look: p.overview,
		Parts: []web.Part{
			{Name: "throughput", Every: 5 * time.Second, Look: p.rates.look},
			{Name: "outcomes", Every: 30 * time.Second, Look: p.outcomes},
			{Name: "latencies", Every: 10 * time.Second, Look: p.latencies},
		},
	}}
}

// An overview is the view model of that page.
type overview struct {
	Report   health.Report
	Wrong    []finding // the checks that are not healthy
	Fine     []health.Check
	Stats    admin.Stats
	Due      int
	DueMore  bool
	Running  int
	Sleeping int // or delayed
	More     bool
	Paused   int
	Backlog  []backlog
	Failures []failed
	Failed   int  // the sum of Failures
	New      bool // nothing was ever started
}

// A finding is what a check has found, with the page that helps. A check may find several things, such as pauses.
type finding struct {
	Name, Title string
	Status      health.Status // of the worst one
	Details     []string      // the worst first
	To          string        // path; empty if no page helps
	Link        string        // what the link says
}

// A backlog is one row of the table of queues.
type backlog struct {
	admin.WorkflowStats
	Workers, Slots, Used int // of the queue
	Stranded             bool
}

// A failed is one row of the table of failures.
type failed struct {
	Queue, Workflow string
	admin.FailStats
}

func (p *overviewPage) overview(ctx context.Context, q web.Query) (any, error) {
	if _, err := outcomeSpanOf(q); err != nil {
		return nil, err
	}
	stats, err := p.stats.get(ctx)
	if err != nil {
		return nil, err
	}
	report, err := p.admin.Health(ctx)
	if err != nil {
		return nil, err
	}
	v := overview{Report: report, Stats: stats}
	v.find()
	v.sum()
	for _, c := range report.Checks {
		if err := p.names.learn(ctx, runsIn(c.Detail)...); err != nil {
			return nil, err
		}
	}
	v.New = len(stats.Workflows) == 0 && stats.Workers.Live == 0
	return v, nil
}

// find fills the fields that follow from Report: a finding for each check that is not healthy, the worst first.
func (v *overview) find() {
	worst := slices.SortedStableFunc(slices.Values(v.Report.Checks), func(a, b health.Check) int {
		if a.Status.Worse(b.Status) {
			return -1
		} else if b.Status.Worse(a.Status) {
			return 1
		}
		return 0
	})
	for _, c := range worst {
		if c.Status == health.Healthy {
			v.Fine = append(v.Fine, c)
			continue
		}
		i := slices.IndexFunc(v.Wrong, func(f finding) bool { return f.Name == c.Name })
		if i < 0 {
			i = len(v.Wrong)
			v.Wrong = append(v.Wrong, findingOf(c))
		}
		v.Wrong[i].Details = append(v.Wrong[i].Details, c.Detail)
	}
	for i := range v.Wrong {
		v.Wrong[i].lead()
	}
}

// sum fills the fields that follow from Stats.
func (v *overview) sum() {
	queues := map[string]admin.QueueStats{}
	for _, q := range v.Stats.Queues {
		queues[q.Queue] = q
	}
	for _, w := range v.Stats.Workflows {
		v.Due, v.DueMore = v.Due+w.Due, v.DueMore || w.DueMore
		v.Running += w.Running
		v.Sleeping, v.More = v.Sleeping+w.Sleeping+w.Delayed, v.More || w.More
		v.Paused += w.Paused
		q := queues[w.Queue]
		v.Backlog = append(v.Backlog, backlog{w, q.Workers, q.Slots, q.Used, q.Workers == 0 && w.Due > 0})
		for _, f := range w.Failed {
			v.Failures = append(v.Failures, failed{w.Queue, w.Workflow, f})
			v.Failed += f.Runs
		}
	}
	slices.SortStableFunc(v.Backlog, func(a, b backlog) int {
		return cmp.Or(cmp.Compare(b.Due, a.Due), cmp.Compare(b.Running, a.Running),
			cmp.Compare(b.Sleeping+b.Delayed, a.Sleeping+a.Delayed))
	})
	slices.SortStableFunc(v.Failures, func(a, b failed) int { return cmp.Compare(b.Runs, a.Runs) })
}

// helps are the pages on which what a check has found is mended. The checks of one run lead to that run: see aboutRuns.
var helps = map[string][2]string{
	"compensations": {"/runs?status=failed&kind=compensation", "Show the runs"},
	"consumers":     {"/topics", "Show the consumers"},
	"database":      {"/doctor", "Ask the doctor"},
	"doubts":        {"/runs?waiting-on=doubt", "Show the runs that wait"},
	"events":        {"/topics", "Show the topics"},
	"failures":      {"/failures?within=1h", "Show the causes"},
	"histories":     {"/runs?waiting-on=history", "Show the runs"},
	"hung":          {"/workers", "Show the workers"},
	"inboxes":       {"/runs?status=active", "Show the active runs"},
	"keys":          {"/limits", "Show the limits"},
	"messages":      {"/runs?waiting-on=signal", "Show the runs that wait for messages"},
	"nested":        {"/workers", "Show the workers"},
	"pool":          {"/doctor", "Ask the doctor"},
	"schema":        {"/doctor", "Ask the doctor"},
	"strays":        {"/workers", "Show the workers"},
	"suspects":      {"/runs?waiting-on=recovery", "Show the runs"},
	"limits":        {"/limits", "Show the limits"},
	"pauses":        {"/limits", "Show the pauses"},
	"quarantined":   {"/failures?within=24h", "Show the causes"},
	"queues":        {"/workers", "Show the workers"},
	"schedules":     {"/schedules", "Show the schedules"},
	"work":          {"/workers", "Show the workers"},
	"workers":       {"/workers", "Show the workers"},
	"writable":      {"/doctor", "Ask the doctor"},
}

// aboutRuns are the checks whose findings are mended in runs.
var aboutRuns = []string{
	"compensations", "doubts", "histories", "inboxes", "messages", "nested", "quarantined", "suspects",
}

// checkTitles name the checks.
var checkTitles = map[string]string{
	"database": "Database", "pool": "Connections", "schema": "Schema", "writable": "Writing", "workers": "Workers",
	"queues":    "Queues",
	"schedules": "Schedules", "failures": "Failures", "quarantined": "Quarantine", "pauses": "Pauses",
	"limits": "Limits", "consumers": "Consumers",
	"events": "Events", "hung": "Hanging code", "keys": "Keys that stand still",
	"messages": "Messages that do not decode", "inboxes": "Runs that take no messages",
	"strays": "Runs that no worker reports", "doubts": "Steps in doubt",
	"nested": "Steps that wait for runs", "compensations": "Compensations", "histories": "Histories",
	"suspects": "Crash-loop suspects", "work": "Work of this process", "topics": "Topics",
}

// More returns how many things the check has found besides the first.
func (f finding) More() int { return len(f.Details) - 1 }

// lead leads to the run if there is only one.
func (f *finding) lead() {
	runs := runsIn(f.Details...)
	slices.Sort(runs)
	if runs = slices.Compact(runs); len(runs) == 1 && slices.Contains(aboutRuns, f.Name) {
		f.To, f.Link = "/runs/"+string(runs[0]), "Open the run"
	}
}

func findingOf(c health.Check) finding {
	help := helps[c.Name]
	return finding{
		Name: c.Name, Title: cmp.Or(checkTitles[c.Name], c.Name), Status: c.Status, To: help[0],
		Link: help[1],
	}
}

// latencies returns how long the runs of the last hour waited and took, the slowest workflows first.
func (p *overviewPage) latencies(ctx context.Context, _ web.Query) (any, error) {
	all, err := p.admin.Latencies(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b admin.Latency) int { return cmp.Compare(b.Took.P95, a.Took.P95) })
	return latencies{all}, nil
}

// A latencies is the view model of that part.
type latencies struct{ All []admin.Latency }
