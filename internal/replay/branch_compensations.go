package replay

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
	what, err := register()
	if err = cmp.Or(err, checkPath(b.prefix+name)); err != nil {
		b.e.fail(failure.BadRequest(failure.Wrap(err, "compensation %q", name)))
		runtime.Goexit()
	}
	c := what.of(b.prefix + name)
	switch r := b.registrations(c.id); {
	case r.attempt == 0 && b.leavesToSource(r, c, b.prefix+name):
	case !r.passes(c):
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
	if !slices.ContainsFunc(b.leftovers, about) || b.hasCopied(id) || !b.e.beginsNew() {
		return nil
	}
	if err := b.begins(); err != nil {
		return err
	}
	return b.registerLeftovers(id)
}

// registerLeftovers registers the leftovers that the fork needs before it executes id: all that are pending, and the
// one named like id. See store/doc_verbs.go.
func (u *undoing) registerLeftovers(id string) error {
	for i := 0; i < len(u.leftovers); {
		l := u.leftovers[i]
		if !l.pending && l.c.id != store.CompensationID(id) {
			i++
			continue
		}
		r := u.registrations(l.c.id)
		r.left = r.left[:max(0, len(r.left)-HashSize)] // its hash is the last one
		u.register(r, l.c)
		if err := u.by.mayBegin(); err != nil {
			return err
		}
	}
	return nil
}

// registrations returns the registrations under id.
func (u *undoing) registrations(id string) *registrations {
	r := u.registered[id]
	if r == nil {
		r = &registrations{}
		if row := u.by.recordOf(id); row != nil {
			r.attempt, r.hashes = row.Attempt, row.Output
		}
		if u.registered == nil {
			u.registered = map[string]*registrations{}
		}
		u.registered[id] = r
	}
	return r
}

// leavesToSource reports whether c, which this run has not registered, stays with the run that this one was forked
// from. It does if its step was copied, that is id, or if the function has yet to reach a copied operation of the
// branch; then it is a pending leftover.
func (u *undoing) leavesToSource(r *registrations, c *compensation, id string) bool {
	switch {
	case !u.by.isCopy():
		return false
	case u.by.hasCopied(id):
	case u.by.hasRecorded(id) || u.by.reachedCopied >= u.by.copiedUnder(u.by.prefix):
		return false
	default:
		u.dropLeftover(c.id)
		u.leftovers = append(u.leftovers, leftover{c, true})
	}
	r.left = append(r.left, c.hash...)
	return true
}

// dropLeftover removes the leftover under id: another registration takes its place.
func (u *undoing) dropLeftover(id string) {
	u.leftovers = slices.DeleteFunc(u.leftovers, func(l leftover) bool { return l.c.id == id })
}

// nextRegistration prepares the next record under id: it registers c, or announces, if c is nil, that a step may
// register one.
func (r *recorder) nextRegistration(known *registrations, id string, c *compensation) *store.Record {
	attempt := known.attempt
	if len(known.hashes) > 0 || attempt == 0 { // otherwise the record replaces the announcement
		attempt++
	}
	rec := r.newRecord(id, store.KindCompensation, store.Running, attempt, attempt)
	rec.Output = slices.Concat(known.hashes, known.left) // a replay passes the leftovers, too
	if c != nil {
		rec.Output, rec.Compensation = append(rec.Output, c.hash...), c.call
	}
	r.ending.register()
	return rec
}

// register records c and waits until that is written: from then on, a cancel of the run finds it.
func (u *undoing) register(r *registrations, c *compensation) {
	u.by.lastLookup = historyLookup{id: c.id, kind: store.KindCompensation}
	if u.by.mayBegin() != nil { // the branch's next step returns the error
		return
	}
	u.dropLeftover(c.id)
	rec := u.by.nextRegistration(r, c.id, c)
	u.by.record(rec)
	// the branch has lost a race, and is about to be cancelled: its next step returns the cause
	if rec.Outcome == store.Undecided {
		<-u.by.ctx.Done()
		return
	}
	r.recorded(rec)
}
