// Package move takes a namespace with all its rows from one database to another.
//
// A move is a line of steps. Each is one transaction, or can be repeated, so a move that was interrupted goes on from
// where it stood, also in another process:
//
//	pause    claims of the source stop, and executions stop at their next step
//	fence    the source refuses to write rows of the namespace
//	copy     one transaction of the target has all rows, read from one snapshot of the source
//	leave    the source notes that
//	admit    the target takes rows of the namespace, if it has refused them since an earlier move
//	unpause  the target's workers begin
//	remove   the source deletes the rows; the fence stays, for programs that do not know of the move
//
// The fence is a CHECK constraint of each table. ALTER TABLE waits for all transactions that write, so after it the
// snapshot has all that was ever committed. The constraint is not validated, so no row is read. It refuses no DELETE:
// the deletes that people ask for also write an entry of the audit log, and the others only tidy up.
//
// Each fence has the ID of its move, and the copy writes an entry of the audit log with that ID. So a later call knows
// whether the rows have arrived, even if a program has written rows of the namespace into the target too early. Once
// they have, the fence says so, too: then no call takes the rows that are left for the namespace.
//
// Two sessions hold the namespace's lock, and all steps go through them. A process that has lost the lock, such as one
// that was frozen, has lost the sessions, too. A call that gets the lock knows that no commit of an earlier call is
// under way any more: only then is a move given up.
//
// What is under way when the fence comes is lost, as if its worker had crashed: its steps are recorded nowhere, and the
// target's workers execute them again once they find the worker dead. The source's worker does not know: it may call
// further steps until it has sent no heartbeat for two thirds of StaleAfter. Until then the source keeps the rows, so
// that it finds no history empty.
package move
