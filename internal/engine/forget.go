package engine

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
)

// What the next attempt of a run forgets is decided when an attempt ends, because the function has returned an error: the
// failures in the chain of that error, and those that nothing was begun after. All others the function has dealt with: they
// stand, or the next attempt would go another way than the one on which it did what is recorded.

// A knownFailure is what a branch was told that is recorded under id.
type knownFailure struct {
	id       string
	by       *Branch
	followed atomic.Bool // something was begun after it, by who knew of it
}

// fails notes that the branch is told of the failure that is recorded under id.
func (b *Branch) fails(id string) *knownFailure {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	return b.failsLocked(id)
}

func (b *Branch) failsLocked(id string) *knownFailure {
	f := &knownFailure{id: id, by: b}
	b.e.failures = append(b.e.failures, f)
	b.unfollowed = append(b.unfollowed, f)
	return f
}

// follow notes that the branch begins something: it has dealt with the failures that it knew of.
func (b *Branch) follow() {
	for _, f := range b.unfollowed {
		f.followed.Store(true)
	}
	b.unfollowed = nil
}

// learn passes on to b, which has waited for another branch, the failures that nothing has followed there.
func (b *Branch) learn(from *Branch) {
	if from != nil {
		b.unfollowed = append(b.unfollowed, from.unfollowed...)
	}
}

// stands reports whether the failure was dealt with: something was begun after it, or after the end of a branch in which it
// was.
func (f *knownFailure) stands() bool {
	if f.followed.Load() {
		return true
	}
	for b := f.by; b != nil; b = b.parent {
		if b.end != nil && b.end.followed.Load() {
			return true
		}
	}
	return false
}

// forgets returns the IDs of what the next attempt of the run forgets, given the error that this one ends with; its
// goroutines are gone. With a failure go the failures of the branches that it was in, and of their groups.
func (e *execution) forgets(err error) []string {
	ids := map[string]bool{}
	e.mu.Lock()
	failures, branches := e.failures, e.branches
	e.mu.Unlock()
	for _, f := range failures {
		if !f.stands() {
			ids[f.id] = true
		}
	}
	e.addChain(ids, err, branches)
	delete(ids, "")
	for id := range maps.Clone(ids) {
		for end := strings.LastIndexByte(id, '/'); end > 0; end = strings.LastIndexByte(id[:end], '/') {
			ids[id[:end]] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// addChain adds the IDs of the failures in err's chain. An error that a branch of Go returned may be of a type of the
// application's, and is known by itself.
func (e *execution) addChain(ids map[string]bool, err error, branches []*branchResult) {
	defer func() { _ = recover() }() // a method of a user's error
	for err := range chain(err) {
		id, others := e.env.errors.About(err)
		ids[id] = true
		for _, other := range others {
			e.addChain(ids, other, branches)
		}
		for _, r := range branchesOf(err, branches) {
			ids[r.name] = true
		}
	}
}

// chain has err and what it wraps, in the order of errors.Is.
func chain(err error) iter.Seq[error] {
	return func(yield func(error) bool) { walkChain(err, yield) }
}

func walkChain(err error, yield func(error) bool) bool {
	for err != nil {
		if !yield(err) {
			return false
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if !walkChain(err, yield) {
					return false
				}
			}
			return true
		default:
			return true
		}
	}
	return true
}

// branchesOf returns the branches that returned err. Of several, those after which the function went on were dealt with,
// unless all were.
func branchesOf(err error, branches []*branchResult) (all []*branchResult) {
	stands := func(r *branchResult) bool { return r.of == nil || r.of.end == nil || r.of.end.stands() }
	for _, r := range branches {
		if same(r.err, err) {
			all = append(all, r)
		}
	}
	if open := slices.DeleteFunc(slices.Clone(all), stands); len(open) > 0 {
		return open
	}
	return all
}

// same reports whether two errors are one. One whose type can be compared may hold what cannot.
func same(a, b error) (yes bool) {
	defer func() { _ = recover() }()
	return a != nil && reflect.TypeOf(b).Comparable() && a == b
}
