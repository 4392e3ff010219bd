package replay

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A mail brings the run news from outside: messages, and the ends of its children. The execution's mutex guards the
// fields. The mail's files lock it, and a method ending in Locked is called with it.
type mail struct {
	mu       *sync.Mutex // the execution's
	seen     int64       // the wakeups of the run that history and inbox reflect
	inbox    inbox
	unread   int               // how often in a row the inbox could not be read. inboxRead counts and resets it.
	arrivals map[string]*event // by a message's name, or a child's ID
	anyEnd   event             // a child has ended
	// of steps that wait for a limit: each fires when the run was called, too. Added and removed by acquire.
	limited  []*event
	children []*Child // that the function has started, or reached in the history
	// its children that may be active, without detached ones. Set by remember and StartChild; their ends remove them.
	activeChildren map[uuid.UUID]bool
}

func newMail(mu *sync.Mutex) mail { return mail{mu: mu, activeChildren: map[uuid.UUID]bool{}} }

// hasSeenLocked notes that history and inbox reflect so many wake-ups of the run.
func (m *mail) hasSeenLocked(wakeups int64) { m.seen = wakeups }

// seenLocked returns how many wake-ups of the run history and inbox reflect.
func (m *mail) seenLocked() int64 { return m.seen }

// isBehindLocked reports whether the run's row counts more wake-ups than the execution has seen.
func (m *mail) isBehindLocked(wakeups int64) bool { return wakeups > m.seen }

// endOfLocked returns the end of a child that has ended, and else, if it will not complete, how it is about to end.
func (m *mail) endOfLocked(child uuid.UUID) (end, ending *store.ChildEnd) {
	return m.inbox.ends[child], m.inbox.endings[child]
}

// expectLocked notes that a child may be active, unless its end has arrived.
func (m *mail) expectLocked(child uuid.UUID) {
	if m.inbox.ends[child] == nil {
		m.activeChildren[child] = true
	}
}

// forgetLocked notes that a child is not active: it has not started, or it is detached.
func (m *mail) forgetLocked(child uuid.UUID) { delete(m.activeChildren, child) }

// forgetAllLocked is forgetLocked for all children. It reports whether there were any.
func (m *mail) forgetAllLocked() (any bool) {
	any = len(m.activeChildren) > 0
	clear(m.activeChildren)
	return any
}

// meetLocked notes that the function has started the child, or has reached it in the history.
func (m *mail) meetLocked(c *Child) { m.children = append(m.children, c) }

// stopBelowLocked returns the children that may be active and were started on the branches, or on those below them. It
// notes that the run has cancelled them.
func (m *mail) stopBelowLocked(branches []*Branch) (ids []uuid.UUID) {
	for _, c := range m.children {
		active := c.row.Status == store.Running && m.inbox.ends[c.id] == nil && m.inbox.endings[c.id] == nil &&
			!c.stopped && !c.detached
		if active && slices.ContainsFunc(branches, c.by.under) {
			ids = append(ids, c.id)
			c.stopped = true
		}
	}
	return ids
}

// sinceLastEndLocked returns how long ago the last end of a child has arrived.
func (m *mail) sinceLastEndLocked() time.Duration { return time.Since(m.inbox.lastEnd) }

// lingerNoMoreLocked forgets when the last end of a child has arrived.
func (m *mail) lingerNoMoreLocked() { m.inbox.lastEnd = time.Time{} }

// takeMessageLocked removes the oldest message of the name and returns it: see inbox.take.
func (m *mail) takeMessageLocked(name string, until time.Time) (message *store.Signal, late, more bool) {
	return m.inbox.take(name, until, m.seen)
}

// anyEndLocked returns the event of an end of a child.
func (m *mail) anyEndLocked() *event { return &m.anyEnd }

// callLocked fires ev, too, when the run may have been called because of a limit.
func (m *mail) callLocked(ev *event) { m.limited = append(m.limited, ev) }

// callNoMoreLocked ends callLocked.
func (m *mail) callNoMoreLocked(ev *event) {
	m.limited = slices.DeleteFunc(m.limited, func(other *event) bool { return other == ev })
}

// arrivalLocked returns the event of a message's name, or of a child's ID.
func (m *mail) arrivalLocked(of string) *event {
	if m.arrivals == nil {
		m.arrivals = map[string]*event{}
	}
	if m.arrivals[of] == nil {
		m.arrivals[of] = &event{}
	}
	return m.arrivals[of]
}
