// Package move takes a namespace with all its rows from one database to another.
//
// A move is a line of steps. Each is one transaction, or can be repeated, so a move that was interrupted goes on from
// where it stood, also in another process:
//
//	pause    claims of the source stop, and executions stop at their next step
//	fence    the source refuses to write rows of the namespace
//	copy     one transaction of the target has all rows, read from one snapshot of the source
//	unpause  the target's workers begin
//	remove   the source deletes the rows; the fence stays, for programs that do not know of the move
//
// The fence is a CHECK constraint of each table. ALTER TABLE waits for all transactions that write, so after it the
// snapshot has all that was ever committed. The constraint is not validated, so no row is read.
//
// What is under way when the fence comes is lost, as if its worker had crashed: its steps are recorded nowhere, and the
// target's workers execute them again once they find the worker dead.
package move
