package engine

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// mostUnread is how many times in a row the inbox of a run under way may be unreadable before the run is yielded.
const mostUnread = 3

// readInbox reads the first messages and the ends of children that reached e's run.
func (e *execution) readInbox() error {
	id := e.RunID
	inboxes, err := e.store.Messages.Inbox(e.background, []uuid.UUID{id})
	if n := inboxes[id]; n != nil {
		e.deliver(n)
	}
	return e.inboxRead(err)
}

// readMessages reads the next page of messages of the name.
func (e *execution) readMessages(name string) error {
	e.Lock()
	after, seen := e.inbox.received[name], e.seen
	e.Unlock()
	page, more, err := e.store.Messages.UnreadOfName(e.background, e.RunID, name, after)
	if err == nil {
		e.Lock()
		e.addSignalsLocked(page)
		if e.inbox.init(); !more {
			e.inbox.whole[name] = max(e.inbox.whole[name], seen)
		}
		e.Unlock()
	}
	return e.inboxRead(err)
}

// inboxRead notes how a read of the inbox ended, and returns err. If the inbox stays unreadable although the database
// can be read, it yields the run. See doc_wakeups.go.
func (e *execution) inboxRead(err error) error {
	if err == nil {
		e.Lock()
		e.unread = 0
		e.Unlock()
		return nil
	}
	e.databaseTrouble(err)
	if !e.readable() {
		return err
	}
	e.Lock()
	e.unread++
	yields := e.unread >= mostUnread
	e.Unlock()
	if yields {
		e.unreadable(err)
	}
	return err
}

// deliver adds messages and ends of children to the execution's inbox, and wakes the branches that wait for them.
func (e *execution) deliver(n *store.Inbox) {
	e.Lock()
	defer e.Unlock()
	if n.Wakeups >= e.seen {
		e.seen, e.inbox.rest = n.Wakeups, n.Rest
	}
	for _, ev := range e.limited { // a limit may have called the run
		ev.calls++
		e.fireLocked(ev)
	}
	e.addSignalsLocked(n.Signals)
	for name := range e.inbox.missed {
		if !e.inbox.knows(name, e.seen) { // there may be a message of it among the rest
			e.fireLocked(e.arrivalLocked(name))
		}
	}
	for _, c := range n.Ends {
		if e.inbox.addEnd(c) {
			delete(e.activeChildren, c.Child)
			e.fireLocked(e.arrivalLocked(c.Child.String()))
			e.fireLocked(&e.anyEnd)
		}
	}
}

func (e *execution) addSignalsLocked(messages []*store.Signal) {
	for _, g := range messages {
		if e.inbox.addSignal(g) {
			e.fireLocked(e.arrivalLocked(g.Name))
		}
	}
}

// putBackLocked returns messages to the inbox that a branch took and did not record.
func (e *execution) putBackLocked(messages []*store.Signal) {
	for _, g := range messages {
		e.inbox.putBack(g)
		e.fireLocked(e.arrivalLocked(g.Name))
	}
}

// expectAny notes that the run may have active children, without their IDs.
func (m *mail) expectAny() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expectLocked(uuid.Nil) // stands for all of them
}

// forgetChildren notes that no child is active. It reports whether there were any.
func (m *mail) forgetChildren() (any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgetAllLocked()
}

// isBehind reports whether the run's row counts more wake-ups than the execution has seen.
func (m *mail) isBehind(wakeups int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isBehindLocked(wakeups)
}
