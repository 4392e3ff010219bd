package engine

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// An inbox holds the messages and the ends of children that have reached a run. The mutex of the run's execution guards
// it. Its maps are nil until the first arrival. See doc_wakeups.go.
type inbox struct {
	signals  map[string][]*store.Signal // that no wait has taken, by name, oldest first
	received map[string]int64           // the sequence number of each name's last message
	rest     string                     // the inbox was read up to this name only; empty: to its end
	// names that were read to their end apart, and the wake-ups that this read reflects
	whole   map[string]int64
	missed  map[string]bool // names of which a wait has found no message
	ends    map[uuid.UUID]*store.ChildEnd
	endings map[uuid.UUID]*store.ChildEnd // children that will not complete, but have not ended yet
	lastEnd time.Time                     // when the last end of a child arrived, by this process's clock
}

// addSignal adds a message, and reports whether it is new.
func (in *inbox) addSignal(g *store.Signal) bool {
	if g.Sequence <= in.received[g.Name] {
		return false
	}
	in.init()
	in.received[g.Name] = g.Sequence
	in.signals[g.Name] = append(in.signals[g.Name], g)
	return true
}

// knows reports whether the inbox has all messages of the name that the wake-ups seen announced.
func (in *inbox) knows(name string, seen int64) bool {
	if in.rest == "" || name < in.rest {
		return true
	}
	wakeups, read := in.whole[name]
	return read && wakeups >= seen
}

// addEnd adds the end of a child, and reports whether it is new. A child that is only ending (c.Ending) has not ended.
func (in *inbox) addEnd(c *store.ChildEnd) bool {
	in.init()
	if c.Ending {
		in.endings[c.Child] = c
		return false
	}
	if in.ends[c.Child] != nil {
		return false
	}
	in.ends[c.Child] = c
	in.lastEnd = time.Now()
	return true
}

// putBack returns a message to its place in the order.
func (in *inbox) putBack(g *store.Signal) {
	box := in.signals[g.Name]
	i := 0
	for i < len(box) && box[i].Sequence < g.Sequence {
		i++
	}
	in.signals[g.Name] = slices.Insert(box, i, g)
}

func (in *inbox) init() {
	if in.received == nil {
		in.signals, in.received, in.whole = map[string][]*store.Signal{}, map[string]int64{}, map[string]int64{}
		in.ends, in.endings = map[uuid.UUID]*store.ChildEnd{}, map[uuid.UUID]*store.ChildEnd{}
	}
}

// take removes the oldest message of the name and returns it, if it arrived no later than at that time, unless that is
// zero. late says that it did not. more says that the table may have messages that the inbox lacks, after the wake-ups
// seen. If there is none, take notes that one is missed.
func (in *inbox) take(name string, until time.Time, seen int64) (message *store.Signal, late, more bool) {
	box := in.signals[name]
	switch {
	case len(box) > 0 && !until.IsZero() && box[0].ReceivedAt.After(until):
		return nil, true, false
	case len(box) > 0:
		in.signals[name] = box[1:]
		return box[0], false, false
	case !in.knows(name, seen):
		return nil, false, true
	case !in.missed[name]:
		if in.missed == nil {
			in.missed = map[string]bool{}
		}
		in.missed[name] = true
	}
	return nil, false, false
}
