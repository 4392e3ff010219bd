// Package engine executes the runs of one worker: it claims them, holds their leases, executes their branches, and
// records their operations. It works on bytes: package kagzi encodes and decodes them, and reads and makes the errors
// of the application.
//
// Its files form layers. A file refers only to files of its own layer and of the layers below. From the top:
//
//   - lifecycle.go begins and runs a session, drain.go drains it; verify.go replays a run that is over; testsession.go
//     is for tests.
//   - The work of a session: claims.go, leftout.go and orphans.go; loader.go and lane.go; flush.go and batchers.go;
//     refresh.go; heartbeater.go, connection.go and opening.go; suspects.go; lingering.go; ending.go and refused.go.
//     Its state is in session.go, its configuration in config.go.
//   - Branches of a run: branches.go, groups.go and decisions.go.
//   - execute.go executes the function of a run, or of a branch; intercept.go does so inside of interceptors.
//   - The other operations of a branch: step.go and steptx.go, sleep.go, signals.go, children.go and cancels.go,
//     compensations.go, patched.go, note.go, publish.go, metadata.go.
//   - The parts that operations share: how one begins (operations.go), records (records.go), waits (waits.go), stops
//     the execution (stop.go) and checks the lease (leases.go); messages and ends of children (arrivals.go); histories
//     that cannot be read (unreadable.go); which failures a run forgets (forget.go) and recalls (recorded.go,
//     refusals.go).
//   - The state of an execution: execution.go, branch.go, outbox.go, events.go, failures.go, child.go.
//   - Without reference to an execution: environment.go, application.go, inbox.go, history.go, registrations.go,
//     standing.go, consumption.go, clock.go, memory.go, mode.go, errors.go, interception.go.
//
// An execution does not know its session. It uses the environment, which both share, and a host with three methods.
package engine
