package check_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// good returns a world in which every promise is kept, with all that the checks look at.
func good() *world {
	w := newWorld()
	for _, worker := range []string{"1.1", "2.1"} {
		w.line(worker, evidence.Started, "", "", 0, "", "")
		w.line(worker, evidence.Online, "", "", 0, "", "id of "+worker)
	}
	w.retries("retries")
	w.takenOver("taken over")
	w.sleeps("sleeps")
	w.undoes("undoes")
	w.reads("reads")
	w.parent("parent")
	w.cancelled("cancelled")
	w.consumes("consumes")
	w.hears("hears")
	w.schedules("ticks")
	w.rollsBack("rolled back")
	w.collects("collects")
	w.changes("changes", "gone")
	w.Workers = []evidence.Worker{{ID: "id of 1.1", Status: "OFFLINE"}, {ID: "id of 2.1", Status: "OFFLINE"}}
	w.Injected = []evidence.Injected{{Fault: "F1 kill", Began: time.Second, Ended: 2 * time.Second, Effect: 1}}
	return w
}

// retries is a run whose first step fails once, and whose transaction fails once.
func (w *world) retries(run string) {
	w.ends[run] = check.Ending{Output: "done"}
	w.start(run, "its ID", nil)
	w.claim("2.1", run, "R")
	w.line("2.1", evidence.Begin, run, "flaky", 1, "R", "")
	w.line("2.1", evidence.Fail, run, "flaky", 1, "R", "not yet")
	wake := w.wall().Add(20 * time.Millisecond)
	w.step("2.1", run, "flaky", 1, columns{
		"step_kind": "FUNCTION", "run_attempt": 1, "status": "FAILED",
		"wake_at": wake,
	})
	w.Steps = append(w.Steps, evidence.Step{
		Run: run, Step: "flaky", Kind: "FUNCTION", Status: "FAILED", Attempt: 1,
		WakeAt: wake, Finished: w.wall(),
	})
	w.now += 20 * time.Millisecond
	w.execute("2.1", run, "flaky", 2, "R", "one")
	w.line("2.1", evidence.Begin, run, "tx", 1, "R", "")
	w.line("2.1", evidence.End, run, "tx", 1, "R", "two")
	w.execute("2.1", run, "tx", 1, "R", "two")
	w.Effects = append(w.Effects, evidence.Effect{Run: run, Step: "tx", From: "a", To: "b", Amount: 3})
	w.Accounts["a"], w.Accounts["b"] = w.Accounts["a"]-3, w.Accounts["b"]+3
	w.line("2.1", evidence.Begin, run, "parts", 1, "R", "") // its second part fails once
	w.line("2.1", evidence.Fail, run, "parts", 1, "R", "no")
	w.execute("2.1", run, "parts", 1, "R", "three")
	w.parts(run, "parts", 2)
	w.finish("2.1", run, "COMPLETED", columns{"text": `"done"`, "output": "hash of done"})
	w.Calls = append(w.Calls, evidence.Call{Client: 1, Verb: "result", Run: run, Outcome: evidence.OK, Output: "done"})
}

// parts has the effects of the first parts of a step.
func (w *world) parts(run, step string, n int) {
	for part := range n {
		w.Effects = append(w.Effects, evidence.Effect{
			Run: run, Step: fmt.Sprintf("%s:%d", step, part), From: "a", To: "a", Amount: 1,
		})
	}
}

// takenOver is a run whose worker dies in a step.
func (w *world) takenOver(run string) {
	w.start(run, "", nil)
	w.claim("1.1", run, "T1")
	w.execute("1.1", run, "first", 1, "T1", "one")
	w.line("1.1", evidence.Begin, run, "second", 1, "T1", "")
	w.Exits = append(w.Exits, evidence.Exit{At: w.tick(), Worker: "1.1", Killed: true})
	w.claim("2.1", run, "T2")
	w.execute("2.1", run, "second", 1, "T2", "two")
	w.finish("2.1", run, "COMPLETED", nil)
}

// sleeps is a run that sleeps, and is extended.
func (w *world) sleeps(run string) {
	w.start(run, "", nil)
	w.claim("2.1", run, "S1")
	w.run("2.1", run, columns{"available_at": w.wall().Add(5 * time.Second)})
	wake := w.wall().Add(300 * time.Millisecond)
	w.step("2.1", run, "nap", 1, columns{"step_kind": "SLEEP", "run_attempt": 1, "status": "RUNNING", "wake_at": wake})
	w.run("2.1", run, columns{"status": "SLEEPING", "available_at": wake, "locked_by": nil})
	w.now += 300 * time.Millisecond
	w.claim("2.1", run, "S2")
	w.step("2.1", run, "nap", 1, columns{"status": "COMPLETED"})
	w.finish("2.1", run, "COMPLETED", nil)
}

// undoes is a run that registers two compensations, and fails.
func (w *world) undoes(run string) {
	w.ends[run] = check.Ending{Failed: true, Kinds: []string{"error"}, Registered: []string{"u1", "u2"}}
	w.start(run, "", nil)
	w.claim("2.1", run, "U")
	for _, name := range []string{"u1", "u2"} {
		w.step("2.1", run, name+"#compensation", 1, columns{
			"step_kind": "COMPENSATION", "run_attempt": 1,
			"status": "RUNNING",
		})
		w.Steps = append(w.Steps, evidence.Step{
			Run: run, Step: name + "#compensation", Kind: "COMPENSATION",
			Status: "COMPLETED", Attempt: 1, Called: true,
		})
	}
	w.run("2.1", run, columns{"status": "SLEEPING", "available_at": w.wall(), "locked_by": nil})
	for _, name := range []string{"u2", "u1"} {
		w.undo(run, name, "undo "+name, "U "+name)
		w.step("driver", run, name+"#compensation", 1, columns{"status": "COMPLETED"})
	}
	w.finish("driver", run, "FAILED", columns{"error_kind": "error"})
}

// undo is a run that undoes what a compensation of run says.
func (w *world) undo(run, name, child, lease string) {
	w.run("driver", child, columns{
		"status": "PENDING", "workflow_type": "undo", "parent_run_id": run,
		"parent_step_id": name + "#compensation", "available_at": w.wall(),
	})
	w.claim("2.1", child, lease)
	w.line("2.1", evidence.Begin, child, "undo", 1, lease, "")
	w.line("2.1", evidence.Undo, run, "", 0, lease, name)
	w.line("2.1", evidence.End, child, "undo", 1, lease, "")
	w.record("2.1", child, "undo", 1, "null")
	w.finish("2.1", child, "COMPLETED", nil)
}

// reads is a run that reads two messages.
func (w *world) reads(run string) {
	w.ends[run] = check.Ending{Output: "read", Messages: []string{"one", "two"}}
	w.start(run, "", nil)
	for i, payload := range []string{"one", "two"} {
		id := "m" + payload
		w.Calls = append(w.Calls, evidence.Call{Client: 1, Verb: "signal", Run: run, Message: id, Outcome: evidence.OK})
		w.Messages = append(w.Messages, evidence.Message{
			Run: run, Name: "mail", ID: id, Payload: `"` + payload + `"`,
			ConsumedBy: "wait " + payload, Sequence: int64(i + 1),
		})
	}
	w.claim("2.1", run, "M")
	for i, payload := range []string{"one", "two"} {
		w.step("2.1", run, "wait "+payload, 1, columns{"step_kind": "SIGNAL", "run_attempt": 1, "status": "COMPLETED"})
		w.Steps = append(w.Steps, evidence.Step{
			Run: run, Step: "wait " + payload, Kind: "SIGNAL", Status: "COMPLETED",
			Attempt: 1, Sequence: int64(i + 1), Position: int64(i + 1),
		})
	}
	w.finish("2.1", run, "COMPLETED", columns{"text": `"read"`})
}

// parent is a run with a child.
func (w *world) parent(run string) {
	w.start(run, "", nil)
	w.claim("2.1", run, "P")
	child := run + "'s child"
	w.run("2.1", child, columns{
		"status": "PENDING", "workflow_type": "program", "parent_run_id": run,
		"parent_step_id": "child", "available_at": w.wall(),
	})
	w.step("2.1", run, "child", 1, columns{"step_kind": "CHILD_WORKFLOW", "run_attempt": 1, "status": "RUNNING"})
	w.claim("2.1", child, "C")
	w.finish("2.1", child, "COMPLETED", columns{"output": "hash of child"})
	w.step("2.1", run, "child", 1, columns{"status": "COMPLETED", "output": "hash of child"})
	w.Steps = append(w.Steps, evidence.Step{
		Run: run, Step: "child", Kind: "CHILD_WORKFLOW", Status: "COMPLETED",
		Attempt: 1, Child: child, Hash: "hash of child",
	})
	w.finish("2.1", run, "COMPLETED", nil)
}

// cancelled is a run that is cancelled while it is executed, and resumed.
func (w *world) cancelled(run string) {
	w.ends[run] = check.Ending{Output: "done"}
	w.start(run, "", nil)
	w.claim("2.1", run, "X1")
	w.execute("2.1", run, "s", 1, "X1", "one")
	w.run("driver", run, columns{"cancel_requested_at": w.wall()})
	w.Calls = append(w.Calls, evidence.Call{Client: 1, Verb: "cancel", Run: run, Outcome: evidence.OK, Ended: w.tick()})
	w.finish("2.1", run, "CANCELLED", nil)
	w.run("driver", run, columns{
		"status": "PENDING", "lease": nil, "cancel_requested_at": nil, "finished_at": nil,
		"available_at": w.wall(),
	})
	w.Verbs = append(w.Verbs, evidence.Verb{Run: run, Event: "CANCELLED"}, evidence.Verb{Run: run, Event: "RESUMED"})
	w.claim("2.1", run, "X2")
	w.finish("2.1", run, "COMPLETED", columns{"text": `"done"`})
}

// consumes is a run of a consumer, which looks at two events, at one of them again.
func (w *world) consumes(run string) {
	w.run("2.1", run, columns{
		"status": "RUNNING", "workflow_type": "reader", "lease": "N", "locked_by": "id of 2.1",
		"available_at": w.wall().Add(time.Second),
	})
	for i, id := range []string{"e1", "e2"} {
		w.Events = append(w.Events, evidence.Event{Topic: "told", ID: id, Position: int64(i + 1)})
		w.Calls = append(w.Calls, evidence.Call{
			Client: 1, Verb: "publish", Name: "told", Message: id,
			Outcome: evidence.OK,
		})
	}
	for _, id := range []string{"e1", "e1", "e2"} {
		w.line("2.1", evidence.Consume, run, "", 0, "N", id)
	}
	w.Readers = append(w.Readers, evidence.Reader{Topic: "told", Consumer: "reader", Position: 2})
	w.finish("2.1", run, "COMPLETED", nil)
}

// hears is a run that waits for an event, as a client does.
func (w *world) hears(run string) {
	w.start(run, "", nil)
	w.claim("2.1", run, "H")
	w.run("2.1", run, columns{
		"status": "SLEEPING", "available_at": w.wall().Add(time.Hour), "locked_by": nil,
		"waiting_on": []columns{{"kind": "event", "name": "awaited/e"}},
	})
	for _, again := range []bool{false, true} {
		w.Calls = append(w.Calls, evidence.Call{
			Client: 1, Verb: "publish", Name: "awaited", Message: "e", Began: w.tick(), Ended: w.tick(),
			Outcome: evidence.OK,
		})
		if !again {
			w.Events = append(w.Events, evidence.Event{Topic: "awaited", ID: "e", Payload: "payload of e", Position: 3})
		}
	}
	w.Calls = append(w.Calls, evidence.Call{
		Client: 2, Verb: "await", Name: "awaited", Message: "e", Output: "payload of e", Outcome: evidence.OK,
	})
	w.run("driver", run, columns{"available_at": w.wall()})
	w.claim("2.1", run, "H2")
	w.step("2.1", run, "group/a/wait e", 1, columns{"step_kind": "EVENT", "run_attempt": 1, "status": "COMPLETED"})
	w.Steps = append(w.Steps, evidence.Step{
		Run: run, Step: "group/a/wait e", Kind: "EVENT", Status: "COMPLETED", Attempt: 1, Output: "payload of e",
	})
	w.finish("2.1", run, "COMPLETED", nil)
}

// payload is check.Events.Payload.
func payload(e evidence.Event) (string, bool) { return "payload of " + e.ID, e.Topic == "awaited" }

// awaited is check.Events.Awaited.
func awaited(_ evidence.Run, step string) (evidence.Event, bool) {
	_, id, ok := strings.Cut(step, "wait ")
	return evidence.Event{Topic: "awaited", ID: id}, ok
}

// schedules is two runs of schedules, and a tick that was skipped.
func (w *world) schedules(prefix string) {
	for i, schedule := range []string{"all", "some"} {
		at := epoch.Add(time.Duration(i) * time.Second)
		run := prefix + " " + schedule
		w.run("2.1", run, columns{
			"status": "PENDING", "workflow_type": "program", "schedule_name": schedule,
			"fire_at": at, "available_at": at,
		})
		w.claim("2.1", run, "tick "+schedule)
		w.finish("2.1", run, "COMPLETED", nil)
	}
	w.Ticks = append(w.Ticks, evidence.Tick{Schedule: "all", At: epoch, May: "fire"},
		evidence.Tick{Schedule: "some", At: epoch, May: "fire or skip"},
		evidence.Tick{Schedule: "some", At: epoch.Add(time.Second), May: "fire or skip"})
}

// rollsBack is a start that was rolled back.
func (w *world) rollsBack(run string) {
	w.Calls = append(w.Calls, evidence.Call{Client: 1, Verb: "start", Run: run, Outcome: evidence.OK, RolledBack: true})
}

// collects is the run of a batch.
func (w *world) collects(run string) {
	w.run("driver", run, columns{"status": "PENDING", "workflow_type": "collected", "available_at": w.wall()})
	w.Calls = append(w.Calls, evidence.Call{Client: 1, Verb: "batch", Run: run, Outcome: evidence.OK})
	w.claim("2.1", run, "B")
	w.Items = append(w.Items, evidence.Item{Item: "item of " + run, Run: run})
	w.finish("2.1", run, "COMPLETED", nil)
}

func TestGoodHistory(t *testing.T) {
	t.Parallel()
	w := good()
	exactly(t, w, "")
	if why := check.Exercised(&w.Evidence, check.Measure(&w.Evidence)); len(why) > 0 {
		t.Errorf("proves nothing: %q", why)
	}
}
