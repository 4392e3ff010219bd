// # Lost acknowledgements
//
// A transport error after BEGIN leaves the outcome unknown. pgx's SafeToRetry is not consulted: it may say yes although
// the commit took place. Each write has a way to find out:
//
//	write                  resolved by                                   and then
//	start                  the run ID, then the external ID              inserts missing runs; policies for ended runs
//	                                                                     do not apply to its own run
//	start in place         the same; the run's row, until a late commit  yields the run if it is RUNNING under the
//	                       must have shown                               lease chosen before
//	start in a window      under its lock: the run ID, the item's ID,    joins or opens the window
//	                       the window's last start
//	start with messages    the messages' IDs, in its own run and those   the run that has them was started or
//	                       of its external ID                            signalled
//	limit                  the step's place                              again: a step keeps its place; one that had
//	                                                                     none takes another token
//	claim                  rows with the lease chosen before, until a    executes the runs that the first query finds,
//	                       late commit must have shown; then the search  yields those of a later one
//	                       for strays
//	record                 the step's row, then lease and status of the  adopts; writes again; or lost
//	                       run
//	suspension, finish     the run's row                                 that status under my lease: done; RUNNING
//	                                                                     under it: again; else lost
//	StepTx                 the step's row, then the run's                adopts; executes again; or lost
//	heartbeat, extension,  nothing                                       again: they set a state, and do not add to
//	release                                                              one
//	signal, request        the message's ID, then the run's status       stores it if it is missing
//	cancel, terminate      the run; if it ended otherwise, the event's   done; again; or refused, as the run ended by
//	                       ID chosen before                              itself
//	resume, restart,       the event's ID chosen before                  done, or again
//	fork, update, delete
//	schedule's verbs       its row under the lock; run IDs chosen        inserts missing runs
//	                       before
//	firing                 the schedules' rows                           decided ticks are not due any more
//
// Tests, over internal/pgproxy: TestLostFlush, TestLostClaim, TestLostStart, TestLostStartInPlace, TestLostSignal,
// TestLostVerbs, TestLostUpdate, TestLostDelete, TestLostCompensate, TestLostAnswers, TestLostAnswersToUpdates,
// TestLostAnswersToDeletes, TestLostAnswersToSetMetadata, TestLostStartWithAQuestion. They hold promise 7.
package store
