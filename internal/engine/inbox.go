package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// mail is what reached a run from outside: messages, and the ends of its children. The execution's mutex guards it.
type mail struct {
	inbox    map[string][]*store.Signal // not taken, by name, oldest first
	received map[string]int64           // the sequence of each name's last message
	ends     map[uuid.UUID]*store.ChildEnd
	arrivals map[string]*event             // by a message's name, or a child's ID
	anyEnd   event                         // of a child
	lastEnd  time.Time                     // when the end of a child last came
	endings  map[uuid.UUID]*store.ChildEnd // children that cannot end well any more
}

// deliver takes in what the table had.
func (e *execution) deliver(n *store.Inbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = max(e.seen, n.Wakeups)
	if e.received == nil {
		e.inbox, e.received, e.ends = map[string][]*store.Signal{}, map[string]int64{}, map[uuid.UUID]*store.ChildEnd{}
		e.endings = map[uuid.UUID]*store.ChildEnd{}
	}
	for _, g := range n.Signals {
		if g.Sequence > e.received[g.Name] {
			e.received[g.Name] = g.Sequence
			e.inbox[g.Name] = append(e.inbox[g.Name], g)
			e.fireLocked(e.arrivalLocked(g.Name))
		}
	}
	for _, c := range n.Ends {
		if c.Ending {
			e.endings[c.Child] = c
			continue
		}
		if e.ends[c.Child] == nil {
			e.ends[c.Child] = c
			e.lastEnd = time.Now()
			delete(e.offspring, c.Child)
			e.fireLocked(e.arrivalLocked(c.Child.String()))
			e.fireLocked(&e.anyEnd)
		}
	}
}

// missed reports whether wakeups are more than the execution knows of.
func (e *execution) missed(wakeups int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return wakeups > e.seen
}

// arrivalLocked is the event of a message of a name, or of the end of a child.
func (e *execution) arrivalLocked(of string) *event {
	if e.arrivals == nil {
		e.arrivals = map[string]*event{}
	}
	if e.arrivals[of] == nil {
		e.arrivals[of] = &event{}
	}
	return e.arrivals[of]
}

// putBackLocked returns a message to the inbox, in its place.
func (e *execution) putBackLocked(g *store.Signal) {
	box := e.inbox[g.Name]
	i := 0
	for i < len(box) && box[i].Sequence < g.Sequence {
		i++
	}
	e.inbox[g.Name] = slices.Insert(box, i, g)
	e.fireLocked(e.arrivalLocked(g.Name))
}

// needLocked returns how many wakeups of the run end a wait at the earliest, zero if none does.
func (e *execution) needLocked() (need int) {
	for _, w := range e.waits {
		if w.need > 0 && (need == 0 || w.need < need) {
			need = w.need
		}
	}
	return need
}

// lingersLocked reports whether the execution stays in memory although it could be suspended, and looks again when it
// need not any more: children end in swarms, and each suspension costs the run a claim. It does not keep a slot that others
// may need, such as the child that it waits for.
func (e *execution) lingersLocked() bool {
	left := memoryWait - time.Since(e.lastEnd)
	if left <= 0 || !slices.ContainsFunc(e.waits, func(w *wait) bool { return w.child }) || !e.s.mayLinger(e) {
		return false
	}
	time.AfterFunc(left, func() { e.s.endLingering(e) })
	return true
}

// mayLinger reports whether a slot is free, and notes that e lingers. The caller holds e's mutex.
func (s *Session) mayLinger(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots <= 0 {
		return false
	}
	s.lingering[e] = true
	return true
}

// endLingering has executions that linger look whether they still may: those given; if none is given, all of them.
func (s *Session) endLingering(some ...*execution) {
	s.mu.Lock()
	if some == nil {
		some = slices.Collect(maps.Keys(s.lingering))
	}
	for _, e := range some {
		delete(s.lingering, e)
	}
	s.mu.Unlock()
	for _, e := range some {
		e.mu.Lock()
		if e.reason == underWay && e.busy == 0 {
			e.suspendLocked()
		}
		e.mu.Unlock()
	}
}
