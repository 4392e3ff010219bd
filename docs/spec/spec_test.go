package spec

import (
	"strings"
	"testing"
)

// holds fails the test if the checker refutes the specification.
func holds[S comparable](t *testing.T, name string, spec specification[S]) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		v := check(spec)
		if v.wrong != "" || v.states < 100 {
			t.Fatal(v)
		}
		t.Log(v)
	})
}

// refuted fails the test unless the checker refutes the specification by that rule.
func refuted[S comparable](t *testing.T, name string, spec specification[S], wrong string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		v := check(spec)
		if !strings.HasPrefix(v.wrong, wrong) || len(v.trace) < 2 {
			t.Fatalf("not refuted by %q: %v", wrong, v)
		}
		t.Log(v)
	})
}

// The rule that a specification breaks in which something waits for ever.
const forEver = "from here on nothing but a fault leads to the goal"

func TestLeaseAndFence(t *testing.T) {
	holds(t, "AsItIs", leaseSpec(leaseRight))
	refuted(t, "RecordsByJoin", leaseSpec(recordsByJoin), "a step is called although its result is recorded")
	refuted(t, "FinishWithoutLease", leaseSpec(finishWithoutLease), "a worker ends a run that it does not hold")
	refuted(t, "FinishWithoutASecondLook", leaseSpec(finishWithoutLook), "a worker takes a run for lost")
	refuted(t, "CallWithoutTerm", leaseSpec(callWithoutTerm), "a step is called although its result is recorded")
}

func TestSuspendAndWakeUp(t *testing.T) {
	holds(t, "AsItIs", wakeupSpec(wakeupRight))
	refuted(t, "InboxBeforeCount", wakeupSpec(inboxBeforeCount), "a run sleeps for ever, and has a message")
	refuted(t, "SuspendWithoutCount", wakeupSpec(suspendWithoutCount), "a run sleeps for ever, and has a message")
	refuted(t, "CancelUnseen", wakeupSpec(cancelUnseen), "a run sleeps for ever, and is to be cancelled")
}

func TestAdmission(t *testing.T) {
	holds(t, "OneSlot", admissionSpec(admissionRight, 1))
	holds(t, "TwoSlots", admissionSpec(admissionRight, 2))
	holds(t, "Cursor", admissionSpec(cursorRight, 1))
	refuted(t, "CountBeforeLock", admissionSpec(countBeforeLock, 1), "2 runs hold the key's 1 slots")
	refuted(t, "ChangesDeletedUnlocked", admissionSpec(changesDeletedUnlocked, 1), forEver)
	refuted(t, "EndWithoutHandover", admissionSpec(endWithoutHandover, 1), forEver)
	refuted(t, "OneRecheck", admissionSpec(oneRecheck, 1), forEver)
	refuted(t, "ChangeWithoutDue", admissionSpec(changeWithoutDue, 1), forEver)
	refuted(t, "SuspensionAsEnd", admissionSpec(suspensionAsEnd, 1), forEver)
}

func TestConsumer(t *testing.T) {
	holds(t, "AsItIs", consumerSpec(consumerRight))
	refuted(t, "LooksAtTheHighest", consumerSpec(looksAtTheHighest), forEver)
	refuted(t, "LocksBeforeLast", consumerSpec(locksBeforeLast), forEver)
	refuted(t, "DeletesUnread", consumerSpec(deletesUnread), forEver)
	refuted(t, "EndUnseen", consumerSpec(endUnseen), forEver)
	refuted(t, "ForgetsUnsettled", consumerSpec(forgetsUnsettled), forEver)
}

func TestEpochsAndRequests(t *testing.T) {
	holds(t, "AsItIs", epochSpec(epochRight))
	refuted(t, "ContinueWithoutLease", epochSpec(continueWithoutLease),
		"a worker continues a run that it does not hold")
	refuted(t, "RepeatWithoutEpoch", epochSpec(repeatWithoutEpoch), "a run skips an epoch")
	refuted(t, "HistoryStays", epochSpec(historyStays), "an epoch finds the record of another")
	refuted(t, "RequestsStayTaken", epochSpec(requestsStayTaken), forEver)
	refuted(t, "ToldBeforeRecord", epochSpec(toldBeforeRecord), "a request has two answers")
}

func TestWaitsForEvents(t *testing.T) {
	holds(t, "AsItIs", eventSpec(eventRight))
	refuted(t, "NotesBeforeLock", eventSpec(notesBeforeLock), forEver)
	refuted(t, "EventBeforeLocks", eventSpec(eventBeforeLocks), forEver)
	refuted(t, "RegistersLast", eventSpec(registersLast), forEver)
	refuted(t, "OpenIsFinal", eventSpec(openIsFinal), forEver)
	refuted(t, "ForgetsFirst", eventSpec(forgetsFirst), forEver)
}

func TestCallsAtMostOnce(t *testing.T) {
	holds(t, "AsItIs", doubtSpec(doubtRight))
	for name, twin := range map[string]doubtTwin{
		"CallWithoutIntent": callWithoutIntent, "CallsAgain": callsAgain, "IntentWithoutLease": intentWithoutLease,
		"WithdrawsLate": withdrawsLate,
	} {
		refuted(t, name, doubtSpec(twin), "a function is called again without a resolution")
	}
	refuted(t, "ResolvesAgain", doubtSpec(resolvesAgain), "two resolutions of one doubt succeed")
}
