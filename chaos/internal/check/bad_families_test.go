package check_test

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

var badFamilies = []bad{
	{"NotUndone", "compensations", func(w *world) {
		w.ends["undoes"] = check.Ending{Failed: true, Registered: []string{"u0", "u1", "u2"}}
	}},
	{"UndoneInOrderOfRegistration", "compensations", func(w *world) {
		w.ends["undoes"] = check.Ending{Failed: true, Registered: []string{"u2", "u1"}}
	}},
	{"UndoneByTwoRuns", "compensations", func(w *world) { w.undo("undoes", "u1", "undo u1 again", "U again") }},
	{"UndoneThoughCompleted", "compensations", func(w *world) {
		w.plain("x", "")
		w.undo("x", "u1", "undo x", "U x")
	}},
	{"NotRolledBack", "compensations", func(w *world) {
		w.ends["retries"] = check.Ending{Output: "done", RollsBack: true, Registered: []string{"u1"}}
	}},
	{"UndoneThoughQuarantined", "compensations", func(w *world) {
		w.begun()
		w.finish("2.1", "x", "FAILED", columns{"error_kind": "crash_loop", "quarantined": true})
		w.undo("x", "u1", "undo x", "U x")
	}},
	{"CancelledAndNotUndone", "compensations", func(w *world) {
		w.begun()
		w.Verbs = append(w.Verbs, evidence.Verb{Run: "x", Event: "CANCELLED"})
		w.step("2.1", "x", "u1#compensation", 1, columns{
			"step_kind": "COMPENSATION", "run_attempt": 1,
			"status": "RUNNING",
		})
		w.Steps = append(w.Steps, evidence.Step{
			Run: "x", Step: "u1#compensation", Kind: "COMPENSATION",
			Status: "RUNNING", Attempt: 1, Called: true,
		})
		w.finish("2.1", "x", "CANCELLED", nil)
	}},

	{"AnotherResult", "children", func(w *world) { w.child(func(s *evidence.Step) { s.Hash = "hash of another" }) }},
	{"ChildDidNotFail", "children", func(w *world) { w.child(func(s *evidence.Step) { s.Status = "FAILED" }) }},
	{"TwoChildren", "children", func(w *world) {
		w.run("2.1", "x", columns{
			"status": "PENDING", "parent_run_id": "parent", "parent_step_id": "child",
			"available_at": w.wall(),
		})
		w.finish("driver", "x", "CANCELLED", nil)
	}},
}

var badEvents = []bad{
	{"AcknowledgedAndNotThere", "consumers", func(w *world) { w.Events = slices.DeleteFunc(w.Events, isAwaited) }},
	{"StoredTwice", "S17", func(w *world) {
		w.Events = append(w.Events, evidence.Event{Topic: "awaited", ID: "e", Payload: "payload of e", Position: 4})
	}},
	{"SecondPayload", "S17", func(w *world) {
		w.Events[slices.IndexFunc(w.Events, isAwaited)].Payload = "payload of another"
	}},
	{"RunGotAnother", "S17", func(w *world) { w.heard(func(s *evidence.Step) { s.Output = "payload of another" }) }},
	{"RunGotNone", "S17", func(w *world) { w.heard(func(s *evidence.Step) { s.Output, s.ErrorKind = "", "timeout" }) }},
	{"ClientGotAnother", "S17", func(w *world) {
		w.call("await", "", func(c *evidence.Call) { c.Output = "payload of another" })
	}},
}

func isAwaited(e evidence.Event) bool { return e.Topic == "awaited" }

// heard changes the step that waits for an event.
func (w *world) heard(change func(*evidence.Step)) {
	for i := range w.Steps {
		if w.Steps[i].Kind == "EVENT" {
			change(&w.Steps[i])
		}
	}
}

// child changes the step of the parent.
func (w *world) child(change func(*evidence.Step)) {
	for i := range w.Steps {
		if w.Steps[i].Kind == "CHILD_WORKFLOW" {
			change(&w.Steps[i])
		}
	}
}

// sampled makes the samples of a time at the end.
func (w *world) sampled(d time.Duration, change func(*evidence.Sample)) {
	w.sampledFrom(w.now, d, change)
	w.now += d
}

// sampledFrom makes the samples of a time.
func (w *world) sampledFrom(from, d time.Duration, change func(*evidence.Sample)) {
	for at := from; at < from+d; at += 200 * time.Millisecond {
		s := evidence.Sample{At: at, Now: epoch.Add(at), Running: map[string]string{}, Held: map[string]bool{}}
		change(&s)
		w.Samples = append(w.Samples, s)
	}
}

var badLiveness = []bad{
	{"Pending", "L1", func(w *world) { w.start("x", "", nil) }},
	{"NotHeld", "L2", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) { s.Running["x"], s.Held["Y"] = "X", true })
	}},
	{"DueBesideAFreeSlot", "L3", func(w *world) {
		since := w.wall()
		w.sampled(4*time.Second, func(s *evidence.Sample) { s.Due, s.DueSince = 1, since })
	}},
	{"NextBesideRoom", "L3", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) { s.Next = map[string]string{"keyed a": "x"} })
	}},
	{"EndedLate", "L4", func(w *world) {
		w.x.Settle = 500 * time.Millisecond
		w.start("x", "", nil)
		w.now += time.Second
		w.finish("driver", "x", "CANCELLED", nil)
	}},
	{"DeadAndOnline", "L5", func(w *world) {
		w.Workers[0].Status = "ONLINE"
		w.now += 3 * time.Second
		w.plain("x", "") // after healing
	}},
	{"NotTold", "L6", func(w *world) {
		w.sampled(4*time.Second, func(s *evidence.Sample) { s.Untold = map[string]string{"x": "e"} })
	}},
	{"LeftToTell", "L6", func(w *world) { w.Awaited = append(w.Awaited, evidence.Awaited{Topic: "awaited", ID: "e"}) }},
	{"NotTakenOver", "L5", func(w *world) {
		w.start("x", "", nil)
		w.claim("3.1", "x", "X1")
		w.Exits = append(w.Exits, evidence.Exit{At: w.tick(), Worker: "3.1", Killed: true})
		w.now += 3 * time.Second
		w.claim("2.1", "x", "X2")
		w.ended()
	}},
}
