package replay

import "github.com/google/uuid"

// Lease is for tests: see testhook.Branch.
func (b *Branch) Lease() uuid.UUID { return b.e.Lease }

// Closed is for tests: see testhook.Branch.
func (b *Branch) Closed() bool { return b.closed }

// Goroutine is for tests: see testhook.Branch.
func (b *Branch) Goroutine() uintptr { return b.goid.Load() }
