package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store/inspect"
)

const (
	// Failures are part of the work: a card is declined, a partner is away for a minute. The report is Degraded from
	// fewFailures on, if they are more than one in tolerated of the runs that ended.
	fewFailures = 10
	tolerated   = 10

	maxFailed = 20 // pairs of workflow and kind in a report
)

// failedRuns checks how many runs failed within the last hour.
func (e *examination) failedRuns(ctx context.Context) {
	found, err := e.process.Inspect.RecentFailures(ctx, e.db, recentFailures)
	if err != nil {
		e.addFailed("failures", err)
		return
	}
	var parts []string
	var all int64
	more := false
	for _, f := range byWorkflow(found) {
		all, more = all+int64(f.Count), more || f.More
		parts = append(parts, fmt.Sprintf("%s of workflow %s with kind %s", counted(f.Count, f.More),
			text.Quote(f.Type), f.Kind))
		if len(e.report.Failed) < maxFailed {
			e.report.Failed = append(e.report.Failed, health.Failed{
				Workflow: f.Type, Kind: f.Kind, Runs: f.Count,
				More: f.More, Last: f.Last,
			})
		}
	}
	if all == 0 {
		e.add("failures", health.Healthy, "No run failed within the last hour.")
		return
	}
	number, which := counted(int(all), more), text.List(parts, namedAtMost)
	if all < fewFailures {
		e.add("failures", health.Healthy, "%s failed within the last hour: %s.", number, which)
		return
	}
	ended, failed, err := e.process.Inspect.RecentEnds(ctx, e.db, recentFailures)
	if err != nil {
		e.addFailed("failures", err)
		return
	}
	if more {
		all = max(all, failed)
	}
	ended = max(ended, all) // a coordinator may have ended some
	share := fmt.Sprintf("about %d %% of those that ended", max(1, (all*100+ended/2)/ended))
	if all*tolerated <= ended {
		e.add("failures", health.Healthy, "%s failed within the last hour, %s: %s.", number, share, which)
		return
	}
	e.add("failures", health.Degraded, "%s failed within the last hour, %s: %s. Read their errors, remove the cause, "+
		"and resume them. Restart those that were compensated.", number, share, which)
}

// byWorkflow sums up the failures of all queues by workflow and kind, the most frequent first.
func byWorkflow(found []inspect.FailureCount) (out []inspect.FailureCount) {
	for _, f := range found {
		i := slices.IndexFunc(out, func(o inspect.FailureCount) bool { return o.Type == f.Type && o.Kind == f.Kind })
		if i < 0 {
			out = append(out, f)
			continue
		}
		out[i].Count, out[i].More = out[i].Count+f.Count, out[i].More || f.More
		if f.Last.After(out[i].Last) {
			out[i].Last = f.Last
		}
	}
	slices.SortStableFunc(out, func(a, b inspect.FailureCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// compensations checks for runs of which a compensation failed for good, so that what they did is undone only in part,
// and for those whose compensations do not go on because the database refuses that.
func (e *examination) compensations(ctx context.Context) {
	failed, err := e.process.Inspect.UncompensatedRuns(ctx, e.db, maxCounted+1)
	var refused []inspect.RefusedCompensation
	if err == nil {
		refused, err = e.process.Inspect.RefusedCompensations(ctx, e.db, maxCounted+1)
	}
	if err != nil {
		e.addFailed("compensations", err)
		return
	}
	var parts []string
	part := func(format string, runs []string) {
		if n := len(runs); n > 0 {
			parts = append(parts, fmt.Sprintf(format, counted(min(n, maxCounted), n > maxCounted),
				text.List(runs, namedAtMost)))
		}
	}
	var runs []string
	for _, r := range failed {
		runs = append(runs, fmt.Sprintf("%s (%s, %s)", r.RunID, r.Type, r.Step))
	}
	part("A compensation failed for good in %s, so what was done is undone only in part: read the error of its step, "+
		"remove the cause, and resume the run, which tries the rest. Newest: %s.", runs)
	runs = nil
	for _, r := range refused {
		runs = append(runs, fmt.Sprintf("%s (%s, %s)", r.RunID, r.Type, r.WaitingOn))
	}
	part("The database refuses to continue the compensations of %s: read the error of the compensation's step, or in "+
		"a coordinator's log, and remove the cause. They are tried again: %s.", runs)
	if parts != nil {
		e.add("compensations", health.Degraded, "%s", strings.Join(parts, " "))
	}
}
