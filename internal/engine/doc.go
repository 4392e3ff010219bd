// Package engine executes the runs of one worker: it claims them, holds their leases, executes their branches, and
// records their operations. It works on bytes: package kagzi encodes and decodes them, and reads and makes the errors
// of the application.
//
// Its files form layers. A file refers only to files of its own layer and of the layers below. From the top:
//
//   - The life of a session: it begins, runs and drains. Beside it, the replay of a run that is over, and a session for
//     tests.
//   - The work of a session: claims, histories, flushes, news of runs, heartbeats, suspects, ends.
//   - The branches of a run, and their groups.
//   - The execution of the function of a run, or of a branch, with interceptors or without.
//   - The other operations of a branch: steps, sleeps, signals, children, compensations, notes, events, metadata.
//   - The parts that operations share: how one begins, records, waits, stops the execution and checks the lease;
//     messages and ends of children; which failures a run forgets and recalls.
//   - The state of an execution: its branches, its outbox, its mail, its children.
//   - Files without reference to an execution: the environment, the application, histories, the standing, clocks,
//     memory, errors.
//
// An execution does not know its session. It uses the environment, which both share, and a host with three methods.
//
// The files doc_*.go tell the protocols of a worker, each with a drawing.
package engine
