package store

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// A windowPlan has the ends of the runs of one call that locks windows.
type windowPlan struct {
	runs    []NewRun      // a copy, because the input and the delay of some are changed
	of      []*openWindow // of each run; nil: it has none
	windows []*openWindow // in the order in which they are locked
	byID    map[uuid.UUID]*openWindow
	out     []StartedRun
	rest    []int // the runs to insert
	items   []startItem
}

// An openWindow is a window of the call: its row, which is locked, and what the call makes of it.
type openWindow struct {
	id               uuid.UUID
	policy, typ, key string
	windowState

	fresh   *NewRun        // the run, if this call inserts it
	first   int            // the index of the run that opens the window now
	length  time.Duration  // of the window that is opened
	opened  uuid.UUID      // the run that has opened it now
	change  *waitingChange // of the run that was in the table before
	changed bool
}

// A windowState is what a window's row and its run say, as of the lock, or as the starts of the call have changed it.
type windowState struct {
	run         uuid.UUID // that starts join; uuid.Nil: no start has opened the window
	runType     string    // empty if the run is not in the table
	start       uuid.UUID // of Debounce: the start whose input the run has
	items, most int
	bytes       int64
	open        bool // its time is not over
	waits       bool // the run has not begun
	closing     bool // the window closes within a second
}

// A startItem is an item of a batch to insert.
type startItem struct {
	run   uuid.UUID
	place int
	id    uuid.UUID
	input []byte
}

// A waitingChange is a change of a run that waits.
type waitingChange struct {
	run, window uuid.UUID
	delay       time.Duration
	input       []byte // nil: it stays
}

// windowSpace is the space of the IDs of windows.
var windowSpace = uuid.MustParse("d3b3a2f4-6f0b-4d37-9e0d-6a9a6a1c7b52")

func planWindows(runs []NewRun) *windowPlan {
	p := &windowPlan{
		runs: slices.Clone(runs), of: make([]*openWindow, len(runs)), byID: map[uuid.UUID]*openWindow{},
		out: make([]StartedRun, len(runs)),
	}
	for i := range runs {
		r := &runs[i]
		if r.Window == nil {
			continue
		}
		typ := r.Type
		switch r.Window.Policy {
		case OncePer:
			typ = "" // an ID belongs to no workflow
		case whenFull:
			typ = r.Key.scope(r.Queue)
		}
		id := uuid.NewSHA1(windowSpace, []byte(r.Window.Policy+"\x00"+typ+"\x00"+r.Window.Key))
		w := p.byID[id]
		if w == nil {
			w = &openWindow{id: id, policy: r.Window.Policy, typ: typ, key: r.Window.Key}
			p.byID[id] = w
			p.windows = append(p.windows, w)
		}
		p.of[i] = w
	}
	slices.SortFunc(p.windows, func(a, b *openWindow) int { return compareIDs(a.id, b.id) })
	return p
}

// assign decides for each run, in the order of the call, whether it joins the run of its window or opens another
// window. settled says which runs have a result already.
func (p *windowPlan) assign(settled map[int]bool) error {
	for i := range p.runs {
		r, w := &p.runs[i], p.of[i]
		switch {
		case settled[i]:
		case w == nil:
			p.rest = append(p.rest, i)
		case w.policy == OncePer && w.open && w.run != uuid.Nil:
			if w.runType != "" && w.runType != r.Type {
				return &IDConflict{r.ExternalID, w.run, w.runType, otherWorkflow}
			}
			p.out[i] = StartedRun{RunID: w.run, Existed: true}
		case w.policy == OncePer:
			p.rest = append(p.rest, i) // inserted opens the window, unless an active run has the ID
		case w.policy == Debounce:
			p.debounce(i, r, w)
		default:
			p.batch(i, r, w)
		}
	}
	return nil
}

func (p *windowPlan) debounce(i int, r *NewRun, w *openWindow) {
	switch delay := min(r.Window.Delay, r.Window.Open); {
	case !w.open || !w.waits:
		r.Delay = delay
		p.begin(i, w)
	case w.fresh != nil:
		w.fresh.Input, w.fresh.Delay = r.Input, min(r.Window.Delay, w.length)
		p.join(i, w)
	default:
		w.change = &waitingChange{w.run, w.id, delay, r.Input}
		p.join(i, w)
	}
	w.start, w.changed = r.RunID, true
}

func (p *windowPlan) batch(i int, r *NewRun, w *openWindow) {
	item := startItem{id: r.RunID, input: r.Input}
	fits := w.bytes+int64(len(item.input)) <= int64(r.Window.MostBytes)
	switch {
	case w.open && w.waits && w.items < w.most && fits:
		p.join(i, w)
	default:
		if w.open && w.waits && w.items < w.most {
			p.full(i, w)
		}
		r.Input, r.Delay = nil, r.Window.Open
		p.begin(i, w)
		w.items, w.bytes, w.most = 0, 0, r.Window.Most
	}
	item.run, item.place = w.run, w.items
	p.items = append(p.items, item)
	w.items, w.bytes, w.changed = w.items+1, w.bytes+int64(len(item.input)), true
	if w.items == w.most {
		p.full(i, w)
	}
}

// full makes the batch of w due, because of run i.
func (p *windowPlan) full(i int, w *openWindow) {
	if w.fresh != nil {
		w.fresh.Delay = 0
		return
	}
	w.change = &waitingChange{run: w.run, window: w.id}
	p.out[i].Due = true
}

// begin opens the window anew, with the run i.
func (p *windowPlan) begin(i int, w *openWindow) {
	r := &p.runs[i]
	w.run, w.fresh, w.first, w.length = r.RunID, r, i, r.Window.Open
	w.open, w.waits, w.closing = true, true, false
	p.rest = append(p.rest, i)
}

// join lets the run i join the run of w.
func (p *windowPlan) join(i int, w *openWindow) {
	p.out[i] = StartedRun{RunID: w.run, Existed: true, Due: w.closing}
}

// inserted notes that run i was inserted, or that it is the active run with its external ID.
func (p *windowPlan) inserted(i int, started StartedRun) {
	started.Due = started.Due || p.out[i].Due
	p.out[i] = started
	w := p.of[i]
	if w == nil || started.Existed {
		return
	}
	w.changed = true
	if w.policy == OncePer {
		w.run, w.first, w.length = started.RunID, i, p.runs[i].Window.Open
	}
	if w.first == i {
		w.opened = started.RunID
	}
}

// changes returns the changes of runs in the table.
func (p *windowPlan) changes() (changes []*waitingChange) {
	for _, w := range p.windows {
		if w.change != nil {
			changes = append(changes, w.change)
		}
	}
	return changes
}

// written returns the windows to write.
func (p *windowPlan) written() (windows []*openWindow) {
	for _, w := range p.windows {
		if w.changed {
			windows = append(windows, w)
		}
	}
	return windows
}
