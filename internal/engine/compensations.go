package engine

import (
	"runtime"
	"slices"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Compensate registers what register returns under name, unless that is recorded.
func (b *Branch) Compensate(name string, register func() (*Registration, error)) {
	if !b.owned() {
		b.e.fail(failure.BadRequest(failure.Wrap(b.foreign(), "compensation %q", name)))
		return
	}
	b.e.exitIfStopped()
	if b.ctx.Err() != nil { // the branch's next step says so
		return
	}
	id := store.CompensationID(b.prefix + name)
	what, err := register()
	if err != nil {
		b.e.fail(failure.BadRequest(failure.Wrap(err, "compensation %q", name)))
		runtime.Goexit()
	}
	c := &compensation{id, what.Call, what.Hash}
	switch r := b.registrations(id); {
	case r.attempt == 0 && b.leavesToSource(r, c, b.prefix+name):
	case !r.passes(c.hash):
		b.register(r, c)
	}
	b.e.exitIfStopped()
}

// begins says that b comes to what the history does not have, which it has looked up, and registers what a fork has left with
// the other run and is about that. It returns an error if nothing begins on the branch any
// more; in a verification, where nothing begins at all, it ends the goroutine.
func (b *Branch) begins() error {
	if err := b.mayBegin(); err != nil {
		return err
	}
	return b.registerLeftovers(b.lastLookup.id)
}

// beginsBranch is registerLeftovers for a branch, or group, if the fork is about to execute all of it.
func (b *Branch) beginsBranch(id string) error {
	about := func(l leftover) bool { return l.pending || l.c.id == store.CompensationID(id) }
	if !slices.ContainsFunc(b.leftovers, about) || b.e.hasCopied(id) || !b.e.mode.begins() {
		return nil
	}
	if err := b.begins(); err != nil {
		return err
	}
	return b.registerLeftovers(id)
}

// registerLeftovers registers what was left with the other run, and is about what the fork is about to execute: all that is
// pending, and that with the name of id.
func (b *Branch) registerLeftovers(id string) error {
	for i := 0; i < len(b.leftovers); {
		l := b.leftovers[i]
		if !l.pending && l.c.id != store.CompensationID(id) {
			i++
			continue
		}
		r := b.registrations(l.c.id)
		r.left = r.left[:max(0, len(r.left)-HashSize)] // it is the last one
		b.register(r, l.c)
		if err := b.mayBegin(); err != nil {
			return err
		}
	}
	return nil
}

// registrations returns what is recorded under id.
func (b *Branch) registrations(id string) *registrations {
	r := b.registered[id]
	if r == nil {
		r = &registrations{}
		if row := b.e.history[id]; row != nil {
			r.attempt, r.hashes = row.Attempt, row.Output
		}
		if b.registered == nil {
			b.registered = map[string]*registrations{}
		}
		b.registered[id] = r
	}
	return r
}

// leavesToSource notes that c, of which the run has no registration, is left with the run that this one was forked from, if that has
// what c is about: what is recorded under id was copied, or something is still to come on the branch that was. It returns false if not.
func (b *Branch) leavesToSource(r *registrations, c *compensation, id string) bool {
	switch {
	case b.e.copied == nil:
		return false
	case b.e.hasCopied(id):
	case b.recorded(id) || b.reachedCopied >= b.e.copied[b.prefix]:
		return false
	default:
		b.dropLeftover(c.id)
		b.leftovers = append(b.leftovers, leftover{c, true})
	}
	r.left = append(r.left, c.hash...)
	return true
}

// dropLeftover forgets what was left under id: another registration takes its place.
func (b *Branch) dropLeftover(id string) {
	b.leftovers = slices.DeleteFunc(b.leftovers, func(l leftover) bool { return l.c.id == id })
}

// nextRegistration prepares the record that follows under id, of c; nil is a step's announcement.
func (b *Branch) nextRegistration(r *registrations, id string, c *compensation) *store.Record {
	attempt := r.attempt
	if len(r.hashes) > 0 || attempt == 0 { // else it is what was announced
		attempt++
	}
	rec := b.e.newRecord(id, store.KindCompensation, store.Running, attempt, attempt)
	rec.Output = slices.Concat(r.hashes, r.left) // a replay comes past what was left, too
	if c != nil {
		rec.Output, rec.Compensation = append(rec.Output, c.hash...), c.call
	}
	b.e.mu.Lock()
	b.e.registers = true
	b.e.mu.Unlock()
	return rec
}

// register records c, and waits for that: a cancel that finds the registration runs it.
func (b *Branch) register(r *registrations, c *compensation) {
	b.lastLookup = historyLookup{id: c.id, kind: store.KindCompensation}
	if b.mayBegin() != nil { // the branch's next step says so
		return
	}
	b.dropLeftover(c.id)
	rec := b.nextRegistration(r, c.id, c)
	b.record(rec)
	if rec.Outcome == store.Undecided { // the branch lost a race meanwhile, and is about to be cancelled: its next step says so
		<-b.ctx.Done()
		return
	}
	r.recorded(rec)
}
