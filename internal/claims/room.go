package claims

import (
	"slices"
	"sync"
	"time"
)

// A Room has slots that the policies of several namespaces share. See the comment on rooms in doc.go. It is safe for
// concurrent use, and locks no policy.
type Room struct {
	slots, turns int // how many slots it has, and how many turns there are at once

	mu      sync.Mutex // guards the fields below, and those of the loans
	free    int
	holders []*loan // those in their turns
	// those that wait for a turn, in their order: those without one since they rested, and the others
	fresh, waiting []*loan
	spent          time.Duration // by turns of fresh ones, since the last turn of another began
	timed          bool          // a timer runs, at whose end turns may be over
}

const (
	mostTurns = 2
	// turnTime is how long a turn lasts if others wait. In that time a worker makes dozens of claims.
	turnTime = 100 * time.Millisecond
)

// NewRoom returns a room with so many slots.
func NewRoom(slots int) *Room { return &Room{slots: slots, free: slots, turns: min(slots, mostTurns)} }

// A loan is what a policy has borrowed of a room.
type loan struct {
	room *Room
	wake func() // called when the policy can borrow slots for which it waits

	slots int       // that are not given back
	since time.Time // when its turn began; zero: it is in none
	again bool      // it had a turn since it last rested
	short bool      // it waits for a slot in its turn
}

// unused returns how many slots are free.
func (r *Room) unused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free
}

// borrow borrows slots for a claim, at most so many in all. It begins a turn, or waits for one. It ends a turn that has
// lasted long while others wait.
func (l *loan) borrow(most int, now time.Time) (n int, turn bool) {
	r := l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLong(now)
	begins := l.since.IsZero()
	if begins {
		r.join(l)
		if !r.mayBegin(l) {
			r.time(now)
			return 0, false
		}
		r.begin(l, now)
	}
	n = max(0, min(r.free, most-l.slots, r.most()-l.slots))
	l.short = n == 0
	r.free -= n
	l.slots += n
	if begins {
		r.wake() // it may have been the last that waited: then those with their shares can have more
	}
	return n, true
}

// borrowOne borrows a slot for a run, unless others wait.
func (l *loan) borrowOne() bool {
	r := l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free == 0 || r.othersWait() && l.since.IsZero() {
		return false
	}
	r.free--
	l.slots++
	return true
}

// giveBack gives back n slots, unless l is in its turn.
func (l *loan) giveBack(n int) (done bool) {
	r := l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.since.IsZero() {
		return false
	}
	l.slots -= n
	r.free += n
	r.wake()
	return true
}

// rest gives back n slots, and ends the turn, or the wait for one.
func (l *loan) rest(n int, now time.Time) {
	r := l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(l, now)
	r.fresh, r.waiting, l.again = without(r.fresh, l), without(r.waiting, l), false
	l.slots -= n
	r.free += n
	r.wake()
}

func without(list []*loan, l *loan) []*loan {
	return slices.DeleteFunc(list, func(other *loan) bool { return other == l })
}

// The caller of the next functions holds r.mu.

func (r *Room) othersWait() bool { return len(r.fresh)+len(r.waiting) > 0 }

// most returns how many slots a policy may have in its turn.
func (r *Room) most() int {
	if r.othersWait() {
		return (r.slots + r.turns - 1) / r.turns
	}
	return r.slots
}

// join lets l wait for a turn.
func (r *Room) join(l *loan) {
	line := &r.fresh
	if l.again {
		line = &r.waiting
	}
	if !slices.Contains(*line, l) {
		*line = append(*line, l)
	}
}

// next returns those that may begin a turn now.
func (r *Room) next() []*loan {
	n := r.turns - len(r.holders)
	if r.free == 0 || n <= 0 {
		return nil
	}
	first := min(len(r.waiting), 1)
	if r.spent < turnTime {
		first = 0
	}
	next := slices.Concat(r.waiting[:first], r.fresh, r.waiting[first:])
	return next[:min(n, len(next))]
}

func (r *Room) mayBegin(l *loan) bool { return slices.Contains(r.next(), l) }

// begin begins a turn, and end ends it, if there is one.
func (r *Room) begin(l *loan, now time.Time) {
	if l.again {
		r.spent = 0
	}
	r.fresh, r.waiting = without(r.fresh, l), without(r.waiting, l)
	r.holders = append(r.holders, l)
	l.since = now
}

func (r *Room) end(l *loan, now time.Time) {
	if l.since.IsZero() {
		return
	}
	if !l.again {
		r.spent += now.Sub(l.since)
	}
	r.holders = without(r.holders, l)
	l.since, l.short, l.again = time.Time{}, false, true
}

// wake wakes those that can borrow slots now, and no others: each of them asks at once, which may wake others.
func (r *Room) wake() {
	if r.free == 0 {
		return
	}
	for _, l := range r.holders {
		if l.short && l.slots < r.most() {
			l.wake()
		}
	}
	for _, l := range r.next() {
		l.wake()
	}
}

// endLong ends the turns that have lasted long if others wait. Their policies give back what is free, and wait again.
func (r *Room) endLong(now time.Time) {
	if !r.othersWait() {
		return
	}
	for _, l := range slices.Clone(r.holders) {
		if now.Sub(l.since) >= turnTime {
			r.end(l, now)
			l.wake()
		}
	}
	r.wake()
}

// time starts the timer of the first turn that will be over.
func (r *Room) time(now time.Time) {
	if r.timed || len(r.holders) == 0 || !r.othersWait() {
		return
	}
	r.timed = true
	time.AfterFunc(turnTime-now.Sub(r.holders[0].since), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		r.timed = false
		r.endLong(now)
		r.time(now)
	})
}
