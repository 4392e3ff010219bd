package kagzi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

const (
	// strandedAfter is how long work may be due before it matters that no worker takes it: a deploy starts runs and
	// workers in any order.
	strandedAfter = 15 * time.Second

	// overdueAfter is how long work may wait for workers that could take it.
	overdueAfter = 5 * time.Minute

	// scheduleLate is how late a schedule may fire.
	scheduleLate = time.Minute

	// quarantinedRecent is for how long a run that was quarantined is news.
	quarantinedRecent = 24 * time.Hour

	mostLooked = 1000   // of schedules, and of runs of each kind, that are counted
	mostFleet  = 10_000 // workers that are looked at
	fewNamed   = 5      // of what is counted, by name
)

// everything looks at all that Health promises.
func (e *examination) everything(ctx context.Context) {
	if !e.essentials(ctx) {
		return
	}
	e.work(ctx)
	e.schedules(ctx)
	e.setAside(ctx)
	e.unread(ctx)
	e.sessionTroubles()
}

// work looks at the workers and at what waits for them.
func (e *examination) work(ctx context.Context) {
	fleet, err := e.c.store.LiveWorkers(ctx, e.db, mostFleet)
	if err != nil {
		e.failed("workers", err)
		return
	}
	able := e.count(fleet)
	due, err := e.c.store.DueWork(ctx, e.db)
	if err != nil {
		e.failed("queues", err)
	}
	var longest time.Duration
	var stranded, overdue []string
	for _, d := range due {
		q := HealthQueue{Queue: d.Queue, Workflow: d.Type, More: d.More}
		none := q // what of it no live worker takes
		var stuck, late time.Duration
		workers := able[place{d.Queue, d.Type}]
		if workers != nil {
			q.Workers = workers.n
		}
		for _, v := range d.Versions {
			q.Due += v.Due
			if q.Since.IsZero() || v.Since.Before(q.Since) {
				q.Since = v.Since
			}
			if v.Version != 0 {
				q.Versions = append(q.Versions, v.Version)
			}
			if workers.can(v.Version) {
				late = max(late, v.Waiting)
				continue
			}
			none.Due += v.Due
			stuck = max(stuck, v.Waiting)
			if v.Version != 0 {
				none.Versions = append(none.Versions, v.Version)
			}
		}
		q.Stranded = none.Versions
		e.report.Queues = append(e.report.Queues, q)
		longest = max(longest, stuck, late)
		if stuck > strandedAfter {
			stranded = append(stranded, none.text(stuck))
		}
		if late > overdueAfter {
			overdue = append(overdue, q.text(late))
		}
	}
	e.judgeWorkers(longest)
	if err == nil {
		e.judgeQueues(stranded, overdue)
	}
}

// text names the queue in a sentence.
func (q HealthQueue) text(waiting time.Duration) string {
	text := fmt.Sprintf("%s of workflow %q in queue %q for %s", counted(q.Due, q.More), q.Workflow, q.Queue, duration.About(waiting))
	if len(q.Versions) > 0 {
		text += fmt.Sprintf(" (of versions %s)", strings.Trim(fmt.Sprint(q.Versions), "[]"))
	}
	return text
}

// count sums up the workers, and returns what the live ones can execute.
func (e *examination) count(workers []store.LiveWorker) fleet {
	sum := &e.report.Workers
	able := fleet{}
	for _, w := range workers {
		if w.Silent {
			sum.Silent++
			continue
		}
		if sum.OldestHeartbeat.IsZero() || w.Heartbeat.Before(sum.OldestHeartbeat) {
			sum.OldestHeartbeat = w.Heartbeat
		}
		if w.Draining {
			sum.Draining++
			continue
		}
		sum.Live++
		sum.Active += w.Active
		sum.Most += w.Most
		able.add(w)
	}
	return able
}

func (e *examination) judgeWorkers(longest time.Duration) {
	sum := e.report.Workers
	switch {
	case sum.Live == 0 && longest > strandedAfter:
		e.note("workers", Unhealthy, "No worker lives, and work has been due for %s: start one (%d draining, %d silent).", duration.About(longest), sum.Draining, sum.Silent)
	case sum.Silent > 0:
		e.note("workers", Degraded, "%d live, and %d silent for longer than StaleAfter: if this lasts, no coordinator runs to take their runs over; a worker hosts one unless NoCoordinator says otherwise.",
			sum.Live, sum.Silent)
	case sum.Live == 0:
		e.note("workers", Healthy, "No worker lives, and no work has waited for one for long (%d draining).", sum.Draining)
	default:
		e.note("workers", Healthy, "%d live, %d draining; %d of %d slots were in use at the last heartbeats.", sum.Live, sum.Draining, sum.Active, sum.Most)
	}
}

func (e *examination) judgeQueues(stranded, overdue []string) {
	var due int
	more := false
	for _, q := range e.report.Queues {
		due, more = due+q.Due, more || q.More
	}
	switch {
	case len(stranded) > 0:
		e.note("queues", Degraded, "No live worker takes %s: start one with that WorkerConfig.Queue and a Handle for it.", text.List(stranded, fewNamed))
	case len(overdue) > 0:
		e.note("queues", Degraded, "Due although there are workers: %s. Start more workers or raise MaxConcurrent.", text.List(overdue, fewNamed))
	case due > 0:
		e.note("queues", Healthy, "%s due, none for long.", counted(due, more))
	default:
		e.note("queues", Healthy, "No run is due.")
	}
}

func (e *examination) schedules(ctx context.Context) {
	late, err := e.c.store.OverdueSchedules(ctx, e.db, scheduleLate, mostLooked+1)
	var broken []store.TroubledSchedule
	if err == nil {
		broken, err = e.c.store.BrokenSchedules(ctx, e.db, mostLooked+1)
	}
	if err != nil {
		e.failed("schedules", err)
		return
	}
	var parts, reasons []string
	if n := len(late); n > 0 {
		parts = append(parts, fmt.Sprintf("%s more than a minute late: %s. No coordinator keeps up: let a worker host one (without NoCoordinator), or run one.",
			schedulesText(n), text.List(names(late), fewNamed)))
	}
	if n := len(broken); n > 0 {
		for _, t := range broken {
			reasons = append(reasons, fmt.Sprintf("%q (%s)", t.Name, strings.TrimRight(text.OneLine(t.Error), ". ")))
		}
		parts = append(parts, fmt.Sprintf("%s paused for an error: %s. Put it right and resume.", schedulesText(n), text.List(reasons, fewNamed)))
	}
	if len(parts) == 0 {
		e.note("schedules", Healthy, "None is late or paused for an error.")
		return
	}
	e.note("schedules", Degraded, "%s", strings.Join(parts, " "))
}

func (e *examination) setAside(ctx context.Context) {
	all, lately, newest, err := e.c.store.SetAside(ctx, e.db, quarantinedRecent, mostLooked+1, fewNamed)
	if err != nil {
		e.failed("set-aside", err)
		return
	}
	var runs []string
	for _, r := range newest {
		e.report.SetAside = append(e.report.SetAside, RunID(r.RunID.String()))
		runs = append(runs, fmt.Sprintf("%s (%s, %s)", r.RunID, r.Type, r.Kind))
	}
	number := counted(min(all, mostLooked), all > mostLooked)
	switch {
	case all == 0:
		e.note("set-aside", Healthy, "None.")
	case lately == 0:
		e.note("set-aside", Healthy, "%s, none within the last day. Newest: %s.", number, text.List(runs, fewNamed))
	default:
		e.note("set-aside", Degraded, "%s, %d within the last day: look at their Error, repair the code or the data, and Resume them. Newest: %s.", number, lately, text.List(runs, fewNamed))
	}
}

// unread looks for runs that wait because what they recorded cannot be read.
func (e *examination) unread(ctx context.Context) {
	found, err := e.c.store.UnreadRuns(ctx, e.db, mostLooked+1)
	if err != nil {
		e.failed("histories", err)
		return
	}
	if len(found) == 0 {
		return
	}
	var runs []string
	for _, r := range found {
		runs = append(runs, fmt.Sprintf("%s (%s, %d times)", r.RunID, r.Type, r.Failures))
	}
	e.note("histories", Degraded, "What %s recorded cannot be read, or not in time: the workers' log says why. They are tried again, and quarantined after %d times: %s.",
		counted(min(len(found), mostLooked), len(found) > mostLooked), maxLoadFailures, text.List(runs, fewNamed))
}

func names(list []store.TroubledSchedule) (out []string) {
	for _, t := range list {
		out = append(out, fmt.Sprintf("%q", t.Name))
	}
	return out
}

func schedulesText(n int) string {
	switch {
	case n == 1:
		return "1 schedule is"
	case n > mostLooked:
		return fmt.Sprintf("More than %d schedules are", mostLooked)
	default:
		return fmt.Sprintf("%d schedules are", n)
	}
}

// counted says how many runs.
func counted(n int, more bool) string {
	switch {
	case more:
		return fmt.Sprintf("more than %d runs", n)
	case n == 1:
		return "1 run"
	default:
		return fmt.Sprintf("%d runs", n)
	}
}
