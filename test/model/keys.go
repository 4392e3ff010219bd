package model

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A Queue says what the limits of the queue are. A zero field is no limit. All rates have the same time between two
// tokens.
type Queue struct {
	Max      int // runs that hold a slot
	Burst    int // of the queue's rate
	KeyMax   int // for each key that has none of its own
	KeyBurst int
	Held     bool // a run holds its slot until it ends
}

// Limited reports whether the queue itself has limits.
func (q Queue) Limited() bool { return q.Max > 0 || q.Burst > 0 }

// slot returns the slot that a run gets: 1 while it is RUNNING, or 2 until it ends.
func (q Queue) slot() int {
	if q.Held {
		return 2
	}
	return 1
}

// A KeyLimit holds the limits of a key. A zero field is that of its queue.
type KeyLimit struct{ Max, Burst int }

// A Bucket has the tokens of a rate. One comes in each interval, up to the burst of the rate.
type Bucket struct {
	used bool // else it is full
	next int  // in how many intervals the next token comes; not positive: there are 1 - next
}

func (b Bucket) tokens(burst int) int {
	switch {
	case !b.used:
		return burst
	case b.next > 0:
		return 0
	}
	return min(burst, 1-b.next)
}

func (b Bucket) take(n, burst int) Bucket {
	if n == 0 || burst == 0 {
		return b
	}
	from := 1 - burst
	if b.used {
		from = max(from, b.next)
	}
	return Bucket{true, from + n}
}

// SetQueue sets the limits of the queue. Runs that a worker executes without a slot get one, if slots count now.
func (m *Model) SetQueue(q Queue) {
	m.Queue = q
	if q.Burst == 0 {
		m.bucket = Bucket{}
	}
	for _, r := range m.all() {
		if q.Max > 0 && r.Status == store.Running && r.Slot == 0 && !r.Paused && r.At != Due {
			r.Slot = q.slot()
		}
	}
	maps.DeleteFunc(m.buckets, func(k store.Key, _ Bucket) bool { return m.burstOf(k) == 0 })
}

// SetKey sets the limits of a key of the queue.
func (m *Model) SetKey(k store.Key, l KeyLimit) {
	m.Keys[k] = l
	if m.burstOf(k) == 0 {
		delete(m.buckets, k)
	}
}

// Interval lets one interval of the rates pass.
func (m *Model) Interval() {
	m.bucket.next--
	for k, b := range m.buckets {
		m.buckets[k] = Bucket{b.used, b.next - 1}
	}
}

func (m *Model) burstOf(k store.Key) int {
	if k.Group {
		return 0
	}
	return cmp.Or(m.Keys[k].Burst, m.Queue.KeyBurst)
}

// waits reports whether a claim may only take the run with a slot of its key.
func (r *Run) waits() bool {
	return r.Key != (store.Key{}) && r.Active() && r.Status != store.Running && r.Slot != 2
}

// holdsSlot reports whether the run counts against the limits of its queue and its key.
func (r *Run) holdsSlot() bool {
	return r.Slot > 0 && (r.Status == store.Running || r.Slot == 2 && r.Active())
}

// anyNumber is more than there are runs.
const anyNumber = 1 << 20

// room returns how many runs may take a slot of the queue now.
func (m *Model) room() int {
	n := anyNumber
	if m.Queue.Max > 0 {
		n = m.Queue.Max - m.holders(func(*Run) bool { return true })
	}
	if m.Queue.Burst > 0 {
		n = min(n, m.bucket.tokens(m.Queue.Burst))
	}
	return max(0, n)
}

// roomOf returns how many runs may take a slot of the key now. Of a group one run is active.
func (m *Model) roomOf(k store.Key) int {
	n, most := anyNumber, cmp.Or(m.Keys[k].Max, m.Queue.KeyMax)
	if k.Group {
		most = 1
	}
	if most > 0 {
		n = most - m.holders(func(r *Run) bool { return r.Key == k })
	}
	if burst := m.burstOf(k); burst > 0 {
		n = min(n, m.buckets[k].tokens(burst))
	}
	return max(0, n)
}

func (t *table) holders(is func(*Run) bool) (n int) {
	for _, r := range t.all() {
		if r.holdsSlot() && is(r) {
			n++
		}
	}
	return n
}

// line returns the runs of the key that the claim may take, in order: by priority, then since when they are due. If the
// key is a sequence, that is its first due run or none.
func (m *Model) line(req store.ClaimRequest, k store.Key) (line []*Run) {
	for _, r := range m.all() {
		if r.Key == k && r.waits() && r.At == Due && r.Outcome == "" && !m.stopped(r) {
			line = append(line, r)
		}
	}
	slices.SortFunc(line, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.dueAt().Compare(b.dueAt()),
			bytes.Compare(a.ID[:], b.ID[:]))
	})
	sequence := k.Group || m.Queue.Held && cmp.Or(m.Keys[k].Max, m.Queue.KeyMax) == 1
	if sequence && len(line) > 1 {
		line = line[:1]
	}
	return slices.DeleteFunc(line, func(r *Run) bool { return !executes(req, r) })
}

func (r *Run) dueAt() time.Time {
	if r.DueAt.IsZero() {
		return time.Unix(1<<40, 0)
	}
	return r.DueAt
}

// claimKeys checks what a claim has taken of the keys, and does the same. all says that nothing kept the claim from
// taking all that the limits of the keys allow, and beside that it may have passed over runs.
func (m *Model) claimKeys(req store.ClaimRequest, taken []*Run, all, beside bool) error {
	if len(taken) > m.room() {
		return fmt.Errorf("the claim took %d runs with keys, and the queue has room for %d", len(taken), m.room())
	}
	keys := map[store.Key]int{}
	for _, r := range m.all() {
		if r.waits() {
			keys[r.Key] = 0
		}
	}
	for _, r := range taken {
		keys[r.Key]++
	}
	for k, n := range keys {
		line := m.line(req, k)
		most := min(len(line), m.roomOf(k))
		if n > most || n < most && all {
			return fmt.Errorf("the claim took %d runs of key %+v, and may take %d of %d that are due", n, k,
				most, len(line))
		}
		for i, r := range line {
			if i < n && !slices.Contains(taken, r) && !beside {
				return fmt.Errorf("the claim took %d runs of key %+v and left %v, which is number %d", n, k, r.ID, i+1)
			}
		}
		for _, r := range taken {
			if r.Key == k && !slices.Contains(line, r) {
				return fmt.Errorf("the claim took run %v of key %+v, which it may not take yet", r.ID, k)
			}
		}
		m.buckets[k] = m.buckets[k].take(n, m.burstOf(k))
	}
	m.bucket = m.bucket.take(len(taken), m.Queue.Burst)
	return nil
}
