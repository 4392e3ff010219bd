package checkup

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/store"
)

// paused names what is paused, and warns of each.
func (e *examination) paused(ctx context.Context) {
	const most = 20
	pauses, err := e.process.Inspect.Pauses(ctx, e.db, most)
	if err != nil {
		e.addFailed("pauses", err)
		return
	}
	for _, p := range pauses {
		detail := fmt.Sprintf("Paused since %s", p.At.Format(time.RFC3339))
		if p.Actor != "" {
			detail += " by " + p.Actor
		}
		if p.Reason != "" {
			detail += ": " + p.Reason
		}
		e.add("pauses", health.Degraded, "%s: %s. An unpause ends it.", pausedTarget(p), detail)
	}
	if len(pauses) == most {
		e.add("pauses", health.Degraded, "There may be more pauses.")
	}
	n, since, first, err := e.process.Inspect.PausedRuns(ctx, e.db, maxCounted)
	if err != nil {
		e.addFailed("pauses", err)
	} else if n > 0 {
		e.add("pauses", health.Degraded, "Runs that are paused themselves: %s, the first one %s since %s. Each goes "+
			"on once it is unpaused.", upTo(n), first, since.Format(time.RFC3339))
	}
}

func upTo(n int) string {
	if n == maxCounted {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// pausedTarget names what the pause is about.
func pausedTarget(p store.Pause) string {
	switch {
	case p.Key.Group:
		return fmt.Sprintf("Group %q", p.Key.Name)
	case p.Key.Name != "":
		return fmt.Sprintf("Key %q of queue %q", p.Key.Name, p.Queue)
	case p.Queue != "" && p.Type != "":
		return fmt.Sprintf("Workflow %q in queue %q", p.Type, p.Queue)
	case p.Queue != "":
		return fmt.Sprintf("Queue %q", p.Queue)
	case p.Type != "":
		return fmt.Sprintf("Workflow %q", p.Type)
	}
	return "All runs of the namespace"
}
