package replay

import (
	"iter"
	"reflect"
	"slices"
)

// addChain adds the IDs of the failures in err's chain. A branch of Go may have returned an error of an application's
// type. Such an error carries no ID, so it is compared with the branches' results.
func (env *Env) addChain(ids map[string]bool, err error, branches []*branchResult) {
	defer func() { _ = recover() }() // a method of a user's error
	for err := range chain(err) {
		id, others := env.errors().About(err)
		ids[id] = true
		for _, other := range others {
			env.addChain(ids, other, branches)
		}
		for _, r := range branchesOf(err, branches) {
			ids[r.name] = true
		}
	}
}

// chain yields err and the errors that it wraps, in the order of errors.Is.
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

// branchesOf returns the branches that returned err. If there are several, it leaves out those whose failures the
// function has handled, unless it has handled all.
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

// same reports whether a and b are the same error. The comparison panics if a comparable type holds an incomparable
// value.
func same(a, b error) (yes bool) {
	defer func() { _ = recover() }()
	return a != nil && reflect.TypeOf(b).Comparable() && a == b
}
