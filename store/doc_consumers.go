// # Consumers
//
// A consumer is a row, and a row for each of its topics (consumers, subscriptions). No run waits for it in the queue.
// Its runs belong to a group, that of its configuration or one of its own. So its turn is a turn of that key: see
// doc_keys.go.
//
//	publisher, in its transaction   insert a change for the key of each subscriber, whose rows stay as they are
//	claim, in one transaction       lock keys         the keys of changes and of the line
//	                                ask for publishers: see doc_topics.go              ┐ only if a key has consumers
//	                                start the runs that are due                        ┘
//	                                claim of keys     the first run of each group, and the key's next place
//	the run's end, in its flush     state, consumed events, next time, COMPLETED
//	                                the worker's next claim looks at the key
//
// A run of a consumer is due if its time has come, or if readers can see an event above looked_at. It is not due while
// one is active, or while the key is paused. The claim decides that under the key's lock, and sees all that earlier
// claims and ends have committed. So at most one run is active. The runs also have an external ID of the consumer's, so
// a unique index holds it, too.
//
// No wake-up is lost. A claim sees an event that commits before its snapshot. An event that commits later has left a
// change that the claim did not see, so another claim looks. While a run is active, looks find nothing, but a look
// follows its end: the worker's next claim looks at the key, and if the worker dies, the coordinator leaves changes of
// all keys with consumers. The column consumers_at of the key says when to look next. One end is followed by no look:
// that of a run which began under another key, before the consumer got this one. Events behind an open publisher make a
// place in the line, because a rollback of the publisher writes nothing. One gap remains: a subscription that is stored
// while a publisher's statement is under way, which does not see it. The coordinator rechecks all consumers each
// minute.
//
// No consumer spins. The start of a run sets looked_at to the last position that readers can see then. The end of a run
// that completes sets it to the last position that its last Peek could see. If the run consumed something and there are
// more events, it sets it behind the last event that the run saw. So a run that consumes nothing is followed by another
// one only for a new event, or at its time. A run that ended otherwise is followed by one after least_wake, or it
// pauses the key. The look that pauses it notes the failure (noticed_at), so that another one does not pause the key
// again. Once an operator ends the pause, the next run is due.
//
// The end is one transaction. State, consumed events, next time and the run's COMPLETED commit together. Two statements
// are fenced by the run's lease and by consumers.run_id: a run that the consumer has left behind changes nothing. They
// may be repeated: they add ranges, and write the same state.
//
// Ranges are few. Each pending event has a range of positions, from behind the pending one before it up to itself. Peek
// records it. So consumed events that follow each other make one range, and all that is consumed up to the first
// pending event is one number (position). A peek reads the gaps between the ranges, however many events they span.
//
// No claim waits for an application's transaction. Trigger, DeleteConsumer, and a Resume or Restart of the consumer's
// run lock the consumer's row until their transaction ends. Pause and Unpause of its group lock the row of the key. A
// claim leaves out a consumer, or a key, whose row it cannot lock, and looks again soon. A flush that has waited leaves
// out the end of its run.
//
// A run that is restarted or forked under the consumer's ID takes the place of the last one, unless that has completed.
// Retention may delete a run that ended without success before the next look. The column noticed_at, which is infinity
// after a completed run, tells the two apart.
//
// Peek and Reserve are records of kinds of their own, so a replay sees the same events. A reservation needs no row,
// because no other run of the consumer is active. The execution collects what they say, and its finish gets that as
// Consumed.
//
// Whether a publisher is under way is state of the server, which a statement that reads tables may not read as well. So
// the claim asks for it in a round trip of its own. If the last claim met consumers, it asks with the first statements,
// after the lock of the keys: a publisher that ends between the two has left a change that is still there.
//
// Tests: TestConsumer, TestConsumedRanges, TestConsumerWakes, TestGroupOfConsumers, TestConsumerThatFails,
// TestConsumerWhoseRunIsEnded, TestConsumerBehindAPublisher, TestRecheckConsumers, TestConsumerNeverSpins,
// TestConsumersThroughAllTroubles, TestClaimsDoNotWaitForChangesOfConsumers, TestFlushBesideChangeOfConsumer,
// TestRestartOfConsumerRun, TestConsumerWhoseFailedRunIsDeleted, TestConsumerRegisteredBesideAClaim.
package store
