// # Group commit
//
// Each execution has an outbox, a FIFO of writes: records, and at the end a suspension or a finish. One transaction, a
// flush, writes for many executions.
//
//	branch ── enqueue ──► outbox ──► batcher ──► flush: take, one transaction, settle ──► waiter
//	   │                    ▲  ▲        ▲                      │
//	   └─ deferred records ─┘  └────────┴─ requeue: busy, more ┘
//
// The batcher takes executions. If none is under way, it flushes at once. Otherwise the next flush takes all that came
// meanwhile. A flush takes writes from the front of the outboxes, 1,000 and 8 MiB in all.
//
// A write is then done (it is written, or an older result stands), busy (a row was locked), lost (so is the lease), or
// unfounded (see Lost commits).
//
//   - No write overtakes another. An execution is in one flush at a time, and a busy write stays in front. So the start
//     of a child is in the table before all that follows from it, and before the run's end, although no branch waits
//     for it. An empty write tells when all before it is in the table: StepTx and the cancel of children wait for that.
//   - Deferred records say that a sleep is over, a message was taken, a child's end was read, or a step has ended. A
//     replay would come to them again, so no branch waits. They enter the outbox with the next write of the execution.
//   - A branch that may lose a Race is apart: only its own writes take its deferred records, those of branches below,
//     or those of the branch above once this one has ended. If it loses, its records are dropped and its messages go
//     back.
//   - Messages that the run's own branch has taken before any other record was deferred come first, as writes of their
//     own. They need no other record, so a flush of many large ones can be divided.
//
// # Locked rows
//
// An application may lock a run's row for a minute with Signal in its own transaction. It must not stall the records of
// a whole process.
//
//	flush ── lock_timeout 100 ms ──► written
//	  │ 55P03: another transaction holds a row
//	  └─► the same with SKIP LOCKED ──► written, but for the skipped rows
//	                                       │ read without a lock
//	                                       ├─ RUNNING under my lease ─► busy: again in 100 ms, in another batcher
//	                                       └─ else ───────────────────► lost
//
// Three batchers keep such writes apart:
//
//   - A flush does not skip locked rows at once: claims lock rows for milliseconds, and a flush beside them would skip
//     nearly all.
//   - Executions with a busy write have a batcher of their own, because a flush with them takes the full 100 ms.
//   - The start of a child with an external ID, and an event with an ID of the application, may wait for any open
//     transaction, whatever rows are locked (store.Record.MayWait). They have a third batcher, each in a flush of its
//     own.
//
// # Errors of a flush
//
//	class of the error                 the flush
//	pg.ClassAway, pg.ClassBusy,        repeats the same, after at most 1 s
//	pg.ClassMoved
//	pg.ClassLocked, pg.ClassConflict   repeats the same; after three times, halves
//	pg.ClassRefused                    halves, down to one write, and that one's deferred records: its run fails
//	pg.ClassLate, pg.ClassUnable,      halves, down to one write: its execution pauses, up to 15 s
//	pg.ClassForbidden, pg.ClassOther
//
// Repeating is always right: every statement is fenced by the lease, and finds the rows that an earlier try has
// written. After three lone failures in a row, as on a full disk, the rest is written as a whole again after a pause.
// So a round is about a dozen flushes, however much there is to write.
//
// After a refused write, nothing of the execution is written but the run's failure: later writes may depend on it, and
// no branch may have waited for it. If the execution has stopped already, for example because its function has
// returned, its reason becomes stopFailed, and its end is made again. A cancel still wins. Two kinds of writes are
// written all the same: empty writes, and registrations of compensations, because the effects of the steps must be
// undone. If the failure itself is refused, its text is replaced by one of ASCII without quotations. If even that is
// refused, the content is not the reason: the write is tried again, and Health says so.
//
// # Lost commits
//
// A failover to an asynchronous standby may lose the last commits, and the fence lets a lease pass that is older than
// those. So the writes of a flush have premises: the last record that the worker knows to be committed, and the
// messages and ends of children that they record. A server loses only the end of its log, so if the last record is
// there, all before it are.
//
//	is a connection known that was open to the same server before the last record was sent?
//	  ├─ yes: it vouches for the record, because no backend outlives a crash of its server
//	  └─ no, as behind a pooler or on Citus; or a StepTx, or the cancel of children:
//	        ask for the row in the transaction ── there ──► write
//	                                           └─ missing ─► unfounded: the run is given back, and executed again from
//	                                                         the records that are left
//
// StepTx transactions that commit at the same time are premises together, until a write that was sent after both is
// committed.
//
// Two kinds of reads are no premises, so a hole below them is not noticed:
//
//   - Events. A Peek may have read them from the lost server and be recorded on the new one. It hands out and consumes
//     events that are gone, and with their positions the events that get these positions afterwards. If its record was
//     committed before, it was lost with the events, or stands on them.
//   - Wake-ups are counted. A message that the worker has read and no branch has taken may be lost, and another message
//     brings the count back. Then the worker suspends the run without the second one, which is read at the next
//     wake-up. A message that was taken is compared with its time.
//
// # News of the run
//
// While the run's row has a cancel or a pause that the worker has not heard of, it refuses records of functions; the
// statement locks the row anyway (store.Unheard). The worker reads the news, and writes the records again. A StepTx
// reads it with its record.
//
// Tests: TestFailoverThatLosesCommits, TestRunsGoOnFromTheRecordsThatAreLeft, TestRecordsTellOfWhatHappensToTheRun,
// TestFlushIsBounded, TestBusyWritesStayInFront, TestStepDoesNotOvertakeABusyDecision,
// TestStepTxDoesNotOvertakeADecision, TestPoisonFailsAlone, TestNothingCanBeRecorded, TestNothingFollowsARefusedWrite,
// TestRefusedWriteIsCompensated, TestFailureWhoseTextIsRefused, TestEndThatIsRefusedIsTriedAgain,
// TestAUsersTransactionStallsNobodyElse, TestOpenStartOfAChildsIDHoldsUpItsParentOnly. They hold that no write
// overtakes another, and that a write which the database refuses delays only its run.
package replay
