// Package engine executes the runs of one worker: it claims them, holds their leases, executes their branches, remembers what
// they record and writes it. It works on bytes: package kagzi encodes and decodes them, and reads and makes the errors of
// the application.
//
// Its files form layers; each refers only to files of its own layer and of those below it. From the top:
//
//   - lifecycle.go begins, runs and drains a session; verify.go replays a run that is over; testsession.go is for tests.
//   - The work of a session: claims.go and unresolved.go; histories.go and lane.go; flush.go and batchers.go; refresh.go;
//     heartbeater.go and connection.go; lingering.go; ending.go. Its state is in session.go, its configuration in config.go.
//   - Branches of a run: branches.go, groups.go and decisions.go.
//   - execute.go executes the function of a run, or of a branch.
//   - The other operations of a branch: step.go and steptx.go, sleep.go, signals.go, children.go and cancels.go,
//     compensations.go, patched.go.
//   - What operations have in common: how one begins (operations.go), records (records.go), waits (waits.go), stops the
//     execution (stop.go) and asks whether the run is still held (leases.go); what reaches a run (arrivals.go,
//     unreadable.go); which failures it forgets (forget.go) and recalls (recorded.go).
//   - The state of an execution: execution.go, branch.go, outbox.go, events.go, failures.go, child.go.
//   - What knows of no execution: environment.go, application.go, inbox.go, history.go, registrations.go, standing.go,
//     clock.go, memory.go, mode.go, errors.go.
//
// An execution does not know its session. It asks what both share, the environment, and a host of three methods.
package engine
