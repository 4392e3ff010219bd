package check_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// An allowed history is the good one with a difference that looks bad, and is not.
type allowed struct {
	name   string
	change func(w *world)
}

func TestAllowedHistories(t *testing.T) {
	t.Parallel()
	for _, a := range slices.Concat(allowedStarts, allowedRuns, allowedSteps, allowedFamilies, allowedLiveness) {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			w := good()
			a.change(w)
			exactly(t, w, "")
		})
	}
}

var allowedStarts = []allowed{
	{"IDUsedAgain", func(w *world) {
		w.plain("x", "twin")
		w.plain("y", "twin")
	}},
	{"IDInTwoNamespaces", func(w *world) {
		w.start("x", "twin", nil)
		w.start("y", "twin", columns{"namespace_id": "other"})
		w.finish("driver", "x", "CANCELLED", nil)
		w.finish("driver", "y", "CANCELLED", nil)
	}},
	{"EventsOfTwoNamespaces", func(w *world) {
		w.Events = append(w.Events, evidence.Event{Topic: "told", ID: "e3", Position: 1, Namespace: "other"})
	}},
	{"OncePerReturnsARunThatIsOver", func(w *world) {
		w.plain("x", "once")
		w.now += time.Second
		w.Calls = append(w.Calls, evidence.Call{
			Verb: "start", Run: "x", ExternalID: "once", Began: w.tick(),
			Ended: w.tick(), Outcome: evidence.OK,
		})
	}},
	{"RunThatEndsAsItsStartIsAnswered", func(w *world) {
		w.plain("x", "one")
		w.call("start", "x", func(c *evidence.Call) { c.Ended = w.tick() + time.Second })
	}},
	{"ResumedAsItsStartIsAnswered", func(w *world) {
		w.start("x", "one", nil)
		w.finish("driver", "x", "CANCELLED", nil)
		w.now += time.Second
		began := w.tick()
		w.run("driver", "x", columns{"status": "PENDING", "finished_at": nil, "available_at": w.wall()})
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "RESUMED"})
		w.finish("driver", "x", "CANCELLED", nil)
		w.Calls = append(w.Calls, evidence.Call{
			Verb: "start", Run: "x", ExternalID: "one", Began: began,
			Ended: w.tick(), Outcome: evidence.OK,
		})
	}},
	{"UnknownStartMadeOne", func(w *world) {
		w.x.Program = func(r evidence.Run) (int, bool) { return 7, r.ID == "x" }
		w.Calls = append(w.Calls, evidence.Call{Verb: "start", Program: 7, Outcome: evidence.Unknown})
		w.run("driver", "x", columns{"status": "PENDING", "available_at": w.wall()})
		w.claim("2.1", "x", "X1")
		w.ended()
	}},
	{"RolledBackStartFoundARun", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{Verb: "start", Run: "retries", Outcome: evidence.OK, RolledBack: true})
	}},
	{"RolledBackStartFoundARestart", func(w *world) {
		w.run("driver", "x", columns{"status": "PENDING", "available_at": w.wall(), "origin_run_id": "retries"})
		w.Calls = append(w.Calls, evidence.Call{Verb: "start", Run: "x", Outcome: evidence.OK, RolledBack: true})
		w.claim("2.1", "x", "X1")
		w.ended()
	}},
}

var allowedRuns = []allowed{
	{"EndedByAClient", func(w *world) {
		w.begun()
		w.finish("driver", "x", "CANCELLED", columns{"lease": nil})
	}},
	{"SetBackByAnotherWorker", func(w *world) {
		w.begun()
		w.run("1.1", "x", columns{"status": "PENDING", "lease": nil, "locked_by": nil, "available_at": w.wall()})
		w.claim("2.1", "x", "X2")
		w.ended()
	}},
	{"ReleasedByAnotherWorker", func(w *world) {
		w.begun()
		w.run("1.1", "x", columns{"available_at": w.wall()})
		w.claim("2.1", "x", "X2")
		w.ended()
	}},
	{"OneLeaseForManyRuns", func(w *world) {
		for _, run := range []string{"x", "y"} {
			w.start(run, "", nil)
			w.claim("2.1", run, "shared")
			w.execute("2.1", run, "s", 1, "shared", "one")
			w.finish("2.1", run, "COMPLETED", nil)
		}
	}},
	{"DeletedByAPerson", func(w *world) {
		w.plain("x", "")
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "DELETED"})
		w.remove("x", "", 0)
	}},
	{"DeletedByRetention", func(w *world) {
		w.x.Retention = time.Second
		w.plain("x", "")
		w.now += 2 * time.Second
		w.remove("x", "", 0)
	}},
	{"QuarantinedDespiteItsCancel", func(w *world) {
		w.begun()
		w.finish("2.1", "x", "FAILED", columns{"error_kind": "crash_loop", "quarantined": true})
		w.Calls = append(w.Calls, evidence.Call{Verb: "cancel", Run: "x", Outcome: evidence.OK})
	}},
	{"ReplacedByAnotherStart", func(w *world) {
		w.ends["x"] = check.Ending{Output: "done", Replaced: true}
		w.begun()
		w.finish("driver", "x", "CANCELLED", columns{"lease": nil})
	}},
	{"ItsChildWasTerminated", func(w *world) {
		w.ends["x"] = check.Ending{Output: "done"}
		w.begun()
		w.run("2.1", "y", columns{
			"status": "PENDING", "parent_run_id": "x", "parent_step_id": "child",
			"available_at": w.wall(),
		})
		w.step("2.1", "x", "child", 1, columns{"step_kind": "CHILD_WORKFLOW", "run_attempt": 1, "status": "FAILED"})
		w.finish("driver", "y", "CANCELLED", nil)
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "y", Event: "TERMINATED"})
		w.finish("2.1", "x", "FAILED", columns{"error_kind": "child"})
	}},
}

var allowedSteps = []allowed{
	{"UndoUnderAClaimThatACrashHasUndone", func(w *world) {
		w.tick()
		from := w.now
		w.line("2.1", evidence.Undo, "undoes", "", 0, "forgotten", "u1")
		w.Injected = append(w.Injected, evidence.Injected{
			Fault: "F6 restart", Began: from, Ended: from + time.Second, Effect: 1,
		})
	}},
	{"ClaimThatACrashHasUndone", func(w *world) {
		w.plain("x", "")
		w.line("2.1", evidence.Begin, "x", "s", 1, "another", "")
		w.Injected = append(w.Injected, evidence.Injected{
			Fault: "F6 immediate restart", Began: w.tick(),
			Ended: w.tick(), Effect: 1,
		})
	}},
	{"ResultTooLateForItsTimeout", func(w *world) {
		w.begun()
		w.line("2.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.step("2.1", "x", "s", 1, columns{"step_kind": "FUNCTION", "run_attempt": 1, "status": "FAILED"})
		w.line("2.1", evidence.End, "x", "s", 1, "X1", "one")
		w.execute("2.1", "x", "s", 2, "X1", "one")
		w.ended()
	}},
	{"CopiedByAFork", func(w *world) {
		w.start("x", "", nil)
		w.step("driver", "x", "tx", 1, columns{
			"step_kind": "FUNCTION", "run_attempt": 0, "status": "COMPLETED",
			"output": "hash",
		})
		w.claim("2.1", "x", "X1")
		w.ended()
	}},
	{"GroupDecidedAgain", func(w *world) {
		w.begun()
		for i := range 2 {
			w.step("2.1", "x", "group", i+1, columns{
				"step_kind": "MARKER", "run_attempt": i + 1, "status": "COMPLETED",
				"output": fmt.Sprint(i),
			})
		}
		w.ended()
	}},
}

var allowedFamilies = []allowed{
	{"TerminatedIsNotUndone", func(w *world) {
		w.begun()
		w.step("2.1", "x", "u1#compensation", 1, columns{
			"step_kind": "COMPENSATION", "run_attempt": 1,
			"status": "RUNNING",
		})
		w.Steps = append(w.Steps, evidence.Step{
			Run: "x", Step: "u1#compensation", Kind: "COMPENSATION",
			Status: "RUNNING", Attempt: 1, Called: true,
		})
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "TERMINATED"})
		w.finish("driver", "x", "CANCELLED", columns{"lease": nil})
	}},
	{"ReplacedIsNotUndone", func(w *world) {
		w.begun()
		w.Steps = append(w.Steps, evidence.Step{
			Run: "x", Step: "u1#compensation", Kind: "COMPENSATION",
			Status: "RUNNING", Attempt: 1, Called: true,
		})
		w.finish("driver", "x", "CANCELLED", columns{"lease": nil, "error": "run was terminated: a start with its ID " +
			"has replaced it"})
	}},
	{"RegisteredAgain", func(w *world) {
		for i := range w.Steps {
			if s := w.Steps[i]; s.Step == "u1#compensation" { // before u2, and again after it
				w.Steps = append([]evidence.Step{s}, w.Steps...)
				w.Steps[0].Step = "u2#compensation"
				break
			}
		}
		w.ends["undoes"] = check.Ending{Failed: true, Registered: []string{"u1", "u2"}}
	}},
	{"BranchesReadInAnyOrder", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read"}
		w.swapReads()
		for i := range w.Steps {
			if w.Steps[i].Kind == "SIGNAL" {
				w.Steps[i].Step = "group/0/" + w.Steps[i].Step
			}
		}
	}},
	{"EarlyEpochsAreGone", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read", Messages: []string{"zero", "one", "two"}}
		w.run("2.1", "reads", columns{"epoch": 2})
	}},
	{"ValueOfAnEpochBeforeTheRestart", func(w *world) {
		w.ends["retries"] = check.Ending{Output: "done", Value: "new", AnyValue: true}
	}},
	{"EpochsCountMessagesAnew", func(w *world) {
		w.start("continues", "", nil)
		w.claim("2.1", "continues", "E")
		for epoch, payload := range []string{"one", "two"} {
			w.step("2.1", "continues", "mail", 1, columns{
				"step_kind": "SIGNAL", "run_attempt": 1, "status": "COMPLETED", "output": payload,
				"position": epoch<<32 + 1,
			})
		}
		w.finish("2.1", "continues", "COMPLETED", columns{"text": `"read"`})
	}},
	{"Answered", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{
			Verb: "ask", Run: "reads", Name: "q", Output: "answer to q", Outcome: evidence.OK,
		})
	}},
	{"AskedTooLate", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{Verb: "ask", Run: "reads", Name: "q", Outcome: evidence.Failed})
	}},
	{"ResumedAfterAMessageWasRefused", func(w *world) {
		w.start("x", "", nil)
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "CANCELLED"},
			evidence.Verb{Run: "x", Event: "RESUMED"})
		w.Calls = append(w.Calls, evidence.Call{Verb: "signal", Run: "x", Outcome: evidence.Failed})
	}},
	{"ForkReadsAgain", func(w *world) {
		w.ends["reads"] = check.Ending{Output: "read"}
		w.swapReads()
		w.run("2.1", "reads", columns{"origin_run_id": "another"})
	}},
}

var allowedLiveness = []allowed{
	{"DrainedDuringTrouble", func(w *world) {
		w.begun()
		w.drain()
		from := w.now - 2*time.Second
		w.now += 2 * time.Second
		w.claim("1.1", "x", "X2")
		w.finish("1.1", "x", "COMPLETED", nil)
		w.x.Settle = 0
		w.Injected = []evidence.Injected{{Fault: "F10 slow network", Began: from, Ended: from + time.Second, Effect: 1}}
		w.sampledFrom(from, 4*time.Second, func(s *evidence.Sample) { s.Trouble = true })
	}},
	{"DrainedOnABusyMachine", func(w *world) {
		w.begun()
		w.drain()
		from := w.now - 2*time.Second
		w.now += 2 * time.Second
		w.claim("1.1", "x", "X2")
		w.finish("1.1", "x", "COMPLETED", nil)
		w.x.Settle = 0
		w.sampledFrom(from, 4*time.Second, func(s *evidence.Sample) { s.Runnable = 30 })
	}},
	{"NotHeldDuringTrouble", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) { s.Running["x"], s.Trouble = "X", true })
	}},
	{"NotHeldInACrowd", func(w *world) {
		w.sampled(8*time.Second, func(s *evidence.Sample) {
			s.Running["x"], s.Due, s.DueSince, s.Runnable = "X", 1, epoch, 30
		})
	}},
	{"NotHeldOnABusyMachine", func(w *world) {
		w.sampled(8*time.Second, func(s *evidence.Sample) { s.Running["x"], s.Due, s.DueSince = "X", 1, epoch })
		busy := w.Samples[:0]
		for i, s := range w.Samples {
			if i%7 == 0 {
				busy = append(busy, s)
			}
		}
		w.Samples = busy
	}},
	{"HeldAgainAndAgain", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) {
			s.Running["x"] = "X"
			s.Held["X"] = s.At%time.Second < 300*time.Millisecond
		})
	}},
	{"DueForAShortTime", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) { s.Due, s.DueSince = 1, s.Now.Add(-time.Second) })
	}},
	{"AnotherIsNext", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) {
			s.Next = map[string]string{"narrow": fmt.Sprint(s.At / time.Second)}
		})
	}},
	{"NextDuringTrouble", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) {
			s.Next, s.Trouble = map[string]string{"narrow": "x"}, true
		})
	}},
	{"WaitsForOneEventAfterTheOther", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) {
			s.Untold = map[string]string{"x": fmt.Sprint(s.At / time.Second)}
		})
	}},
	{"NotToldDuringTrouble", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) {
			s.Untold, s.Trouble = map[string]string{"x": "e"}, true
		})
	}},
	{"PausedForEver", func(w *world) { w.start("x", "", columns{"paused": true}) }},
	{"DiedWithoutARun", func(w *world) {
		w.Exits = append(w.Exits, evidence.Exit{At: w.tick(), Worker: "9.9", Killed: true})
	}},
}

// After a failover that lost the newest commits, what was acknowledged may be gone.
func TestLossyHistories(t *testing.T) {
	t.Parallel()
	w := good()
	w.x.Lossy = true
	w.Calls = append(w.Calls, evidence.Call{Verb: "start", Run: "x", Outcome: evidence.OK},
		evidence.Call{Verb: "signal", Run: "reads", Message: "m3", Outcome: evidence.OK})
	w.Calls = append(w.Calls, evidence.Call{Verb: "ask", Run: "reads", Name: "one", Outcome: evidence.Failed},
		evidence.Call{Verb: "result", Run: "y", Outcome: evidence.OK, Output: "done"})
	w.start("y", "", nil)
	for _, lease := range []string{"Y1", "Y2"} {
		w.claim("2.1", "y", lease)
		w.line("2.1", evidence.Begin, "y", "once", 1, lease, "")
	}
	w.finish("2.1", "y", "CANCELLED", nil)
	w.line("2.1", evidence.Begin, "retries", "s", 1, "lost", "")
	w.line("2.1", evidence.Consume, "of a consumer, and lost", "", 0, "lost", "e1")
	exactly(t, w, "")
}

// After such a failover no worker completes a run from memory, over the hole in its records, or executes an attempt
// again under a lease.
func TestBadLossyHistories(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		invariant string
		do        func(w *world)
	}{
		"OverTheHole": {"S7", func(w *world) {
			w.execute("2.1", "x", "a", 1, "X1", "one")
			w.line("2.1", evidence.Begin, "x", "tx", 1, "X1", "") // its record and its effect are lost
			w.line("2.1", evidence.End, "x", "tx", 1, "X1", "two")
			w.execute("2.1", "x", "b", 1, "X1", "three")
		}},
		"GivenBack": {"", func(w *world) {
			w.line("2.1", evidence.Begin, "x", "a", 1, "X1", "")
			w.line("2.1", evidence.End, "x", "a", 1, "X1", "one")
			w.claim("2.1", "x", "X2")
			w.execute("2.1", "x", "a", 1, "X2", "one")
		}},
		"BegunTwice": {"S11", func(w *world) {
			w.line("2.1", evidence.Begin, "x", "a", 1, "X1", "")
			w.execute("2.1", "x", "a", 1, "X1", "one")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := good()
			w.x.Lossy = true
			w.begun()
			tc.do(w)
			w.ended()
			exactly(t, w, tc.invariant)
		})
	}
}

// The machine's times of changes are as good as the best stamps, whatever the nearest ones are.
func TestClockOfSlowAnswers(t *testing.T) {
	t.Parallel()
	e := good().end()
	want := check.Measure(e)
	for i := range e.Clock {
		if i%10 != 0 {
			e.Clock[i].Asked -= time.Duration(i) * time.Millisecond
			e.Clock[i].Answered += 300 * time.Millisecond
		}
	}
	if got := check.Measure(e); got.KillToClaim[0] != want.KillToClaim[0] || got.HealedToEnd != want.HealedToEnd {
		t.Errorf("%v, and %v with exact stamps", got, want)
	}
}

// If a fault has set the database's clock, times of the database say nothing about order.
func TestClockThatWasSet(t *testing.T) {
	t.Parallel()
	w := good()
	w.begun()
	w.step("2.1", "x", "nap", 1, columns{
		"step_kind": "SLEEP", "run_attempt": 1, "status": "COMPLETED",
		"wake_at": w.wall().Add(time.Minute),
	})
	w.ended()
	e := w.end()
	if got := found(e, w.x); len(got) != 1 || got[0] != "S9" {
		t.Fatalf("violated: %q, want S9 while the clock is steady", got)
	}
	for i := len(e.Clock) / 2; i < len(e.Clock); i++ {
		e.Clock[i].DB = e.Clock[i].DB.Add(-10 * time.Minute)
	}
	for _, v := range check.All(e, w.x) {
		if v.Invariant == "S9" {
			t.Error(v)
		}
	}
}
