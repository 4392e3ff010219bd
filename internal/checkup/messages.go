package checkup

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
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

// mostInboxes is how many runs that have refused messages are looked at.
const mostInboxes = 20

// inboxes checks for runs that take no more messages.
func (e *examination) inboxes(ctx context.Context) {
	found, err := e.process.Inspect.FullInboxes(ctx, e.db, mostInboxes)
	if err != nil {
		e.addFailed("inboxes", err)
		return
	}
	var runs []string
	for _, f := range found {
		runs = append(runs, fmt.Sprintf("%s (%s) for %s", f.RunID, f.Type, duration.About(e.report.At.Sub(f.Since))))
	}
	if runs != nil {
		e.add("inboxes", health.Degraded, "Messages are refused, because their runs have %d that they have not read: "+
			"%s. Look whether the name of their signal is misspelt, correct the sender, and drop those that the "+
			"run never reads, or cancel it.",
			store.MostUnread, text.List(runs, namedAtMost))
	}
}
