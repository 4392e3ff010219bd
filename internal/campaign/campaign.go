// Package campaign says how far tests go. A campaign is a test that tries many cases of one kind: pairs of faults,
// points of the code at which a process dies, random programs. `make test` tries some of them. With the build tag long,
// which `make test-long` sets, a campaign tries all.
//
// A file with the constraint `//go:build long` has tests of which even one case takes too long for each change.
package campaign

// Size returns long with the build tag long, and otherwise short: the number of cases, the length of a program, or what
// else makes a campaign long.
func Size(short, long int) int {
	if Long {
		return long
	}
	return short
}

// Some returns all cases with the build tag long, and otherwise n of them: the first, and others at equal distances.
func Some[T any](all []T, n int) []T {
	if Long || n >= len(all) {
		return all
	}
	some := make([]T, n)
	for i := range some {
		some[i] = all[i*len(all)/n]
	}
	return some
}
