package claims

import (
	"slices"
	"sync"
)

// A Room has slots that the policies of several namespaces share. A policy borrows slots for a claim, and gives each
// back when its run ends, or when no claim is due. Those that find none wait in a line, and the first gets the slots
// that are free by then.
//
// A few claims are under way at once. So slots gather meanwhile, and the next claim takes several runs. A Room is safe
// for concurrent use: no policy is locked while it is, or after it.
type Room struct {
	mu       sync.Mutex
	free     int
	claiming int       // claims under way for which slots were borrowed
	line     []*Policy // those that found no slot
}

// mostClaiming is how many claims may have borrowed slots at once.
const mostClaiming = 3

// NewRoom returns a room with so many slots.
func NewRoom(slots int) *Room { return &Room{free: slots} }

// borrow gives p at most so many slots for a claim. If others wait, it gives half of those that are free. If it gives
// none, p waits in the line. The caller calls claimEnded once the claim has ended.
func (r *Room) borrow(p *Policy, most int) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isNext(p) || r.free == 0 || r.claiming >= mostClaiming {
		if !slices.Contains(r.line, p) {
			r.line = append(r.line, p)
		}
		return 0
	}
	r.remove(p)
	n = r.free
	if len(r.line) > 0 {
		n = (n + 1) / 2
	}
	n = min(n, most)
	r.free -= n
	r.claiming++
	return n
}

// borrowOne gives p a slot for a run that it has, unless others wait.
func (r *Room) borrowOne(p *Policy) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isNext(p) || r.free == 0 {
		return false
	}
	r.free--
	return true
}

// giveBack gives back n slots.
func (r *Room) giveBack(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	r.wakeFirst()
}

// claimEnded ends a claim for which slots were borrowed.
func (r *Room) claimEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claiming--
	r.wakeFirst()
}

// leave takes p out of the line.
func (r *Room) leave(p *Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(p)
	r.wakeFirst()
}

// othersWait reports whether other policies than p wait for slots.
func (r *Room) othersWait(p *Policy) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.line, func(other *Policy) bool { return other != p })
}

// unused returns how many slots are free.
func (r *Room) unused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free
}

// isNext reports whether no other policy waits before p. The caller holds r.mu.
func (r *Room) isNext(p *Policy) bool { return len(r.line) == 0 || r.line[0] == p }

func (r *Room) remove(p *Policy) {
	r.line = slices.DeleteFunc(r.line, func(other *Policy) bool { return other == p })
}

func (r *Room) wakeFirst() {
	if len(r.line) > 0 && r.free > 0 && r.claiming < mostClaiming {
		r.line[0].cfg.Wake()
	}
}

// A loan is what a policy has borrowed of a room.
type loan struct {
	room  *Room // nil: the policy has slots of its own
	slots int   // that are not given back
	// slots were borrowed for the claim under way. Set by borrow, reset by claimEnded.
	claiming bool
}

// borrow borrows slots for a claim, up to what the policy may have in all.
func (p *Policy) borrow() {
	l := &p.loan
	if l.room == nil {
		return
	}
	if p.slots.free > 0 { // freed during the last claim
		if !l.room.othersWait(p) {
			return
		}
		p.giveBack()
	}
	n := l.room.borrow(p, max(0, p.cfg.Slots-l.slots))
	l.slots += n
	l.claiming = n > 0
	p.slots.free += n
	if l.room.othersWait(p) {
		p.slots.ahead = 0 // runs would wait for slots that others get
	}
}

// borrowOne is borrow for one slot, without a claim.
func (p *Policy) borrowOne() bool {
	if p.slots.free > 0 {
		return true
	}
	if p.loan.room == nil || !p.loan.room.borrowOne(p) {
		return false
	}
	p.loan.slots++
	p.slots.free++
	return true
}

// giveBack gives back the free slots, and leaves the line.
func (p *Policy) giveBack() {
	l := &p.loan
	if l.room == nil {
		return
	}
	l.room.leave(p)
	if n := p.slots.free; n > 0 {
		p.slots.free = 0
		l.slots -= n
		l.room.giveBack(n)
	}
}

// giveBackFreed gives back the slot that a run has freed, unless it is for a run that waits, or for the next claim of a policy
// that is claiming.
func (p *Policy) giveBackFreed() {
	l := &p.loan
	if l.room == nil || p.slots.waiting > 0 || p.claiming != nil {
		return
	}
	p.slots.free--
	l.slots--
	l.room.giveBack(1)
}

// claimEnded notes that the claim has ended for which slots may have been borrowed.
func (p *Policy) claimEnded() {
	if p.loan.claiming {
		p.loan.claiming = false
		p.loan.room.claimEnded()
	}
}

// Close gives back all that the policy has borrowed: it claims nothing any more. A run that still has a slot does not
// count from now on.
func (p *Policy) Close() {
	if p.loan.room == nil {
		return
	}
	p.claimEnded()
	p.giveBack()
	p.loan.room.giveBack(p.loan.slots)
	p.loan = loan{}
}
