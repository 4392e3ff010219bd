// # Wake-ups without loss
//
//	sender of a message, end of a child          run's row                     execution
//	  lock row, wakeups + 1, store, commit ───►  wakeups = 7
//	                                                │◄──── read wakeups (seen = 7), then history and inbox
//	  lock row, wakeups + 1, store, commit ───►  wakeups = 8
//	                                                │◄──── suspend: wakeups_awaited = seen + needed = 8
//	                                             8 ≥ 8: due now, so the next execution reads the message
//
// The column wakeups counts messages and ended children, and the row's lock orders them. A suspension needs one more if
// a branch waits for a message or a child, n for Results of n children, and none if it waits for time alone. So a
// parent of a thousand children is claimed once.
//
// The execution reads the count before the messages and ends that it counts. So it misses no wake-up, and a spurious
// one costs one query. A pending cancel makes a suspended run due whatever the count.
//
// In memory, a notification or the heartbeat marks the run, and one query refreshes all marked runs. A hint that
// arrives between claim and begin is kept. After a child's end, the execution lingers for 200 ms if it waits for more,
// because children end in swarms.
//
// # Messages
//
//   - A message gets the count that its own update reached as its sequence, so messages become visible in that order. A
//     message that exists is a success for its sender, whatever became of the run. A run that is due, or soon due, is
//     announced as well: a claim may have skipped its row while it was locked.
//   - Taking a message is a deferred record, which gets a write of its own after a second. Messages that a race's loser
//     took go back; those that a branch of an undecided race took are not marked.
//   - A message that does not decode is set aside: the wait decodes it before it takes it, without the mutex. The mark
//     (store.SetAside) goes in front of the next write, under the lease. A crash before that loses only the mark: the
//     next execution finds the message unread and decides again. So no record depends on it, and a replay needs none.
//     admin.Messages.Drop deletes the row. Redeliver deletes it and stores the message again, in one transaction.
//   - One page of unread messages comes with the history, and with each refresh. store.Inbox.Rest says from which name
//     on it lacks messages. A wait for such a name reads that name's next page (store.Messages.UnreadOfName). The
//     statement that stores a message bounds the number of unread ones, under the run's lock.
//   - The timeout of a wait begins with a RUNNING row, so no restart begins it again. A message counts if it was stored
//     in time by the database's clock: the wait reads the table once more before it gives up. The outcome is recorded
//     before the workflow sees it.
//
// Code: store.Inbox, store.Suspension.Need, store.Messages.Send. Tests: TestWakeUpIsNotLost, TestUndecodableMessage,
// TestOnlyAwaitedMessagesAreRead, TestFullInbox, TestSignalToASuspendingRun, TestSignalWithoutNotification,
// TestTakenOnce, TestKillWhileSignalled, TestLostSignal. They hold promise 8. The specification in docs/spec,
// TestSuspendAndWakeUp, tries every order of these steps.
package replay
