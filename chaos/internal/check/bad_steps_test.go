package check_test

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// begun starts and claims a run x.
func (w *world) begun() {
	w.start("x", "", nil)
	w.claim("2.1", "x", "X1")
}

// ended ends the run x.
func (w *world) ended() { w.finish("2.1", "x", "COMPLETED", nil) }

var badSteps = []bad{
	{"AnotherResult", "S5", func(w *world) {
		w.begun()
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.step("2.1", "x", "s", 1, columns{"output": "hash of two"})
		w.Steps[len(w.Steps)-1].Hash = "hash of one"
		w.ended()
	}},
	{"TwoAttemptsCompleted", "S5", func(w *world) {
		w.begun()
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.step("2.1", "x", "s", 2, columns{
			"step_kind": "FUNCTION", "run_attempt": 1, "status": "COMPLETED",
			"output": "hash of one",
		})
		w.ended()
	}},
	{"ExecutedAfterItsRecord", "S6", func(w *world) {
		w.begun()
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.claim("2.1", "x", "X2")
		w.line("2.1", evidence.Begin, "x", "s", 1, "X2", "")
		w.ended()
	}},
	{"CalledTwice", "S6", func(w *world) {
		w.begun()
		w.line("2.1", evidence.Begin, "x", "once", 1, "X1", "")
		w.claim("2.1", "x", "X2")
		w.execute("2.1", "x", "once", 1, "X2", "one")
		w.ended()
	}},
	{"FailedAttemptExecutedAgain", "S6", func(w *world) {
		w.begun()
		w.line("2.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.line("2.1", evidence.Fail, "x", "s", 1, "X1", "")
		w.step("2.1", "x", "s", 1, columns{"step_kind": "FUNCTION", "run_attempt": 1, "status": "FAILED"})
		w.claim("2.1", "x", "X2")
		w.execute("2.1", "x", "s", 1, "X2", "one")
		w.Changes = w.Changes[:len(w.Changes)-1] // it is not recorded again
		w.ended()
	}},
	{"ExecutedAfterItReturned", "S6", func(w *world) {
		w.begun()
		w.line("2.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.line("2.1", evidence.End, "x", "s", 1, "X1", "one")
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.ended()
	}},
	{"NeverHappened", "S7", func(w *world) {
		w.begun()
		w.record("2.1", "x", "s", 1, "one")
		w.ended()
	}},
	{"ReturnedAnother", "S7", func(w *world) {
		w.begun()
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.Ledger[len(w.Ledger)-1].Detail = "two"
		w.ended()
	}},
	{"OtherBytes", "S15", func(w *world) {
		w.begun()
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.Steps[len(w.Steps)-1].Hash = "hash of two"
		w.ended()
	}},
	{"EndedEarly", "S9", func(w *world) {
		w.begun()
		w.step("2.1", "x", "nap", 1, columns{
			"step_kind": "SLEEP", "run_attempt": 1, "status": "COMPLETED",
			"wake_at": w.wall().Add(time.Second),
		})
		w.ended()
	}},
	{"LongBackoff", "S9", func(w *world) { w.failed(2 * time.Second) }},
	{"ClaimedEarly", "S9", func(w *world) {
		w.start("x", "", columns{"available_at": w.wall().Add(time.Second)})
		w.claim("2.1", "x", "X1")
		w.ended()
	}},
	{"TakenOverEarly", "S9", func(w *world) {
		w.begun()
		w.lease("1.1", "x", "X2")
		w.finish("1.1", "x", "COMPLETED", nil)
	}},
	{"ShortBackoff", "S9", func(w *world) { w.failed(0) }},
	{"LongBackoffOfARun", "S9", func(w *world) {
		w.begun()
		w.run("2.1", "x", columns{"status": "PENDING", "attempts": 1, "available_at": w.wall().Add(3 * time.Second)})
		w.now += 3 * time.Second
		w.claim("2.1", "x", "X2")
		w.ended()
	}},
	{"RetriedEarly", "S9", func(w *world) {
		w.failed(time.Second)
		w.line("2.1", evidence.Begin, "x", "s", 2, "X1", "")
	}},
	{"TwiceAtOnce", "S11", func(w *world) {
		w.begun()
		w.line("2.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.execute("2.1", "x", "s", 1, "X1", "one")
		w.ended()
	}},
	{"TooOften", "S11", func(w *world) {
		w.begun()
		w.line("2.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.line("2.1", evidence.Begin, "x", "s", 2, "X1", "")
		w.claim("2.1", "x", "X2")
		w.line("2.1", evidence.Begin, "x", "s", 1, "X2", "")
		w.line("2.1", evidence.Begin, "x", "s", 2, "X2", "")
		w.ended()
	}},
}

// failed is a run whose step fails, and is to be tried again after a while.
func (w *world) failed(after time.Duration) {
	w.begun()
	w.line("2.1", evidence.Begin, "x", "s", 1, "X1", "")
	w.line("2.1", evidence.Fail, "x", "s", 1, "X1", "")
	wake := w.wall().Add(after)
	w.step("2.1", "x", "s", 1, columns{"step_kind": "FUNCTION", "run_attempt": 1, "status": "FAILED", "wake_at": wake})
	w.Steps = append(w.Steps, evidence.Step{
		Run: "x", Step: "s", Kind: "FUNCTION", Status: "FAILED", Attempt: 1,
		WakeAt: wake, Finished: wake.Add(-after),
	})
	w.ended()
}

var badApplication = []bad{
	{"EffectWithoutRecord", "S16", func(w *world) {
		w.Effects = append(w.Effects, evidence.Effect{Run: "sleeps", Step: "tx", From: "a", To: "a", Amount: 1})
	}},
	{"EffectTwice", "S16", func(w *world) {
		w.Effects = append(w.Effects, evidence.Effect{Run: "retries", Step: "tx", From: "a", To: "a", Amount: 1})
	}},
	{"RecordWithoutEffect", "S16", func(w *world) {
		w.begun()
		w.execute("2.1", "x", "tx", 1, "X1", "one")
		w.ended()
	}},
	{"PartTwice", "S16", func(w *world) { w.parts("retries", "parts", 1) }},
	{"PartLost", "S16", func(w *world) { w.Effects = w.Effects[:len(w.Effects)-1] }},
	{"PartWithoutTheOneBefore", "S16", func(w *world) {
		w.parts("sleeps", "parts", 2)
		w.Effects = slices.Delete(w.Effects, len(w.Effects)-2, len(w.Effects)-1)
	}},
	{"ItemTwice", "S16", func(w *world) {
		w.Items = append(w.Items, evidence.Item{Item: "item of collects", Run: "retries"})
	}},
	{"ItemInAnotherRun", "S16", func(w *world) { w.Items[0].Run = "retries" }},
	{"ItemLost", "S1", func(w *world) { w.Items = nil }},
	{"SumChanged", "S16", func(w *world) { w.Accounts["a"]++ }},
	{"AccountChanged", "S16", func(w *world) {
		w.Accounts["a"], w.Accounts["b"] = w.Accounts["a"]+1, w.Accounts["b"]-1
	}},

	{"Lost", "messages", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{Verb: "signal", Run: "reads", Message: "m3", Outcome: evidence.OK})
	}},
	{"StoredTwice", "messages", func(w *world) {
		w.Messages = append(w.Messages, evidence.Message{Run: "reads", Name: "mail", ID: "mone", Sequence: 3})
	}},
	{"OutOfOrder", "messages", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read"}
		w.swapReads()
	}},
	{"AnotherPayload", "messages", func(w *world) { w.Messages[0].Payload = "zero" }},
	{"ReadTooMuch", "messages", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read", Messages: []string{"one"}}
	}},
	{"ReadTooLittle", "messages", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read", Messages: []string{"one", "two", "three"}}
	}},

	{"EpochReadsAnother", "messages", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read", Messages: []string{"zero", "one", "other"}}
		w.run("2.1", "reads", columns{"epoch": 2})
	}},
	{"AnotherAnswer", "messages", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{
			Verb: "ask", Run: "reads", Name: "q", Output: "answer to p", Outcome: evidence.OK,
		})
	}},
	{"NoAnswer", "messages", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{Verb: "ask", Run: "reads", Name: "one", Outcome: evidence.Failed})
	}},
	{"ToldOverTooEarly", "messages", func(w *world) {
		w.start("x", "", columns{"paused": true})
		w.Calls = append(w.Calls, evidence.Call{Verb: "ask", Run: "x", Name: "q", Outcome: evidence.Failed})
	}},

	{"EventPassedOver", "consumers", func(w *world) {
		passed := []evidence.Event{
			{Topic: "told", ID: "e0", Position: 1},
			{Topic: "told", ID: "e1", Position: 2},
			{Topic: "told", ID: "e2", Position: 3},
		}
		w.Events = append(passed, w.Events[2:]...)
		w.Readers[0].Position = 3
	}},
	{"EventNotLookedAt", "consumers", func(w *world) {
		w.Events = append(w.Events, evidence.Event{Topic: "told", ID: "e3", Position: 3})
	}},
	{"EventsOutOfOrder", "consumers", func(w *world) { w.Events[0].ID, w.Events[1].ID = "e2", "e1" }},
	{"AcknowledgedEventNotThere", "consumers", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{
			Client: 1, Verb: "publish", Name: "told", Message: "e3",
			Outcome: evidence.OK,
		})
	}},
	{"ConsumerThatDoesNotExist", "consumers", func(w *world) {
		w.line("2.1", evidence.Consume, "x", "", 0, "X", "e1")
	}},
}

// swapReads lets the run that reads messages read the second one first.
func (w *world) swapReads() {
	var first *evidence.Step
	for i := range w.Steps {
		if s := &w.Steps[i]; s.Run == "reads" {
			if first == nil {
				first = s
			} else {
				first.Sequence, s.Sequence = s.Sequence, first.Sequence
			}
		}
	}
}
