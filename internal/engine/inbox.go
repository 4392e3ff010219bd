package engine

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// An inbox has what reached a run from outside: messages, and the ends of its children. The mutex of the run's execution
// guards it. Its maps are nil until something has reached the run.
type inbox struct {
	signals  map[string][]*store.Signal // not taken by a wait, by name, oldest first
	received map[string]int64           // the sequence of each name's last message
	ends     map[uuid.UUID]*store.ChildEnd
	endings  map[uuid.UUID]*store.ChildEnd // children that cannot end well any more
	lastEnd  time.Time                     // when the end of a child last came, by this process's clock
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

// addEnd adds the end of a child, and reports whether it is new. That a child cannot end well any more is no end.
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
		in.signals, in.received = map[string][]*store.Signal{}, map[string]int64{}
		in.ends, in.endings = map[uuid.UUID]*store.ChildEnd{}, map[uuid.UUID]*store.ChildEnd{}
	}
}
