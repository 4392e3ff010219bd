package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A PublishSpec describes events as the workflow function publishes them.
type PublishSpec struct {
	Name    string
	BadName error // why the name is invalid; nil if it is valid
	// Events returns the events. Publish gives those that are not Named their IDs. refused reports that err is no
	// mistake of the code, such as events that are too large.
	Events func() (events []*store.NewEvent, refused bool, err error)
}

// Publish publishes events in the transaction of its record. A replay passes the record and publishes nothing. See
// store/doc_topics.go.
func (b *Branch) Publish(spec PublishSpec) error {
	e := b.execution()
	defer b.operate().done()
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return err
	}
	attempt := 1
	if row := b.lookup(id, store.KindPublish); row != nil {
		switch {
		case !isRefusal(row):
			b.passed(row)
			return nil
		case !e.forgot(row):
			return b.refusal(row)
		}
		attempt = row.Attempt + 1
	}
	events, refused, err := spec.Events()
	switch {
	case refused:
		return b.refuse(id, store.KindPublish, attempt, err)
	case err != nil:
		return b.Misuse(failure.Wrap(err, "publish %q", id))
	}
	if err := b.begins(); err != nil {
		return err
	}
	for i, event := range events {
		if !event.Named {
			event.ID = eventID(e.RunID, b.keyOf(id), i)
		}
	}
	r := e.newRecord(id, store.KindPublish, store.Completed, attempt, attempt)
	r.Events, r.EndedAt = events, b.afterNow(e.Now())
	row := r.StepRow // a copy: the flush may change the record's row
	row.FinishedAt = r.EndedAt
	if sizeOf(r) > bigEvents {
		b.record(r)
		e.exitIfStopped()
	} else {
		b.enqueue(r) // no branch waits: every later write stays behind it, also the end of the run
	}
	b.passed(&row)
	return nil
}

// bigEvents is the size in bytes beyond which Publish waits for the write, so that a loop does not fill the memory.
const bigEvents = 256 << 10

// eventID returns the ID of an event to which the application gave none. It is the same when the call is repeated
// because the process died before the record.
func eventID(run uuid.UUID, key string, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", run, key, i))
	return "run:" + hex.EncodeToString(sum[:16])
}
