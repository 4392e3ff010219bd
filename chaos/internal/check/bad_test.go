package check_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A bad history is the good one with one difference.
type bad struct {
	name      string
	invariant string
	change    func(w *world)
}

// badHistories break each invariant in each way that its check knows.
var badHistories = slices.Concat(badStarts, badRuns, badLeases, badSteps, badApplication, badFamilies, badVerbs,
	badEvents, badLiveness)

func TestBadHistories(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	for _, b := range badHistories {
		broken[b.invariant] = true
		t.Run(b.invariant+"/"+b.name, func(t *testing.T) {
			t.Parallel()
			w := good()
			b.change(w)
			exactly(t, w, b.invariant)
		})
	}
	for _, name := range []string{
		"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S15", "S16", "S17",
		"compensations", "messages", "consumers", "children", "verbs", "L1", "L2", "L3", "L4", "L5", "L6",
	} {
		if !broken[name] {
			t.Errorf("no history breaks %s", name)
		}
	}
}

// call changes the calls of a verb.
func (w *world) call(verb, run string, change func(*evidence.Call)) {
	for i := range w.Calls {
		if w.Calls[i].Verb == verb && w.Calls[i].Run == run {
			change(&w.Calls[i])
		}
	}
}

// plain is a run that does nothing.
func (w *world) plain(run, id string) {
	w.start(run, id, nil)
	w.claim("2.1", run, "of "+run)
	w.finish("2.1", run, "COMPLETED", nil)
}

// ranAfterTheDrain leaves a run under the lease of a worker that was drained.
func (w *world) ranAfterTheDrain() {
	w.start("x", "", nil)
	w.claim("2.1", "x", "of x")
	w.drain()
	w.now += 2 * time.Second
	w.claim("1.1", "x", "another")
	w.finish("1.1", "x", "COMPLETED", nil)
}

var badStarts = []bad{
	{"NeverExisted", "S1", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{Verb: "start", Run: "x", Outcome: evidence.OK})
	}},
	{"Vanished", "S1", func(w *world) {
		w.plain("x", "")
		delete(w.rows, "x0")
	}},
	{"ForkNeverExisted", "S1", func(w *world) {
		w.Calls = append(w.Calls, evidence.Call{Verb: "fork", Run: "retries", New: "x", Outcome: evidence.OK})
	}},
	{"TwoActive", "S2", func(w *world) {
		w.start("x", "twin", nil)
		w.start("y", "twin", nil)
		for _, run := range []string{"x", "y"} {
			w.claim("2.1", run, "of "+run)
			w.finish("2.1", run, "COMPLETED", nil)
		}
	}},
	{"ResumedBesideAnother", "S2", func(w *world) {
		w.start("x", "twin", nil)
		w.finish("driver", "x", "CANCELLED", nil)
		w.start("y", "twin", nil)
		w.run("driver", "x", columns{"status": "PENDING", "finished_at": nil, "available_at": w.wall()})
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "RESUMED"})
		w.finish("driver", "x", "CANCELLED", nil)
		w.finish("driver", "y", "CANCELLED", nil)
	}},
	{"AnotherID", "S2", func(w *world) {
		w.plain("x", "one")
		w.call("start", "x", func(c *evidence.Call) { c.ExternalID = "two" })
	}},
	{"AnswerNamesARunThatIsOver", "S2", func(w *world) {
		w.plain("x", "one")
		w.now += time.Second
		w.Calls = append(w.Calls, evidence.Call{
			Verb: "start", Run: "x", ExternalID: "one", Began: w.tick(),
			Ended: w.tick(), Outcome: evidence.OK,
		})
	}},
	{"OneStartTwoRuns", "S2", func(w *world) {
		w.x.Program = func(r evidence.Run) (int, bool) { return 7, strings.HasPrefix(r.ID, "x") }
		w.Calls = append(w.Calls, evidence.Call{Verb: "start", Program: 7, Outcome: evidence.Unknown})
		for _, run := range []string{"x1", "x2"} {
			w.run("driver", run, columns{"status": "PENDING", "available_at": w.wall()})
			w.claim("2.1", run, "of "+run)
			w.finish("2.1", run, "COMPLETED", nil)
		}
	}},
	{"StartedThoughRolledBack", "S16", func(w *world) {
		w.plain("x", "")
		w.call("start", "x", func(c *evidence.Call) { c.RolledBack = true })
	}},
	{"TickWithoutRun", "S8", func(w *world) {
		w.Ticks = append(w.Ticks, evidence.Tick{Schedule: "all", At: epoch.Add(time.Minute), May: "fire"})
	}},
	{"TickWithTwoRuns", "S8", func(w *world) { w.fire("all", epoch) }},
	{"SkippableTickWithTwoRuns", "S8", func(w *world) { w.fire("some", epoch.Add(time.Second)) }},
	{"RunWithoutTick", "S8", func(w *world) { w.fire("all", epoch.Add(500*time.Millisecond)) }},
}

// fire starts a run of a schedule.
func (w *world) fire(schedule string, at time.Time) {
	w.run("2.1", "x", columns{"status": "PENDING", "schedule_name": schedule, "fire_at": at, "available_at": at})
	w.claim("2.1", "x", "of x")
	w.finish("2.1", "x", "COMPLETED", nil)
}

var badRuns = []bad{
	{"ActiveAgain", "S3", func(w *world) {
		w.plain("x", "")
		w.run("driver", "x", columns{"status": "PENDING", "finished_at": nil, "available_at": w.wall()})
		w.claim("2.1", "x", "again")
		w.finish("2.1", "x", "COMPLETED", nil)
	}},
	{"ResumedTwiceByOneResume", "S3", func(w *world) {
		w.start("x", "", nil)
		for range 2 {
			w.finish("driver", "x", "CANCELLED", nil)
			w.run("driver", "x", columns{"status": "PENDING", "finished_at": nil, "available_at": w.wall()})
		}
		w.finish("driver", "x", "CANCELLED", nil)
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "RESUMED"})
	}},
	{"CompletedThoughItFails", "S3", func(w *world) {
		w.plain("x", "")
		w.ends["x"] = check.Ending{Failed: true}
	}},
	{"FailedThoughItCompletes", "S3", func(w *world) {
		w.start("x", "", nil)
		w.claim("2.1", "x", "of x")
		w.finish("2.1", "x", "FAILED", columns{"error_kind": "error"})
		w.ends["x"] = check.Ending{Output: "done"}
	}},
	{"FailedWithAnotherKind", "S3", func(w *world) {
		w.start("x", "", nil)
		w.claim("2.1", "x", "of x")
		w.finish("2.1", "x", "FAILED", columns{"error_kind": "nondeterminism"})
		w.ends["x"] = check.Ending{Failed: true, Kinds: []string{"error"}}
	}},
	{"CancelledByNobody", "S3", func(w *world) {
		w.start("x", "", nil)
		w.finish("driver", "x", "CANCELLED", nil)
		w.ends["x"] = check.Ending{Output: "done"}
	}},
	{"AnotherValue", "S7", func(w *world) {
		w.ends["retries"] = check.Ending{Output: "done", Value: "new"}
		w.Steps = append(w.Steps, evidence.Step{Run: "retries", Step: "#value:state", Kind: "VALUE", Output: "old"})
	}},
	{"AnotherOutput", "S7", func(w *world) { w.ends["retries"] = check.Ending{Output: "another"} }},
	{"AnotherResult", "S15", func(w *world) {
		w.call("result", "retries", func(c *evidence.Call) { c.Output = "dome" })
	}},
	{"CompletedAfterItsCancel", "S10", func(w *world) {
		w.plain("x", "")
		w.Calls = append(w.Calls, evidence.Call{Verb: "cancel", Run: "x", Outcome: evidence.OK})
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "CANCELLED"})
	}},
	{"StepAfterTheCancel", "S10", func(w *world) {
		w.start("x", "", nil)
		w.run("driver", "x", columns{"cancel_requested_at": w.wall()})
		w.claim("2.1", "x", "of x")
		w.execute("2.1", "x", "s", 1, "of x", "one")
		w.finish("2.1", "x", "CANCELLED", nil)
	}},
	{"DeletedByNobody", "S13", func(w *world) {
		w.plain("x", "")
		w.remove("x", "", 0)
	}},
	{"DeletedTooEarly", "S13", func(w *world) {
		w.x.Retention = time.Minute
		w.plain("x", "")
		w.now += 59 * time.Second
		w.remove("x", "", 0)
	}},
}

var badLeases = []bad{
	{"StaleFinish", "S4", func(w *world) {
		w.start("x", "", nil)
		w.claim("1.1", "x", "X1")
		w.claim("2.1", "x", "X2")
		w.finish("1.1", "x", "COMPLETED", nil)
	}},
	{"StaleSuspension", "S4", func(w *world) {
		w.start("x", "", nil)
		w.claim("1.1", "x", "X1")
		w.claim("2.1", "x", "X2")
		w.run("1.1", "x", columns{"status": "SLEEPING", "available_at": w.wall()})
		w.finish("driver", "x", "CANCELLED", nil)
	}},
	{"StaleExtension", "S4", func(w *world) {
		w.start("x", "", nil)
		w.claim("1.1", "x", "X1")
		w.claim("2.1", "x", "X2")
		w.run("1.1", "x", columns{"available_at": w.wall().Add(time.Hour)})
		w.finish("2.1", "x", "COMPLETED", nil)
	}},
	{"StaleRecord", "S4", func(w *world) {
		w.start("x", "", nil)
		w.claim("1.1", "x", "X1")
		w.line("1.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.line("1.1", evidence.End, "x", "s", 1, "X1", "one")
		w.claim("2.1", "x", "X2")
		w.line("2.1", evidence.Begin, "x", "s", 1, "X2", "")
		w.line("2.1", evidence.End, "x", "s", 1, "X2", "one")
		w.record("1.1", "x", "s", 1, "one")
		w.finish("2.1", "x", "COMPLETED", nil)
	}},
	{"StaleRecordOfTheSameProcess", "S4", func(w *world) {
		w.start("x", "", nil)
		w.claim("1.1", "x", "X1")
		w.line("1.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.line("1.1", evidence.End, "x", "s", 1, "X1", "one")
		w.claim("1.1", "x", "X2")
		w.record("1.1", "x", "s", 1, "one")
		w.finish("1.1", "x", "COMPLETED", nil)
	}},
	{"RecordOfNobody", "S4", func(w *world) {
		w.start("x", "", nil)
		w.claim("1.1", "x", "X1")
		w.line("1.1", evidence.Begin, "x", "s", 1, "X1", "")
		w.line("1.1", evidence.End, "x", "s", 1, "X1", "one")
		w.run("1.1", "x", columns{"status": "PENDING", "locked_by": nil})
		w.record("1.1", "x", "s", 1, "one")
		w.finish("driver", "x", "CANCELLED", nil)
	}},
	{"LeaseFromNowhere", "S4", func(w *world) {
		w.plain("x", "")
		w.line("2.1", evidence.Begin, "x", "s", 1, "another", "")
	}},
	{"LeaseOfAnother", "S4", func(w *world) {
		w.plain("x", "")
		w.line("1.1", evidence.Begin, "x", "s", 1, "of x", "")
	}},
	{"NotOffline", "S12", func(w *world) { w.Workers[1].Status = "ONLINE" }},
	{"GoroutinesLeft", "S12", func(w *world) { w.line("2.1", evidence.Stopped, "", "", 0, "", "goroutines: 2") }},
	{"LeftRunning", "S12", func(w *world) {
		w.start("x", "", columns{"paused": true}) // so that it need not end
		w.claim("2.1", "x", "of x")
	}},
	{"RanAfterTheDrain", "S12", (*world).ranAfterTheDrain},
	{"RanAfterADrainThatIsTheOnlyFault", "S12", func(w *world) {
		from := w.now - 500*time.Millisecond
		w.ranAfterTheDrain()
		w.x.Settle = 0
		w.Injected = []evidence.Injected{
			{Fault: "F10 slow network", Began: from - time.Minute, Ended: from - time.Minute, Effect: 1},
			{Fault: "F26 SIGTERM", Began: from, Ended: w.now, Effect: 1},
		}
		w.sampledFrom(from, 4*time.Second, func(s *evidence.Sample) { s.Trouble = true })
	}},
}
