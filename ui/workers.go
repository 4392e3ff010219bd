package ui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// workerPages are about the workers and their code.
type workerPages struct {
	client *kagzi.Client
	admin  *admin.Client
}

// pages are those pages.
func (p *workerPages) pages() []web.Page {
	return []web.Page{
		{
			Path: "/workers", Action: asks(View, OnWorker), Template: "workers",
			Live: []string{"worker-counts", "worker-rows", "versions"}, Look: p.workers,
			Parts: []web.Part{{Name: "versions", Every: 5 * time.Second, Look: p.versions}},
		},
		{
			Path: "/workers/{id}", Action: asks(View, OnWorker), Template: "worker",
			Live: []string{"worker-buttons", "worker-state", "worker-runs", "worker-log", "changed"}, Look: p.worker,
			Parts: []web.Part{{Name: "worker-runs", Every: 3 * time.Second, Look: p.workerRuns}},
		},
	}
}

// workerStates are the values of the field status, in the order of the tabs.
var workerStates = []workerState{
	{"", "Live and recent", []string{"ONLINE", "DRAINING"}},
	{"draining", "Draining", []string{"DRAINING"}},
	{"offline", "Offline", []string{"OFFLINE"}},
	{"all", "All", nil},
}

type workerState struct {
	Name, Title string
	status      []string
}

// A workerList is the view model of the list of workers.
type workerList struct {
	Wrong    string
	Workers  []workerRow
	Total    int
	Stopped  int // of Workers, besides Total, those that have stopped lately
	Loops    []workerLoop
	Status   string
	States   []workerState
	Next     string
	First    bool
	Filtered bool
	Live     int
	Draining int
	Silent   int
	Hung     int
	Active   int
	Most     int
}

// A workerRow is a worker with what the page says about it.
type workerRow struct {
	admin.WorkerInfo
	Tone, State string
}

func (p *workerPages) workers(ctx context.Context, q web.Query) (any, error) {
	v := workerList{
		States: workerStates, Status: q.Get("status"), First: q.Get("after") == "",
		Filtered: q.Has("queue", "workflow", "label"),
	}
	i := slices.IndexFunc(workerStates, func(s workerState) bool { return s.Name == v.Status })
	labels, err := pairs(q.Values["label"])
	if err == nil && i < 0 {
		err = web.BadRequest("There is no status %q: use draining, offline or all, or leave it out.", v.Status)
	}
	if err != nil {
		v.Wrong = web.Sentence(err)
		return v, nil
	}
	f := admin.WorkerFilter{
		Status: workerStates[i].status, Queue: q.Get("queue"), Workflow: q.Get("workflow"),
		Labels: labels, After: q.Get("after"), Limit: pageSize + 1,
	}
	all, total, err := p.admin.Workers.List(ctx, f)
	if err != nil {
		return nil, err
	}
	shown, more := bounded(all, pageSize)
	for _, w := range shown {
		v.Workers = append(v.Workers, workerOf(w))
	}
	if more > 0 {
		v.Next = q.With("after", shown[pageSize-1].ID)
	}
	v.Total = total
	if v.Status == "" && v.First && more == 0 {
		if err := p.addStopped(ctx, &v, f); err != nil {
			return nil, err
		}
	}
	stats, err := p.admin.Stats(ctx)
	if err != nil {
		return nil, err
	}
	s := stats.Workers
	v.Live, v.Draining, v.Silent, v.Hung, v.Active, v.Most = s.Live, s.Draining, s.Silent, s.Hung, s.Active, s.Most
	return v, nil
}

const (
	// lately is how long the list of live workers also has those that have stopped.
	lately      = time.Hour
	mostStopped = 100
)

// addStopped adds the workers that have stopped lately. The registry lists those first that were started last, so some
// that ran for long may be missing.
func (p *workerPages) addStopped(ctx context.Context, v *workerList, f admin.WorkerFilter) error {
	f.Status, f.Limit = []string{"OFFLINE"}, mostStopped
	stopped, _, err := p.admin.Workers.List(ctx, f)
	stopped = slices.DeleteFunc(stopped, func(w admin.WorkerInfo) bool { return time.Since(w.StoppedAt) >= lately })
	rest, loops := foldLoops(stopped)
	for _, w := range rest {
		v.Workers = append(v.Workers, workerOf(w))
	}
	v.Stopped, v.Loops = len(stopped), loops
	return err
}

// A workerLoop are workers of the same code that stopped soon after they had started, again and again. They are one
// line of the list.
type workerLoop struct {
	Queues      []string
	Build       string
	Workers     int
	Longest     time.Duration // that one of them ran
	First, Last time.Time     // when they stopped
}

const (
	leastLoop   = 3
	longestLoop = 5 * time.Minute
)

// foldLoops returns the workers that are in no loop, and the loops, in the order of their last workers.
func foldLoops(stopped []admin.WorkerInfo) (rest []admin.WorkerInfo, loops []workerLoop) {
	code := func(w admin.WorkerInfo) string { return strings.Join(w.Queues, "\x00") + "\x01" + w.Build }
	short := map[string]int{}
	for _, w := range stopped {
		if ran(w) <= longestLoop {
			short[code(w)]++
		}
	}
	where := map[string]int{}
	for _, w := range stopped {
		of := code(w)
		if ran(w) > longestLoop || short[of] < leastLoop {
			rest = append(rest, w)
			continue
		}
		i, ok := where[of]
		if !ok {
			i = len(loops)
			where[of] = i
			loops = append(loops, workerLoop{Queues: w.Queues, Build: w.Build, First: w.StoppedAt, Last: w.StoppedAt})
		}
		l := &loops[i]
		l.Workers, l.Longest = l.Workers+1, max(l.Longest, ran(w))
		if w.StoppedAt.Before(l.First) {
			l.First = w.StoppedAt
		}
		if w.StoppedAt.After(l.Last) {
			l.Last = w.StoppedAt
		}
	}
	return rest, loops
}

// ran returns how long a worker that has stopped ran.
func ran(w admin.WorkerInfo) time.Duration { return w.StoppedAt.Sub(w.StartedAt) }

// workerOf returns what the pages say about a worker.
func workerOf(w admin.WorkerInfo) workerRow {
	r := workerRow{WorkerInfo: w}
	switch {
	case w.Silent:
		r.Tone, r.State = "failed", "Silent"
	case w.Status == "DRAINING":
		r.Tone, r.State = "warning", "Draining"
	case w.Status == "OFFLINE":
		r.Tone, r.State = "cancelled", "Offline"
	default:
		r.Tone, r.State = "completed", "Online"
	}
	return r
}

// Off reports whether the worker has stopped.
func (r workerRow) Off() bool { return r.Status == "OFFLINE" }

// Ran is how long it ran.
func (r workerRow) Ran() time.Duration { return ran(r.WorkerInfo) }

// mostFleet is how many live workers are read for their versions.
const mostFleet = 1000

// A fleet is the view model of the versions that live workers have, by workflow, and of their builds.
type fleet struct {
	Workflows []fleetWorkflow
	More      int // workflows that are not shown
	Builds    []fleetCount
	Mixed     int // workflows of which several versions are live
	Cut       bool
}

// A fleetWorkflow is a workflow with the versions that live workers have.
type fleetWorkflow struct {
	Workflow string
	Versions []fleetCount
}

// A fleetCount is a version or a build, with the number of its live workers.
type fleetCount struct {
	Name    string
	Workers int
	Largest bool // the highest version
}

func (p *workerPages) versions(ctx context.Context, _ web.Query) (any, error) {
	all, total, err := p.admin.Workers.List(ctx, admin.WorkerFilter{
		Status: []string{"ONLINE"},
		Limit:  mostFleet,
	})
	if err != nil {
		return nil, err
	}
	v := fleet{Cut: total > len(all)}
	builds, workflows := map[string]int{}, map[string]map[string]int{}
	for _, w := range all {
		if w.Silent {
			continue
		}
		builds[cmp.Or(w.Build, "unknown")]++
		for _, h := range w.Handlers {
			name, version := handlerOf(h)
			if workflows[name] == nil {
				workflows[name] = map[string]int{}
			}
			workflows[name][version]++
		}
	}
	v.Builds = counted(builds)
	for name, versions := range workflows {
		w := fleetWorkflow{name, counted(versions)}
		w.Versions[0].Largest = true
		v.Workflows = append(v.Workflows, w)
		if len(w.Versions) > 1 {
			v.Mixed++
		}
	}
	slices.SortFunc(v.Workflows, func(a, b fleetWorkflow) int { // those that are being deployed come first
		return cmp.Or(compareBool(len(b.Versions) > 1, len(a.Versions) > 1), cmp.Compare(a.Workflow, b.Workflow))
	})
	v.Workflows, v.More = bounded(v.Workflows, mostRows)
	return v, nil
}

// handlerOf splits "checkout/2". The name of a workflow may have slashes, too.
func handlerOf(h string) (workflow, version string) {
	if i := strings.LastIndexByte(h, '/'); i >= 0 {
		return h[:i], h[i+1:]
	}
	return h, ""
}

// counted returns the names, the highest number or the last name first.
func counted(by map[string]int) (out []fleetCount) {
	for name, n := range by {
		out = append(out, fleetCount{Name: name, Workers: n})
	}
	slices.SortFunc(out, func(a, b fleetCount) int {
		return cmp.Or(cmp.Compare(len(b.Name), len(a.Name)), cmp.Compare(b.Name, a.Name))
	})
	return out
}

// countedNames returns the names in the order of counted.
func countedNames(by map[string]int) (names []string) {
	for _, c := range counted(by) {
		names = append(names, c.Name)
	}
	return names
}

// A workerView is the view model of the page of a worker.
type workerView struct {
	workerRow
	Code    []handler
	Log     []admin.LogEntry
	Changed changes
}

// A handler is the code for a version of a workflow.
type handler struct{ Workflow, Version string }

// Settled reports that nothing changes any more. An offline worker is forgotten after a week, and its page then is a
// link that leads nowhere.
func (v workerView) Settled() bool { return v.Off() }

func (p *workerPages) worker(ctx context.Context, q web.Query) (any, error) {
	w, err := p.admin.Workers.Get(ctx, q.Path("id"))
	if err != nil {
		return nil, err
	}
	v := workerView{workerRow: workerOf(w)}
	for _, h := range w.Handlers {
		name, version := handlerOf(h)
		v.Code = append(v.Code, handler{name, version})
	}
	if v.Log, err = p.admin.Workers.Log(ctx, w.ID); err != nil {
		return nil, err
	}
	slices.Reverse(v.Log)
	v.Changed, err = changed(ctx, p.admin, admin.AuditWorker, w.ID)
	return v, err
}

const (
	// mostRunning is how many runs that are being executed are read to find those of a worker.
	mostRunning = 2000
	// mostExamined is how many of its runs are asked for code that hangs. Each costs a query.
	mostExamined = 30
)

// An underWay is the view model of what a worker executes.
type underWay struct {
	Runs []runUnderWay
	More int
	Hung int
	Cut  bool // more runs are being executed than were read
	None bool // the worker is offline
}

// A runUnderWay is a run that a worker executes, and its code that hangs.
type runUnderWay struct {
	kagzi.RunInfo
	Hung []kagzi.HungCode
}

func (p *workerPages) workerRuns(ctx context.Context, q web.Query) (any, error) {
	id := strings.ToLower(q.Path("id"))
	running, err := p.client.List(ctx, kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusRunning}, Limit: mostRunning})
	if err != nil {
		return nil, err
	}
	v := underWay{Cut: len(running) == mostRunning}
	for _, r := range running {
		if r.Worker == id {
			v.Runs = append(v.Runs, runUnderWay{RunInfo: r})
		}
	}
	v.Runs, v.More = bounded(v.Runs, mostRows)
	for i, r := range v.Runs[:min(len(v.Runs), mostExamined)] {
		info, err := p.client.Get(ctx, r.ID)
		if web.Away(err) {
			return nil, err
		}
		if err == nil && info.Worker == id { // else it has ended meanwhile
			v.Runs[i].Hung = info.Hung
			v.Hung += len(info.Hung)
		}
	}
	slices.SortStableFunc(v.Runs, func(a, b runUnderWay) int { return compareBool(len(b.Hung) > 0, len(a.Hung) > 0) })
	return v, nil
}
