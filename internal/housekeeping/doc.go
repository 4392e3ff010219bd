// Package housekeeping does the work of a coordinator in one namespace. A coordinator fires schedules, ends runs that
// have exceeded their Timeout while no worker executes them, continues compensations whose worker has died, declares
// workers dead and releases their runs, and deletes runs that are past their retention.
//
// Any number of coordinators may run at once, in any process. Row locks and unique indexes decide every transaction.
// Advisory locks only keep ten coordinators from the same work. All but one rest while they hear that one, because more
// would only repeat its queries: see doc_leader.go. A loop repeats each pass: a pass returns the pause until the next
// one, and an error if the database failed it.
package housekeeping
