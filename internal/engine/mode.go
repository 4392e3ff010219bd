package engine

// A mode is what an execution may do.
type mode int

const (
	live   mode = iota // it executes a claimed run, under a lease
	verify             // it compares code with the history of a run that is over: see Worker.Replay
)

// begins reports whether operations begin that the history does not have. If not, a branch stops at the first of them.
func (m mode) begins() bool { return m == live }

// writes reports whether the execution records what it does, logs it, and needs a lease for that.
func (m mode) writes() bool { return m == live }

// cancels reports whether the end of a branch ends others and children. If not, they end where the history does.
func (m mode) cancels() bool { return m == live }
