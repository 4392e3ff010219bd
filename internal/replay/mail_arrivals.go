package replay

import (
	"context"

	"github.com/kagzi/kagzi/store"
)

// mostUnread is how many times in a row the inbox of a run under way may be unreadable before the run is yielded.
const mostUnread = 3

// readMessages reads the next page of messages of the name.
func (m *mail) readMessages(name string) error {
	m.mu.Lock()
	after, seen := m.inbox.received[name], m.seen
	m.mu.Unlock()
	page, more, err := m.env.Store.Messages.UnreadOfName(context.Background(), m.run, name, after)
	if err == nil {
		m.mu.Lock()
		m.addSignalsLocked(page)
		if m.inbox.init(); !more {
			m.inbox.whole[name] = max(m.inbox.whole[name], seen)
		}
		m.mu.Unlock()
	}
	return m.inboxRead(err)
}

// inboxRead notes how a read of the inbox ended, and returns err. If the inbox stays unreadable although the database
// can be read, it yields the run. See doc_wakeups.go.
func (m *mail) inboxRead(err error) error {
	if err == nil {
		m.mu.Lock()
		m.unread = 0
		m.mu.Unlock()
		return nil
	}
	m.env.Trouble(err)
	if !m.env.Readable() {
		return err
	}
	m.mu.Lock()
	m.unread++
	yields := m.unread >= mostUnread
	m.mu.Unlock()
	if yields {
		m.by.unreadable(err)
	}
	return err
}

// Deliver passes on what a query for the run's inbox has found: n is nil if that is nothing, and err if it cannot be
// read.
func (m *mail) Deliver(n *store.Inbox, err error) {
	if n != nil {
		m.deliver(n)
	}
	_ = m.inboxRead(err) // after a failure the next heartbeat asks again
}

// deliver adds messages and ends of children to the execution's inbox, and wakes the branches that wait for them.
func (m *mail) deliver(n *store.Inbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n.Wakeups >= m.seen {
		m.seen, m.inbox.rest = n.Wakeups, n.Rest
	}
	for _, ev := range m.limited { // a limit may have called the run
		m.crew.callLocked(ev)
	}
	m.addSignalsLocked(n.Signals)
	for name := range m.inbox.missed {
		if !m.inbox.knows(name, m.seen) { // there may be a message of it among the rest
			m.crew.fireLocked(m.arrivalLocked(name))
		}
	}
	for _, c := range n.Ends {
		if m.inbox.addEnd(c) {
			delete(m.activeChildren, c.Child)
			m.crew.fireLocked(m.arrivalLocked(c.Child.String()))
			m.crew.fireLocked(&m.anyEnd)
		}
	}
}

func (m *mail) addSignalsLocked(messages []*store.Signal) {
	for _, g := range messages {
		if m.inbox.addSignal(g) {
			m.crew.fireLocked(m.arrivalLocked(g.Name))
		}
	}
}

// putBackLocked returns messages to the inbox that a branch took and did not record.
func (m *mail) putBackLocked(messages []*store.Signal) {
	for _, g := range messages {
		m.inbox.putBack(g)
		m.crew.fireLocked(m.arrivalLocked(g.Name))
	}
}

// isBehind reports whether the run's row counts more wake-ups than the execution has seen.
func (m *mail) isBehind(wakeups int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isBehindLocked(wakeups)
}
