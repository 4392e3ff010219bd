package engine

import (
	"bytes"

	"github.com/kagzi/kagzi/store"
)

// A Registration is a compensation that is to run if the run ends badly.
type Registration struct {
	Call *store.Compensation
	Hash []byte // of the workflow and its input: HashSize bytes
}

// HashSize is how many bytes tell one registration under a name from another.
const HashSize = 8

// A compensation is a registration with its ID.
type compensation struct {
	id   string
	call *store.Compensation
	hash []byte
}

// registrations are those under one ID. Only the branch's goroutine uses them.
type registrations struct {
	attempt int    // of the last record; zero: there is none
	hashes  []byte // of all that are recorded, in their order; empty: a step has announced that it may register one
	passed  int    // bytes of hashes that the function has come past
	left    []byte // of a fork: hashes of those that are left with the other run
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

// recorded takes in that rec is recorded, or about to be with what follows.
func (r *registrations) recorded(rec *store.Record) {
	r.attempt, r.hashes, r.passed, r.left = rec.Attempt, rec.Output, len(rec.Output), nil
}

// A leftover is a compensation that a fork has left with the run that it was forked from. It is registered if the fork executes
// what has its name, and, while it is pending, if the fork executes anything on the branch.
type leftover struct {
	c       *compensation
	pending bool // nothing that is copied has come after it
}
