package fault

import "slices"

// All returns the faults of a world with one plain server, by kind. The kinds that are missing need another
// [ServerKind], or are workloads: F22, F23 and F24.
func All() []Fault {
	return slices.Concat(workerFaults(), networkFaults(), claimFaults(), serverFaults(), lockFaults(), standbyFaults(),
		meetings())
}
