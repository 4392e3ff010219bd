package store

import "github.com/google/uuid"

// The last two bits of a lease say what the claim wrote into the run that it found empty. So a caller that gives back
// the run without having begun it can undo that, even if the claim's answer was lost and the row no longer shows it.
const (
	leaseStarts   byte = 1 << iota // started_at: it is the run's first claim
	leaseVersions                  // version: none had been chosen
)

// leaseOf returns the lease with these last bits.
func leaseOf(lease uuid.UUID, bits byte) uuid.UUID {
	lease[15] = lease[15]&^(leaseStarts|leaseVersions) | bits
	return lease
}

// leasesOf returns the four leases that a claim may give, in the order of their last bits.
func leasesOf(lease uuid.UUID) []uuid.UUID {
	return []uuid.UUID{
		leaseOf(lease, 0), leaseOf(lease, leaseStarts), leaseOf(lease, leaseVersions),
		leaseOf(lease, leaseStarts|leaseVersions),
	}
}

// NewLease returns a lease for a run that is inserted as claimed. version is the one that its caller chose, or zero.
func NewLease(version int) uuid.UUID {
	if version == 0 {
		return leaseOf(uuid.New(), leaseStarts|leaseVersions)
	}
	return leaseOf(uuid.New(), leaseStarts)
}

// isFirst reports whether the lease is that of the run's first claim.
func isFirst(lease uuid.UUID) bool { return lease[15]&leaseStarts != 0 }

// gaveVersion reports whether the claim gave the run its version.
func gaveVersion(lease uuid.UUID) bool { return lease[15]&leaseVersions != 0 }
