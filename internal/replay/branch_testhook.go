package replay

// Goroutine is for tests: see testhook.Branch.
func (g *goroutineOf) Goroutine() uintptr { return g.goid.Load() }
