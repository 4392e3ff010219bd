package replay

import (
	"bytes"

	"github.com/kagzi/kagzi/store"
)

// A Registration is a compensation that runs if its run fails or is cancelled. See store/doc_compensations.go.
type Registration struct {
	Call *store.Compensation
	Hash []byte // of the workflow and its input: HashSize bytes
}

// of returns the compensation of the step with that ID, or under that name; nil if r is nil.
func (r *Registration) of(id string) *compensation {
	if r == nil {
		return nil
	}
	return &compensation{store.CompensationID(id), r.Call, r.Hash}
}

// HashSize is the size in bytes of a registration's hash.
const HashSize = 8

// A compensation is a registration with its ID.
type compensation struct {
	id   string
	call *store.Compensation
	hash []byte
}

// registrations are the compensations registered under one ID. Only the branch's goroutine uses them.
type registrations struct {
	attempt int // of the newest record; zero: there is none
	// of the recorded registrations, in their order; empty: a step has announced that it may register one
	hashes []byte
	passed int    // bytes of hashes that the function has passed
	left   []byte // of a fork: hashes of the registrations that stayed with the other run
}

// passes reports whether a registration is recorded: as the next one that the function has not passed, as the last one
// that it has, or as a later one if the code of those between was removed. If it is the next or a later one, it counts
// as passed.
func (r *registrations) passes(c *compensation) bool {
	hash := c.hash
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

// areKnown reports whether one is recorded, or announced.
func (r *registrations) areKnown() bool { return r.attempt > 0 }

// isNext reports whether c is recorded as the next one that the function has not passed.
func (r *registrations) isNext(c *compensation) bool {
	return bytes.HasPrefix(r.hashes[r.passed:], c.hash)
}

// areAllPassed reports whether the function has passed all recorded ones, and there is one.
func (r *registrations) areAllPassed() bool { return r.passed > 0 && r.passed == len(r.hashes) }

// passNext counts the next recorded one as passed.
func (r *registrations) passNext() { r.passed = min(r.passed+HashSize, len(r.hashes)) }

// recorded updates r with rec, which is written or deferred.
func (r *registrations) recorded(rec *store.Record) {
	r.attempt, r.hashes, r.passed, r.left = rec.Attempt, rec.Output, len(rec.Output), nil
}

// A leftover is a compensation that stayed with the run from which this run was forked. The fork registers it if it
// executes the step of that name, or any operation on the branch while the leftover is pending. Only the branch's
// goroutine uses it.
type leftover struct {
	c       *compensation
	pending bool // true until enter passes a copied record behind it
}
