package engine

import (
	"bytes"
	"runtime"
	"slices"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A registration is a compensation that is to run if the run ends badly.
type Registration struct {
	Call *store.Compensation
	Hash []byte // of the workflow and its input: HashSize bytes
}

// hashSize is how many bytes tell one registration under a name from another.
const HashSize = 8

// A compensation is a registration with its ID.
type compensation struct {
	id   string
	call *store.Compensation
	hash []byte
}

// compensate registers what register returns under name, unless that is recorded.
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
	case r.attempt == 0 && b.leaves(r, c, b.prefix+name):
	case !r.passes(c.hash):
		b.register(r, c)
	}
	b.e.exitIfStopped()
}

// registrations are those under one ID. Only the branch's goroutine uses them.
type registrations struct {
	attempt int    // of the last record; zero: there is none
	hashes  []byte // of all that are recorded, in their order; empty: a step has announced that it may register one
	passed  int    // bytes of hashes that the function has come past
	left    []byte // of a fork: hashes of those that are left with the other run
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

// passes reports whether a registration is recorded: as the next one that the function has not come past, as the last
// one that it has, or as a later one, if the code that registered those before is not there any more.
func (r *registrations) passes(hash []byte) bool {
	if !bytes.HasPrefix(r.hashes[r.passed:], hash) && bytes.HasSuffix(r.hashes[:r.passed], hash) && r.passed > 0 {
		return true
	}
	for at := r.passed; at < len(r.hashes); at += HashSize {
		if bytes.HasPrefix(r.hashes[at:], hash) {
			r.passed = at + HashSize
			return true
		}
	}
	return false
}

// A leftover is a compensation that a fork has left with the run that it was forked from. It is registered if the fork executes
// what has its name, and, while it is pending, if the fork executes anything on the branch.
type leftover struct {
	c       *compensation
	pending bool // nothing that is copied has come after it
}

// leaves notes that c, of which the run has no registration, is left with the run that this one was forked from, if that has
// what c is about: what is recorded under id was copied, or something is still to come on the branch that was. It returns false if not.
func (b *Branch) leaves(r *registrations, c *compensation, id string) bool {
	switch {
	case b.e.copied == nil:
		return false
	case b.e.hasCopied(id):
	case b.recorded(id) || b.metCopied >= b.e.copied[b.prefix]:
		return false
	default:
		b.dropLeft(c.id)
		b.left = append(b.left, leftover{c, true})
	}
	r.left = append(r.left, c.hash...)
	return true
}

// dropLeft forgets what was left under id: another registration takes its place.
func (b *Branch) dropLeft(id string) {
	b.left = slices.DeleteFunc(b.left, func(l leftover) bool { return l.c.id == id })
}

// registerLeft registers what was left with the other run, and is about what the fork is about to execute: all that is
// pending, and that with the name of id.
func (b *Branch) registerLeft(id string) error {
	for i := 0; i < len(b.left); {
		l := b.left[i]
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

// beginsBranch is registerLeft for a branch, or group, if the fork is about to execute all of it.
func (b *Branch) beginsBranch(id string) error {
	about := func(l leftover) bool { return l.pending || l.c.id == store.CompensationID(id) }
	if !slices.ContainsFunc(b.left, about) || b.e.hasCopied(id) || !b.e.mode.begins() {
		return nil
	}
	if err := b.begins(); err != nil {
		return err
	}
	return b.registerLeft(id)
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

// recorded takes in that rec is recorded, or about to be with what follows.
func (r *registrations) recorded(rec *store.Record) {
	r.attempt, r.hashes, r.passed, r.left = rec.Attempt, rec.Output, len(rec.Output), nil
}

// register records c, and waits for that: a cancel that finds the registration runs it.
func (b *Branch) register(r *registrations, c *compensation) {
	b.looked = lookedUp{id: c.id, kind: store.KindCompensation}
	if b.mayBegin() != nil { // the branch's next step says so
		return
	}
	b.dropLeft(c.id)
	rec := b.nextRegistration(r, c.id, c)
	b.record(rec)
	if rec.Outcome == store.Undecided { // the branch lost a race meanwhile, and is about to be cancelled: its next step says so
		<-b.ctx.Done()
		return
	}
	r.recorded(rec)
}

// announce records that the step is about to register a compensation, unless there is one under its name: what finds that
// waits for the step.
func (s *stepCall) announce() error {
	if s.spec.Undo == nil {
		return nil
	}
	id := store.CompensationID(s.id)
	r := s.b.registrations(id)
	if r.attempt > 0 {
		return nil
	}
	rec := s.b.nextRegistration(r, id, nil)
	s.b.record(rec)
	if rec.Outcome == store.Undecided { // the branch has lost a race meanwhile: what the step did could not be undone
		return errBranchCancelled
	}
	r.recorded(rec)
	return nil
}

// registration returns the record that goes with that of the step's success; none if it registers nothing, or that is
// recorded.
func (s *stepCall) registration() []*store.Record {
	if s.undo == nil {
		return nil
	}
	r := s.b.registrations(s.undo.id)
	if bytes.HasPrefix(r.hashes[r.passed:], s.undo.hash) {
		return nil
	}
	s.registers = s.b.nextRegistration(r, s.undo.id, s.undo)
	return []*store.Record{s.registers}
}

// pass notes that the function has come past the step, which ended as row says.
func (s *stepCall) pass(row *store.StepRow) {
	if s.spec.Undo != nil && row.Status == store.Completed && row.RunAttempt > 0 {
		r := s.b.registrations(store.CompensationID(s.id))
		switch {
		case s.registers != nil:
			r.recorded(s.registers)
		case r.passed > 0 && r.passed == len(r.hashes): // what was registered since, by new code in front of the step, is last
			s.registerAgain(r, row)
		default:
			r.passed = min(r.passed+HashSize, len(r.hashes))
		}
	}
	s.b.passed(row)
}

// registerAgain registers the step's recorded result, unless that was registered last.
func (s *stepCall) registerAgain(r *registrations, row *store.StepRow) {
	if c := s.compensation(s.spec.Undo(row.Output)); c != nil && !r.passes(c.hash) {
		s.b.register(r, c)
	}
}

// compensation is r under the step's name, nil if r is.
func (s *stepCall) compensation(r *Registration) *compensation {
	if r == nil {
		return nil
	}
	return &compensation{store.CompensationID(s.id), r.Call, r.Hash}
}
