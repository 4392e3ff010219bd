// Package replay executes one run in memory: its function's branches, their operations and their waits. It is given
// bytes, the run's history and the arrivals of its inbox, and gives writes. It knows no session: the worker that holds
// a run is its [Host], and calls the methods of [Run]. Package kagzi encodes and decodes the bytes, and reads and
// makes the errors of the application.
//
// A run in memory consists of six parts, each in the files of its name. All but the journal are guarded by the run's
// mutex:
//
//   - the journal: what the run has recorded before, and the order of what it records now
//   - the crew: the goroutines of its branches, their waits and their results
//   - the mail: messages, and the ends of children
//   - the outbox: its writes that are not settled, in their order
//   - the ending: how it stops, and how the run goes on
//   - the lease: the right to write
//
// The operations of a [Branch] are above them: step.go, sleep.go, signals.go, child.go, groups.go, publish.go, and
// those of branch_*.go. An [Env] has what the runs of a worker share. hung.go and nested.go watch the code of the
// application; verify.go compares it with the history of a run that is over; present.go says what a history means to
// people.
package replay
