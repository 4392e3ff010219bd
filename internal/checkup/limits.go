package checkup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store/inspect"
)

// mostLimits is how many queues, and how many limits of steps, have a check of their own.
const mostLimits = 20

// overdue returns texts of the late work for which there are too few workers. It adds a check for each queue whose
// limits are what makes work late.
func (e *examination) overdue(ctx context.Context, late []lateWork) (texts []string) {
	if len(late) == 0 {
		return nil
	}
	list, err := e.process.Inspect.QueueStates(ctx, e.db)
	if err != nil {
		e.addFailed("limits", err)
	}
	states := map[string]inspect.QueueState{}
	for _, s := range list {
		if full(s) || s.RateUsed {
			states[s.Queue] = s
		}
	}
	longest := map[string]time.Duration{}
	for _, l := range late {
		_, limited := states[l.queue.Queue]
		switch {
		case !limited:
			texts = append(texts, workText(l.queue, l.key, l.waiting))
		case l.holding > overdueAfter: // no limit holds these up
			texts = append(texts, workText(l.queue, l.key, l.holding))
		default:
			longest[l.queue.Queue] = max(longest[l.queue.Queue], l.waiting)
		}
	}
	for i, queue := range slices.Sorted(maps.Keys(longest)) {
		if i < mostLimits {
			e.addLimited(ctx, states[queue], longest[queue])
		}
	}
	return texts
}

// full reports whether all slots of the queue are taken.
func full(s inspect.QueueState) bool { return s.MaxRunning > 0 && s.Running >= s.MaxRunning }

// addLimited adds that the limits of a queue let due runs wait for so long.
func (e *examination) addLimited(ctx context.Context, s inspect.QueueState, waiting time.Duration) {
	since := fmt.Sprintf("its first due run has waited for %s", duration.About(waiting))
	if !full(s) {
		e.add("limits", health.Degraded, "The rate of queue %q lets one run start every %s, and %s: set a higher "+
			"rate, unless that is meant.",
			s.Queue, duration.Format(s.Rate.Interval), since)
		return
	}
	idle, err := e.process.Inspect.IdleSlots(ctx, e.db, s.Queue)
	if err != nil {
		e.addFailed("limits", err)
		return
	}
	detail, lost := "", []string(nil)
	for _, h := range idle {
		if h.Worker == uuid.Nil {
			detail = fmt.Sprintf(" %d of the slots are held by runs that sleep or wait (Hold).", h.Runs)
		} else {
			lost = append(lost, fmt.Sprintf("%s (%d)", h.Worker, h.Runs))
		}
	}
	if lost != nil {
		detail += fmt.Sprintf(" Slots are held by runs of lost workers: %s. A coordinator releases them: let a "+
			"worker host one (without NoCoordinator).", text.List(lost, namedAtMost))
	}
	e.add("limits", health.Degraded, "Queue %q is full, with %d of %d slots taken, and %s: let it run more at once "+
		"(MaxRunning), or find out whether its runs are stuck.%s",
		s.Queue, s.Running, s.MaxRunning, since, detail)
}

// limits adds a check for each limit of steps whose line does not move.
func (e *examination) limits(ctx context.Context) {
	stuck, err := e.process.Inspect.StuckLimits(ctx, e.db, overdueAfter)
	if err != nil {
		e.addFailed("limits", err)
		return
	}
	for i, l := range stuck {
		switch {
		case i == mostLimits:
			return
		case l.Unset:
			e.add("limits", health.Degraded, "Steps wait for limit %q, which is neither declared nor set: declare it "+
				"in the code (admin.Limits.Declare), or correct the name there.", l.Name)
		case l.Stop > overdueAfter:
			advice := "its steps wait"
			if l.Rated {
				advice = "set a higher rate if that is too late"
			}
			e.add("limits", health.Degraded, "Limit %q lets no step begin before %s, in %s, because an error asked "+
				"for that (RetryAfter): %s.",
				l.Name, l.Until.Format(time.RFC3339), duration.About(l.Stop), advice)
		default:
			e.add("limits", health.Degraded, "The first step in the line of limit %q could have begun %s ago, but no "+
				"worker takes its run %s of workflow %q in queue %q: start workers for that queue, unless its limits "+
				"hold the run up.",
				l.Name, duration.About(l.Late), l.RunID, l.Type, l.Queue)
		}
	}
}
