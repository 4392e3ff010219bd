// # Requests and replies
//
//	asker                        tables                          worker
//	  send: lock row, store ───►  message with a hash  ───►  WaitRequest takes it, as WaitSignal does
//	  wait: hint, poll                                             Reply: a deferred record
//	                             SIGNAL, REPLY  ◄────  the run's next write, or one of its own after 1 ms
//	  answer ◄── memory, notification, poll
//
// A request is a message whose name begins with '#', as no signal's does, so no wait for the one takes the other. The
// answer is the record of Reply. It has the number of its request in the column sequence, which an index finds: so it
// is the same for all askers, for as long as the run is kept. Nothing is written for it beside that record.
//
//   - The reply is deferred. If the process dies before it is written, no asker has seen the answer, and a replay
//     answers again. The record is fenced by the lease like any other, so a stale worker answers nothing. A
//     suspension and the end of the run take the reply along. If neither comes within a millisecond
//     (outbox.soonPause), it gets a write of its own: the asker does not wait for a step or for another branch.
//   - A branch that may lose a Race gives its requests back if it loses, as it does with messages. A reply is a record
//     of such a branch, written at once: from then on the answer stands, whichever branch wins.
//   - Askers wait in hints.results, which those who wait for ends of runs use, too. The flush that has written the
//     reply delivers it to those in its process if it knows the ID of the message, and else has them read it.
//   - A run that ends writes nothing about its open requests. The query for answers finds the end of the run in the
//     same snapshot as the missing reply.
//   - A request whose ID the run has of another payload or name is refused by the hash (store.RequestHash). For an ID
//     of a run, the request is looked for first among the runs that had the ID, so that no second run is asked. That
//     comes after the active run of the ID is found, or is started: from then on no run before it gets the request.
//   - A fork has the messages of its source, and the replies before the fork's step: it gives the same answers. It does
//     not answer runs that have asked its source.
//
// # A run that asks
//
//	asker                                  asked run                     worker that has flushed the reply
//	  AskStep: send with reply_to  ───►  message, REPLY  ───►  Messages.Replies: a message to the asker
//	  wait for that message, as WaitSignal does  ◄───────────────┘
//	  after a pause: query Answers, and send the message to itself
//
// The answer comes back as a message, under the name of the step, so the wait, its timeout and its wake-up are those of
// a signal. It is not part of the transaction that records the reply, which would have to lock the asker's row out of
// order. The worker that writes an end of a run sends such messages for the requests that it knows to be open. If the
// message is lost, or no worker wrote the end, the asker sends it to itself. A run takes one message with an answer for
// each step, so the first one that is sent decides, and a replay reads the record.
//
// # Requests that expire
//
// Only two may decide that a request has expired: the worker that comes to it, under its lease, and a query for the
// answer that has locked the run's row and finds that no worker executes the run. Both mark the message as read by no
// step. So no answer follows an expiry, and no expiry an answer.
//
// Code: store.Messages.Answers, store.Messages.Replies, hints.Hints.Answer, hints.Hints.Replied.
// Tests: TestAsk, TestAnswerDoesNotWait, TestRaceGivesTheRequestBack, TestStaleWorkerAnswersNothing,
// TestKillBetweenReplyAndRecord, TestLostAnswersOfRequests, TestForkKeepsTheAnswer, TestQuestionThatIsOvertaken,
// TestAskStep, TestLostReply, TestLostAnswersOfAskStep, TestRedelivered, TestRedeliveredQuestionOfARun,
// TestForkOfAnAsker, TestExpiry. They hold promises 2, 3 and 8 for answers.
package replay
