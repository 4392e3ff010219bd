package engine

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Compensate registers under name the compensation that register returns, unless it is recorded. See
// store/doc_compensations.go.
func (b *Branch) Compensate(name string, register func() (*Registration, error)) {
	defer b.operate().done()
	if !b.owned() {
		b.e.fail(failure.BadRequest(failure.Wrap(b.foreign(), "compensation %q", name)))
		return
	}
	b.e.exitIfStopped()
	if b.ctx.Err() != nil { // the branch's next step returns the cause
		return
	}
	id := store.CompensationID(b.prefix + name)
	what, err := register()
	if err = cmp.Or(err, checkPath(b.prefix+name)); err != nil {
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

// begins is called before b begins an operation that it has looked up, and that the history does not have. In a fork it
// registers the leftovers that this operation needs. It returns an error if nothing may begin on the branch any more.
// In mode verify, where nothing begins at all, it exits the goroutine.
func (b *Branch) begins() error {
	if err := b.mayBegin(); err != nil {
		return err
	}
	if err := b.park(); err != nil {
		return err
	}
	return b.registerLeftovers(b.lastLookup.id)
}

// beginsBranch is registerLeftovers for a branch or group, if the fork is about to execute all of it.
func (b *Branch) beginsBranch(id string) error {
	about := func(l leftover) bool { return l.pending || l.c.id == store.CompensationID(id) }
	if !slices.ContainsFunc(b.leftovers, about) || b.e.hasCopied(id) || !b.e.beginsNew() {
		return nil
	}
	if err := b.begins(); err != nil {
		return err
	}
	return b.registerLeftovers(id)
}

// registerLeftovers registers the leftovers that the fork needs before it executes id: all that are pending, and the
// one named like id. See store/doc_verbs.go.
func (b *Branch) registerLeftovers(id string) error {
	for i := 0; i < len(b.leftovers); {
		l := b.leftovers[i]
		if !l.pending && l.c.id != store.CompensationID(id) {
			i++
			continue
		}
		r := b.registrations(l.c.id)
		r.left = r.left[:max(0, len(r.left)-HashSize)] // its hash is the last one
		b.register(r, l.c)
		if err := b.mayBegin(); err != nil {
			return err
		}
	}
	return nil
}

// registrations returns the registrations under id.
func (b *Branch) registrations(id string) *registrations {
	r := b.registered[id]
	if r == nil {
		r = &registrations{}
		if row := b.e.recordOf(id); row != nil {
			r.attempt, r.hashes = row.Attempt, row.Output
		}
		if b.registered == nil {
			b.registered = map[string]*registrations{}
		}
		b.registered[id] = r
	}
	return r
}

// leavesToSource reports whether c, which this run has not registered, stays with the run that this one was forked
// from. It does if its step was copied, that is id, or if the function has yet to reach a copied operation of the
// branch; then it is a pending leftover.
func (b *Branch) leavesToSource(r *registrations, c *compensation, id string) bool {
	switch {
	case !b.e.isCopy():
		return false
	case b.e.hasCopied(id):
	case b.recorded(id) || b.reachedCopied >= b.e.copiedUnder(b.prefix):
		return false
	default:
		b.dropLeftover(c.id)
		b.leftovers = append(b.leftovers, leftover{c, true})
	}
	r.left = append(r.left, c.hash...)
	return true
}

// dropLeftover removes the leftover under id: another registration takes its place.
func (b *Branch) dropLeftover(id string) {
	b.leftovers = slices.DeleteFunc(b.leftovers, func(l leftover) bool { return l.c.id == id })
}

// nextRegistration prepares the next record under id: it registers c, or announces, if c is nil, that a step may
// register one.
func (b *Branch) nextRegistration(r *registrations, id string, c *compensation) *store.Record {
	attempt := r.attempt
	if len(r.hashes) > 0 || attempt == 0 { // otherwise the record replaces the announcement
		attempt++
	}
	rec := b.e.newRecord(id, store.KindCompensation, store.Running, attempt, attempt)
	rec.Output = slices.Concat(r.hashes, r.left) // a replay passes the leftovers, too
	if c != nil {
		rec.Output, rec.Compensation = append(rec.Output, c.hash...), c.call
	}
	b.e.Lock()
	b.e.registerLocked()
	b.e.Unlock()
	return rec
}

// register records c and waits until that is written: from then on, a cancel of the run finds it.
func (b *Branch) register(r *registrations, c *compensation) {
	b.lastLookup = historyLookup{id: c.id, kind: store.KindCompensation}
	if b.mayBegin() != nil { // the branch's next step returns the error
		return
	}
	b.dropLeftover(c.id)
	rec := b.nextRegistration(r, c.id, c)
	b.record(rec)
	// the branch has lost a race, and is about to be cancelled: its next step returns the cause
	if rec.Outcome == store.Undecided {
		<-b.ctx.Done()
		return
	}
	r.recorded(rec)
}
