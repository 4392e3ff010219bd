package engine

// A mode says what an execution may do. See doc_replay.go.
type mode int

const (
	live   mode = iota // it executes a claimed run, under a lease
	verify             // it compares code with the history of a run that is over: see Worker.Replay
)

// beginsNew reports whether operations begin that are not in the history. If not, a branch exits at the first of them.
func (m mode) beginsNew() bool { return m == live }

// writesRecords reports whether the execution writes records, logs, and needs a lease.
func (m mode) writesRecords() bool { return m == live }

// cancelsOthers reports whether the end of a branch cancels other branches and children. If not, they end where the
// history does.
func (m mode) cancelsOthers() bool { return m == live }
