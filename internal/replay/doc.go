// Package replay executes one run in memory: its function's branches, their operations and their waits. It is given
// bytes, the run's history and the arrivals of its inbox, and gives writes. It knows no session: the worker that holds
// a run is its [Host], and calls the methods of [Run]. Package kagzi encodes and decodes the bytes, and reads and
// makes the errors of the application.
//
// A run in memory consists of these parts, each in the files of its name. All but the journal are guarded by the run's
// mutex. An arrow leads to a part that the other uses:
//
//	Run ─┬─► journal                          what the run has recorded before, and the order of its records
//	     ├─► crew                             the goroutines of its branches, their waits and their results
//	     ├─► mail ──────► crew                messages, and the ends of children
//	     ├─► ending ────► crew                how it stops, and how the run goes on
//	     ├─► outbox ────► ending              its writes that are not settled, in their order
//	     ├─► lease                            the right to write
//	     ├─► suspender ─► crew, mail, ending  suspends it when all branches wait: end_suspend.go
//	     └─► guarded                          the branches that the watchdog looks at: branch.go
//
//	Branch ─┬─► replayer ─┬─► recorder ─► node, journal, outbox, ending   its records
//	        │             └─► passage   how far it has come in its history
//	        ├─► node                    its place among the branches, and its end
//	        ├─► undoing ────► replayer  its compensations
//	        ├─► knowing ────► replayer  the failures and the metadata that its function knows
//	        └─► stepping                the step that is under way
//
// A [Run] has the seam, and the methods that need several parts: it executes, suspends and ends. The operations of a
// [Branch] are above both: step.go, sleep.go, signals.go, child*.go, groups.go, publish.go, and those of branch_*.go.
// An [Env] has what the runs of a worker share. The files branch_hung*.go watch the code of the application; verify.go
// compares it with the history of a run that is over; present.go says what a history means to people.
package replay
