package checkup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

const (
	// strandedAfter is how long runs may be due without a live worker for them: a deploy starts runs and workers in any
	// order.
	strandedAfter = 15 * time.Second

	// overdueAfter is how long due runs may wait although there are live workers for them.
	overdueAfter = 5 * time.Minute

	// scheduleLate is how late a schedule may fire.
	scheduleLate = time.Minute

	// recentFailures is the time over which failed runs are counted.
	recentFailures = time.Hour

	// quarantinedLately is for how long a quarantined run makes the report Degraded.
	quarantinedLately = 24 * time.Hour

	maxCounted  = 1000   // schedules, and runs of each kind, that are counted
	maxWorkers  = 10_000 // workers that are read
	namedAtMost = 5      // schedules, queues or runs in one Detail
)

// work checks the workers, and the runs that wait for them.
func (e *examination) work(ctx context.Context) {
	workers, err := e.process.Inspect.LiveWorkers(ctx, e.db, maxWorkers)
	if err != nil {
		e.addFailed("workers", err)
		return
	}
	e.live = e.countWorkers(workers)
	b := backlog{live: e.live}
	due, err := e.process.Inspect.DueWork(ctx, e.db)
	if err == nil {
		var keyed []inspect.DueWork
		keyed, err = e.process.Inspect.DueKeys(ctx, e.db)
		due = append(due, keyed...)
	}
	if err != nil {
		e.addFailed("queues", err)
	}
	for _, d := range due {
		b.add(d)
	}
	e.report.Queues = b.sorted()
	e.addWorkers(b.longest)
	e.hung(workers)
	e.nested(workers)
	e.strays(ctx)
	standing := e.standing(ctx)
	if err == nil {
		e.addQueues(b, e.overdue(ctx, b.late), standing)
	}
}

// countWorkers sums up the workers, and returns the live ones.
func (e *examination) countWorkers(workers []inspect.LiveWorker) fleet {
	e.report.Workers = CountWorkers(workers)
	live := fleet{}
	for _, w := range workers {
		if w.Live() {
			live.add(w)
		}
	}
	return live
}

// CountWorkers sums up the workers.
func CountWorkers(workers []inspect.LiveWorker) (sum health.Workers) {
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
		if w.Hung != nil {
			sum.Hung += w.Hung.Slots
		}
	}
	return sum
}

// addWorkers adds the check of the workers. No run that is due has waited for more than longest.
func (e *examination) addWorkers(longest time.Duration) {
	sum := e.report.Workers
	switch {
	case sum.Live == 0 && longest > strandedAfter:
		e.add("workers", health.Unhealthy, "No worker is live, and work has been due for %s: start one (%d draining, "+
			"%d silent).", duration.About(longest), sum.Draining, sum.Silent)
	case sum.Silent > 0:
		e.add("workers", health.Degraded, "%d live, and %d silent for longer than StaleAfter: if this lasts, no "+
			"coordinator runs that releases their runs: start a worker without NoCoordinator, which hosts one.",
			sum.Live, sum.Silent)
	case sum.Live == 0:
		e.add("workers", health.Healthy, "No worker is live, and no work has waited for one for long (%d draining).",
			sum.Draining)
	default:
		e.add("workers", health.Healthy, "%d live, %d draining; %d of %d slots were in use at the last heartbeats.",
			sum.Live, sum.Draining, sum.Active, sum.Most)
	}
}

// addQueues adds the check of the queues. overdue names those whose runs wait although there are workers for them, and
// standing says that keys stand still.
func (e *examination) addQueues(b backlog, overdue []string, standing bool) {
	code := "code of the workflow"
	if len(b.missing) == 1 && len(b.stranded) == 1 {
		code = fmt.Sprintf("version %d of the workflow", b.missing[0])
	} else if len(b.missing) > 0 {
		code += ", with each version that is missing"
	}
	var due int
	more := false
	for _, q := range e.report.Queues {
		due, more = due+q.Due, more || q.More
	}
	switch {
	case len(b.stranded) > 0:
		e.add("queues", health.Degraded, "No live worker takes %s: start one that takes the queue and has %s.",
			text.List(b.stranded, namedAtMost), code)
	case len(overdue) > 0:
		e.add("queues", health.Degraded, "Due although there are workers: %s. %s", text.List(overdue, namedAtMost),
			e.slotsAdvice())
	case due > 0:
		e.add("queues", health.Healthy, "%s due, none for long.", counted(due, more))
	case standing:
		e.add("queues", health.Healthy, "No run is due but those that wait for a slot of their key.")
	default:
		e.add("queues", health.Healthy, "No run is due.")
	}
}

// schedules checks that schedules fire.
func (e *examination) schedules(ctx context.Context) {
	late, err := e.process.Inspect.OverdueSchedules(ctx, e.db, scheduleLate, maxCounted+1)
	var broken []inspect.TroubledSchedule
	if err == nil {
		broken, err = e.process.Inspect.BrokenSchedules(ctx, e.db, maxCounted+1)
	}
	if err != nil {
		e.addFailed("schedules", err)
		return
	}
	var parts []string
	failing, waiting := slices.Clone(late), slices.Clone(late)
	failing = slices.DeleteFunc(failing, func(t inspect.TroubledSchedule) bool { return t.Error == "" })
	waiting = slices.DeleteFunc(waiting, func(t inspect.TroubledSchedule) bool { return t.Error != "" })
	if n := len(failing); n > 0 {
		parts = append(parts, fmt.Sprintf("%s more than a minute late because the last try to fire failed, as when "+
			"an interceptor refuses the start: %s. It is tried again: remove the cause.",
			schedulesText(n), text.List(troubles(failing), namedAtMost)))
	}
	if n := len(waiting); n > 0 {
		parts = append(parts, fmt.Sprintf("%s more than a minute late: %s. Either no coordinator keeps up: let a "+
			"worker host one (without NoCoordinator), or run one. Or it fails: its log says why.",
			schedulesText(n), text.List(troubles(waiting), namedAtMost)))
	}
	if n := len(broken); n > 0 {
		parts = append(parts, fmt.Sprintf("%s paused for an error: %s. Fix it and resume the schedule.",
			schedulesText(n), text.List(troubles(broken), namedAtMost)))
	}
	if len(parts) == 0 {
		e.add("schedules", health.Healthy, "None is late or paused for an error.")
		return
	}
	e.add("schedules", health.Degraded, "%s", strings.Join(parts, " "))
}

// quarantined checks whether runs were quarantined lately.
func (e *examination) quarantined(ctx context.Context) {
	all, lately, newest, err := e.process.Inspect.Quarantined(ctx, e.db, quarantinedLately, maxCounted+1, namedAtMost)
	if err != nil {
		e.addFailed("quarantined", err)
		return
	}
	var runs []string
	for _, r := range newest {
		e.report.Quarantined = append(e.report.Quarantined, r.RunID.String())
		runs = append(runs, fmt.Sprintf("%s (%s, %s)", r.RunID, r.Type, r.Kind))
	}
	number := counted(min(all, maxCounted), all > maxCounted)
	switch {
	case all == 0:
		e.add("quarantined", health.Healthy, "None.")
	case lately == 0:
		e.add("quarantined", health.Healthy, "%s, none within the last day. Newest: %s.", number,
			text.List(runs, namedAtMost))
	default:
		e.add("quarantined", health.Degraded, "%s, %d within the last day: read their errors, fix the code or the "+
			"data, and resume them. Newest: %s.", number, lately, text.List(runs, namedAtMost))
	}
}

// suspects checks for runs that were under way when their workers died.
func (e *examination) suspects(ctx context.Context) {
	found, err := e.process.Inspect.Suspects(ctx, e.db, maxCounted+1)
	if err != nil {
		e.addFailed("suspects", err)
		return
	}
	if len(found) == 0 {
		return
	}
	var runs []string
	for _, r := range found {
		next := "next try as soon as others like it are done"
		if wait := r.NextAt.Sub(e.report.At); wait >= 2*time.Second {
			next = "next try in " + duration.About(wait)
		}
		runs = append(runs, fmt.Sprintf("%s (%s) was under way when %d workers died, %s", r.RunID, r.Type,
			r.Recoveries, next))
	}
	e.add("suspects", health.Degraded, "%s may be what kills the workers, and waits for another try beside few "+
		"others: %s. Look why the workers died: kill -9, memory, or a crash of the process.",
		counted(min(len(found), maxCounted), len(found) > maxCounted), text.List(runs, namedAtMost))
}

// histories checks for runs that wait because their histories cannot be read.
func (e *examination) histories(ctx context.Context) {
	found, err := e.process.Inspect.UnreadRuns(ctx, e.db, maxCounted+1)
	if err != nil {
		e.addFailed("histories", err)
		return
	}
	if len(found) == 0 {
		return
	}
	var runs []string
	for _, r := range found {
		runs = append(runs, fmt.Sprintf("%s (%s, %d times)", r.RunID, r.Type, r.Failures))
	}
	e.add("histories", health.Degraded, "The histories of %s cannot be read, or not in time: see the workers' log "+
		"for the errors. They are tried again, and quarantined after %d times: %s.",
		counted(min(len(found), maxCounted), len(found) > maxCounted), e.process.MaxLoadFailures,
		text.List(runs, namedAtMost))
}

// troubles returns the schedules' names, quoted, with their errors.
func troubles(list []inspect.TroubledSchedule) (out []string) {
	for _, t := range list {
		name := fmt.Sprintf("%q", t.Name)
		if t.Error != "" {
			name += fmt.Sprintf(" (%s)", strings.TrimRight(text.OneLine(t.Error), ". "))
		}
		out = append(out, name)
	}
	return out
}

// schedulesText returns the subject of a sentence with its verb, such as "2 schedules are".
func schedulesText(n int) string {
	switch {
	case n == 1:
		return "1 schedule is"
	case n > maxCounted:
		return fmt.Sprintf("More than %d schedules are", maxCounted)
	default:
		return fmt.Sprintf("%d schedules are", n)
	}
}

// counted returns the number of runs with its noun, such as "more than 1000 runs".
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

// failures adds a check if the database refuses requests of this process's workers.
func (e *examination) failures() {
	var all []string
	for _, f := range e.process.Failures() {
		all = append(all, fmt.Sprintf("cannot %s for %s: %s", f.What, duration.About(time.Since(f.Since)),
			store.Reason(f.Err)))
	}
	if all != nil {
		e.add("work", health.Degraded, "A worker of this process %s. It tries again.", text.List(all, namedAtMost))
	}
}
