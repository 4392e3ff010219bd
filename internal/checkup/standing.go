package checkup

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// mostStanding is how many keys have a check of their own.
const mostStanding = 20

// standing adds a check for each key behind whose holder runs have waited for long, and reports whether there is one.
func (e *examination) standing(ctx context.Context) bool {
	found, err := e.process.Inspect.StandingKeys(ctx, e.db, overdueAfter, mostStanding)
	if err != nil {
		e.addFailed("keys", err)
		return false
	}
	for _, k := range found {
		h := k.Holder
		id := h.RunID.String()
		if h.ExternalID != "" {
			id = fmt.Sprintf("%s (%s)", text.Quote(h.ExternalID), h.RunID)
		}
		state := "is running"
		if h.Status != store.Running {
			state = "waits on " + text.Quote(h.WaitingOn.String())
		}
		e.add("keys", health.Degraded, "%s of queue %s has stood still for %s: %s behind run %s of workflow %s, "+
			"which %s and keeps its slot. Find out what that run waits for, and let it go on, or cancel it.",
			text.Sentence(keyText(k.Key)), text.Quote(k.Queue), duration.About(k.Standing), waitText(k.Waiting, k.More),
			id, text.Quote(h.Type), state)
	}
	return len(found) > 0
}

// waitText returns a clause such as "12 runs wait".
func waitText(n int, more bool) string {
	if n == 1 && !more {
		return "1 run waits"
	}
	return counted(n, more) + " wait"
}

// strays adds a check if live workers do not report runs that they hold by the table.
func (e *examination) strays(ctx context.Context) {
	var queues, types []string
	for r := range e.live {
		if len(queues) < maxCounted {
			queues, types = append(queues, r.queue), append(types, r.workflow)
		}
	}
	if queues == nil {
		return
	}
	found, err := e.process.Inspect.UnextendedRuns(ctx, e.db, queues, types, namedAtMost+1)
	if err != nil {
		e.addFailed("strays", err)
		return
	}
	var runs []string
	for _, r := range found {
		runs = append(runs, fmt.Sprintf("%s of workflow %s in queue %s (worker %s, until %s)", r.RunID,
			text.Quote(r.Type), text.Quote(r.Queue), r.Worker, r.Ends.Format(time.RFC3339)))
	}
	if runs != nil {
		e.add("strays", health.Degraded, "Runs are RUNNING under workers that live and do not report them: %s. Each "+
			"goes to another worker when its lease ends then. See the log of the worker for locks and errors, and "+
			"report this if there are none.",
			text.List(runs, namedAtMost))
	}
}
