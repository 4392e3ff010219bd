package replay

import (
	"fmt"

	"github.com/kagzi/kagzi/store"
)

// A historyLookup is an operation that a branch has looked up in the history.
type historyLookup struct {
	id, kind string
	found    bool
}

// kindCancel stands for the operation of [Child.Cancel] in messages.
const kindCancel = "CANCEL"

func kindWord(kind string) string {
	return map[string]string{
		store.KindFunction: "a step", store.KindSleep: "a sleep", store.KindMarker: "a group of branches",
		store.KindSignal: "a wait for a signal", store.KindChild: "a child", store.KindCompensation: "a compensation",
		store.KindPeek: "a look at a topic", store.KindReserve: "a reservation of events",
		store.KindPublish: "a publishing of events", store.KindMetadata: "a change of metadata",
		store.KindRequest: "a wait for a request", store.KindReply: "a reply to a request",
		store.KindValue: "a change of a value", store.KindCheckpoint: "a checkpoint",
		store.KindEvent: "a wait for an event",
		store.KindAsk:   "a request to another run", store.KindBranch: "a branch", kindCancel: "the cancel of child",
	}[kind]
}

// isNew reports whether the history does not have the operation.
func (h historyLookup) isNew() bool { return !h.found }

// beyond says that the code comes to the operation, and that the history does not have its result.
func (h historyLookup) beyond() (id, message string) {
	if h.found {
		return h.id, fmt.Sprintf("the code goes on with %s %q, and the history does not say how that ended",
			kindWord(h.kind), h.id)
	}
	return h.id, fmt.Sprintf("the code comes to %s %q, which the history does not have", kindWord(h.kind), h.id)
}
