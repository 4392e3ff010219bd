// # One coordinator works, the others rest
//
// Every coordinator begins to work. Once a second it says so by a notification, if all its loops are on time and its
// own notifications arrive.
//
//	         hears a senior coordinator, and has finished its passes
//	working ───────────────────────────────────────────────────────────► resting
//	        ◄───────────────────────────────────────────────────────────
//	         hears none for 1.5 to 2 s, or hears that the senior one ends
//
// A coordinator is senior if it began earlier, its program is not older, and its configured times are not longer. So no
// promise depends on the leader, and without notifications all coordinators work.
//
//   - A leader that dies or freezes delays schedules and deadlines by up to 2 s; one whose loop hangs, by up to 4 s. It
//     gives up a notification after 1.5 s without an answer, so that its checks go on.
//   - The failure detector of the next leader begins anew: a lost connection counts from its first check, and a silent
//     worker must be silent for another third of StaleAfter. After an outage of its own, a coordinator lets the others
//     work until its detector declares workers dead again.
//   - The notification has the leader's retention, unless its deletion is late or fails. A coordinator with the same
//     retention does not scan while it hears that. One with another retention scans by itself, whichever leads. After
//     the death of a leader, the others scan within 90 s.
//   - Each notification wakes all listening connections of the database. So no coordinator leads where the database has
//     more than 50 backends for each worker of the namespace, as with many small namespaces, or where the namespace has
//     a single worker.
//
// # Busy queues
//
// Every three seconds the leader also says which queues of live workers have runs that are due within 10 s. A worker of
// another queue puts off its poll until PollInterval after it last heard that. So if every other notification is lost,
// a run is found within PollInterval, as without a leader. Workers with a PollInterval above 8 s poll by themselves.
// The search may take 200 ms and a tenth of the time, because old snapshots slow it. If it fails, the workers poll.
//
// Code: store.Workers.CheckFleet. Tests: TestAnotherCoordinatorTakesOver, TestIdleFleetIsQuiet, TestKilledCoordinators,
// TestManyCoordinators, TestFrozenCoordinator.
package housekeeping
