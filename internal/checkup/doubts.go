package checkup

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
)

// doubts checks for steps of which it is not known what their calls have done.
func (e *examination) doubts(ctx context.Context) {
	found, err := e.process.Inspect.Doubts(ctx, e.db, maxCounted+1)
	if err != nil {
		e.addFailed("doubts", err)
		return
	}
	var steps []string
	for _, d := range found {
		steps = append(steps, fmt.Sprintf("%s of run %s (%s) for %s", text.Quote(d.Step),
			cmp.Or(d.ExternalID, d.RunID.String()), d.Type, duration.About(e.report.At.Sub(d.Since))))
	}
	if steps != nil {
		e.add("doubts", health.Degraded, "Steps with AtMostOnce are in doubt: it is not known what their calls have "+
			"done. Ask the services that they called, and say it with admin.Runs.Resolve. The newest: %s.",
			text.List(steps, namedAtMost))
	}
}
