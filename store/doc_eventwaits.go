// # Runs that wait for an event
//
//	worker                                publisher, in its transaction         coordinator
//	registers the wait, commits           takes its lock, inserts the event     reads awaited events
//	reads who is publishing               in a new snapshot: are there waits?   sends each run a message
//	in a new snapshot: is it there?       then inserts an awaited event         deletes the awaited event
//
// A publisher that does not see the registration took its lock before that was committed. So the worker finds it among
// the publishers, or finds its event. If it finds it among the publishers, it looks again until those have ended that
// were under way at its first look (the last position then). Later publishers do not count, so a busy topic delays no
// wait.
//
// A publisher writes at most one row for an event, whatever the number of runs that wait. It locks nothing: the runs'
// rows come before those of events in the order of locks. An event for which no run waits costs a search in an index;
// one without an ID of the application costs nothing. The row is the publisher's own, so it waits for no other one.
//
// The coordinator does not lock what it reads, so two of them may send a message twice: its ID is the wait's, and a run
// takes it once. It deletes the waits of the runs that have their messages, or are over, and the awaited event after
// the last of them. A run that another transaction has locked holds up no other one, and an event with many waits no
// other event: the coordinator goes on with the next, and comes back after a pause.
//
// An event is in time if it was published in time: its message may come later. So a wait that times out looks for it
// first. The record of the wait's end deletes the registration. Those of branches that have lost go when the run
// continues or is deleted, with the messages that they have not read.
//
// A worker repeats the registration in each execution that comes to the wait, and after pauses of up to a day. That
// finds what was lost when a server came back without its last second.
//
// Code: topics.Topics.Await, Topics.Await, Topics.Find, Messages.SendAll, housekeeping.Coordinator.TellOfEvents. Tests:
// TestWaitEvent, TestEventBehindAnOpenPublisher, TestEventInTime, TestAwaitedEvents, TestLockedRunHoldsUpNoOtherEvent,
// TestHungConnectionOfTheCoordinator, TestLostAnswersOfWaits. Specification: docs/spec/event_test.go.
package store
