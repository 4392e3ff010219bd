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
	env      *Env
	run      uuid.UUID
	crew     *crew  // the execution's, which waits for the news
	by       reader // yields the run if the inbox stays unreadable
	seen     int64  // the wakeups of the run that history and inbox reflect
	inbox    inbox
	unread   int               // how often in a row the inbox could not be read. inboxRead counts and resets it.
	arrivals map[string]*event // by a message's name, or a child's ID
	anyEnd   event             // a child has ended
	// of steps that wait for a limit: each fires when the run was called, too. Added by listen.
	limited  []*event
	requests map[int64]store.Asked // that a wait has read and no reply has answered, by sequence; nil: there are none
	children []*Child              // that the function has started, or reached in the history
	// its children that may be active, without detached ones. Set by remember and StartChild; their ends remove them.
	activeChildren map[uuid.UUID]bool
}

// A reader yields a run of which the inbox cannot be read: it is the execution.
type reader interface{ unreadable(err error) }

func newMail(mu *sync.Mutex, env *Env, run uuid.UUID, c *crew, by reader) mail {
	return mail{mu: mu, env: env, run: run, crew: c, by: by, activeChildren: map[uuid.UUID]bool{}}
}

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

// forgetChildren notes that no child is active. It reports whether there were any.
func (m *mail) forgetChildren() (any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgetAllLocked()
}

// meetLocked notes that the function has started the child, or has reached it in the history.
func (m *mail) meetLocked(c *Child) { m.children = append(m.children, c) }

// stopBelowLocked returns the children that may be active and were started on the branches, or on those below them. It
// notes that the run has cancelled them.
func (m *mail) stopBelowLocked(branches []*node) (ids []uuid.UUID) {
	for _, c := range m.children {
		if end, ending := m.endOfLocked(c.ID()); end == nil && ending == nil && c.stopBelowLocked(branches) {
			ids = append(ids, c.ID())
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

// hasReadLocked notes a request. The history has its name alone.
func (m *mail) hasReadLocked(sequence int64, asked store.Asked) {
	if m.requests == nil {
		m.requests = map[int64]store.Asked{}
	}
	m.requests[sequence] = asked
}

func (m *mail) hasRead(sequence int64, asked store.Asked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hasReadLocked(sequence, asked)
}

// takenLocked returns the requests that a wait has read and no reply has answered.
func (m *mail) takenLocked() (taken []store.ReopenRequest) {
	for sequence, asked := range m.requests {
		taken = append(taken, store.ReopenRequest{Name: asked.Name, Sequence: sequence})
	}
	return taken
}

// hasAnswered notes that the history has the answer to a request.
func (m *mail) hasAnswered(sequence int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.requests, sequence)
}

// unanswered returns the requests that are open when the run ends, as far as the execution knows them.
func (m *mail) unanswered() (open []store.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for sequence, asked := range m.requests {
		open = append(open, store.Answer{
			RequestKey: store.RequestKey{RunID: m.run, ID: asked.ID}, Sequence: sequence, Asked: asked,
		})
	}
	for _, messages := range m.inbox.signals {
		for _, g := range messages {
			if g.ReplyTo != "" {
				open = append(open, store.Answer{
					RequestKey: store.RequestKey{RunID: m.run, ID: g.ID}, Sequence: g.Sequence,
					Asked: store.Asked{Name: g.Name, ID: g.ID, ReplyTo: g.ReplyTo},
				})
			}
		}
	}
	return open
}

// answersLocked returns what is known of a request that is answered now.
func (m *mail) answersLocked(sequence int64, name string) store.Asked {
	asked := m.requests[sequence]
	delete(m.requests, sequence)
	asked.Name = name
	return asked
}

// anyEndLocked returns the event of an end of a child.
func (m *mail) anyEndLocked() *event { return &m.anyEnd }

// listen fires ev, too, when the run may have been called because of a limit, until stop is called.
func (m *mail) listen(ev *event) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limited = append(m.limited, ev)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.limited = slices.DeleteFunc(m.limited, func(other *event) bool { return other == ev })
	}
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
