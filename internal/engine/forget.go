package engine

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// What the next attempt of a run forgets is decided when an attempt ends, because the function has returned an error: the
// failures in the chain of that error, and those that nothing was begun after. All others the function has dealt with: they
// stand, or the next attempt would go another way than the one on which it did what is recorded.

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
