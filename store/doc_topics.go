// # Topics
//
// A publisher inserts its events. It takes no lock for which other publishers wait, unless they publish the same ID. So
// a position that was drawn early may be committed late, and a reader that goes on from the highest position it saw
// would miss it.
//
// A reader could stay behind the oldest transaction of the server (pg_snapshot_xmin). But then any open transaction,
// even of another database, would hold up every reader. Here only publishers of the same topic do:
//
//	publisher                                        reader
//	reads the last position that was drawn: v        reads the last position that was drawn: L
//	takes an advisory lock (topic, v), shared,       reads the advisory locks of the topic: S is the
//	   until its transaction ends                       lowest v, or L if there is none
//	draws positions, all above v, and inserts        reads events in a new snapshot, up to S
//	commits
//
// The order of the reader's three statements is the whole protocol. There are three kinds of publishers:
//
//   - One that holds its lock has all its positions above its v, so none up to S.
//   - One that took its lock after the reader had looked draws positions above L. A reader ignores a lock with a
//     position above L.
//   - All others have ended before the reader looked. Its last statement sees what they committed, because a
//     transaction becomes visible before its locks go.
//
// The protocol needs positions that grow over all sessions: the sequence has no cache. It also needs the true last
// position: pg_sequence_last_value reads it under the page's lock, while a SELECT from the sequence may see a value
// that was only logged ahead. On a standby there are no such locks, so ReadEvents returns an error.
//
// Concurrent calls of one client share a statement: see package internal/topics.
//
// # IDs of events
//
// The primary key makes an ID unique in its partition. Another partition is opened only by a transaction beside which
// no publisher inserts. So a publisher that inserts into the new one sees the IDs of the old one. A transaction with a
// stricter isolation level would not see them, and is refused. A repetition after a lost answer searches the other
// partitions as well, even for an ID that was made for the call.
//
// # Events of a workflow
//
// A workflow's Publish is a record of kind PUBLISH. Its events go with the flush, before the record and in its
// transaction, and are fenced as records are: FOR SHARE on the run's row, under its lease. So a lease that is lost
// publishes nothing. Only the record decides whether to publish again: a replay, a fork and another attempt pass over
// it. A flush that is repeated after a lost answer searches for its events by their IDs, in all partitions. The
// application has named them, or they are derived from run, step and place.
//
// No branch waits for the record, so it has a time of its own: after the branch's last event, because a fork compares
// these times. Its write may wait for a transaction of the application only if the ID was named, so that counts as
// Record.MayWait: see internal/engine/doc_flush.go.
//
// # Events of runs
//
// A run that was inserted to publish its events keeps that for ever, and restarts copy it. After each statement that
// inserts or ends runs, its transaction publishes the events of those runs that ask for it. Such an event is made of
// the run's row, with an ID of the run and the time of the change, so a repetition publishes it once. A flush knows
// from the claim which of its runs publish; other transactions know it from the rows that their statements return. So
// no transaction without such runs sends a further statement. After every test, an invariant says that each of these
// runs has both events.
//
// # Partitions
//
// A partition is emptied by TRUNCATE once its youngest event is too old for every namespace (kagzi.event_keepers).
//
//	open ──► the next one is opened after a sixth of keep ──► closed ──► all too old, or consumed and old ──► emptied
//
// If no partition is empty when it is time for another, the open one is used for longer. Emptying one and opening
// another are transactions of their own: together they would wait for publishers that wait for the emptied one. If a
// long transaction, such as a dump, reads the table, no partition is emptied until it ends, but others are opened.
//
// A partition stays while a subscribed consumer has not consumed one of its events, until the youngest is older than
// keep_pending. While one stays for that reason, the next is opened after a sixth of keep_pending. With a sixth of
// keep, all partitions would soon be in use, and the last one would stay open for the rest of keep_pending, again and
// again.
//
// # Skipping an event
//
// SkipEvent adds a range to what the consumer has consumed, as the end of a run does. Both only add to the newest
// version of the row, so their order does not matter. The range begins behind the last event before it that is not
// consumed, but only if readers can see the skipped event. Otherwise a publisher's event may still appear between the
// two.
//
// Code: Topics.ReadEvents, Topics.RotateEvents, Consumers.SkipEvent. Tests: TestReadersWaitForOlderTransactions,
// TestReadersSeeEachEventOnce, TestPositionsGrow, TestLaterPublishersHoldUpNobody, TestPublishersRaceWithRotations,
// TestRotateEventsBesidePublishers, TestRotateEventsWaitsForPublishers, TestPublishAgainIntoAnotherPartition,
// TestRotateEventsKeepsPending, TestRotateEventsWhilePending, TestSkipEventBehindAPublisher,
// TestSkipEventRacesWithARun, TestRecordsPublish, TestALeaseThatEndsMeanwhilePublishesNothing,
// TestHeldIDOfARecordsEvent, TestOpenPublishOfAnIDHoldsUpItsRunsOnly, TestAForkPublishesFromItsStepOn,
// TestKillAtEachPoint, TestRunEvents, TestRunEventsOfStarts, TestAConsumerOfRunEvents.
package store
