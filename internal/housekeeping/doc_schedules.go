// # Schedules
//
//	FireDue: try the coordinators' lock ─► lock due schedules SKIP LOCKED ─► Decide ─► insert runs, move cursors
//	  batch fails ─► each alone: refused ─► paused with its error; locked ─► in 250 ms; else logged
//
// Each tick is decided once:
//
//   - A crash leaves a tick either decided with its run, or still to be decided. The lock is a statement of its own
//     before the read: for the overlap policy, the read must see the runs that the last holder inserted.
//   - schedule_id is made of namespace and name. A schedule that is deleted and created again has the same one, so the
//     unique index (schedule, tick) still knows which ticks were fired. cursor_at says up to where ticks are decided,
//     and never moves back.
//   - Overlap: a queued run is PENDING at infinity, one for each schedule. Each pass makes due the queued runs whose
//     schedule has no other active run. If the server refuses one, its schedule is paused, the run is tried again, and
//     no other schedule waits. This needs no row of the schedule, so a queued run outlives a change or deletion. A run
//     that is being cancelled is active until it ends.
//   - To replace runs, a schedule is fired alone, because callers may have locked the rows of its runs. One transaction
//     cancels them and inserts the new run, which is queued behind those that have not ended.
//   - If an interceptor refuses a tick, the schedule stays due, with the error in problem. Each pass tries again, and
//     the tick that passes removes the error.
//   - An edit locks the schedule's row. If the timetable changes, due ticks fire first, in the same transaction.
//
// Code: store.Schedules.FireDue, store.Schedules.Edit, store.Schedules.ReleaseQueued, and package internal/timetable. Tests:
// TestLostCommitOfSchedules, TestStaleReplaceCancelsNothing, TestChangeWhileReplacing, TestCancelledRunIsActive,
// TestRefusedReleaseHoldsUpNoOtherSchedule, TestRefusalOfAnInterceptorIsStored. They hold that each tick starts its run
// exactly once.
package housekeeping
