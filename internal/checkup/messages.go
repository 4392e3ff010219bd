package checkup

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/text"
)

// messages checks for messages that do not decode: their runs wait as if they had not come.
func (e *examination) messages(ctx context.Context) {
	found, err := e.process.Inspect.SetAside(ctx, e.db, maxCounted+1)
	if err != nil {
		e.addFailed("messages", err)
		return
	}
	if len(found) == 0 {
		return
	}
	var which []string
	runs := map[uuid.UUID]bool{}
	for _, m := range found {
		runs[m.RunID] = true
		which = append(which, fmt.Sprintf("%.60q of signal %s to run %s (%s)", m.ID, text.Quote(m.Name),
			m.RunID, m.Type))
	}
	e.add("messages", health.Degraded, "Messages to %s do not decode, and were set aside: deploy code that decodes "+
		"them and redeliver them, or correct the sender and drop them. The newest: %s.",
		counted(len(runs), len(found) > maxCounted), text.List(which, namedAtMost))
}
