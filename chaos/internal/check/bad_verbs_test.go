package check_test

import (
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// changes is a run that a client pauses, changes and resumes, and another one that it deletes.
func (w *world) changes(run, gone string) {
	w.start(run, "", columns{"priority": 3})
	w.done("pause", run, columns{"paused_at": w.wall()})
	w.done("unpause", run, columns{"paused_at": nil})
	w.done("update", run, columns{"priority": 2})
	w.claim("2.1", run, "V1")
	w.finish("2.1", run, "FAILED", nil)
	w.done("resume", run, columns{"status": "PENDING", "finished_at": nil, "available_at": w.wall()})
	w.Verbs = append(w.Verbs, evidence.Verb{Run: run, Event: "RESUMED"})
	w.claim("2.1", run, "V2")
	w.publishes("2.1", run, "group/0/publish", "news of "+run+" publish")
	w.finish("2.1", run, "COMPLETED", nil)
	w.plain(gone, "")
	w.remove(gone, "", 0)
	w.Calls = append(w.Calls, evidence.Call{
		Client: 1, Verb: "delete", Run: gone, Ended: w.tick(),
		Outcome: evidence.OK,
	})
	w.Verbs = append(w.Verbs, evidence.Verb{Run: gone, Event: "DELETED"})
}

// done is a call that changes a run.
func (w *world) done(verb, run string, c columns) {
	call := evidence.Call{Client: 1, Verb: verb, Run: run, Began: w.tick(), Outcome: evidence.OK}
	call.Priority, _ = c["priority"].(int)
	w.run("driver", run, c)
	call.Ended = w.tick()
	w.Calls = append(w.Calls, call)
}

// publishes records a step that publishes an event.
func (w *world) publishes(worker, run, step, payload string) {
	w.step(worker, run, step, 1, columns{
		"step_kind": "PUBLISH", "run_attempt": 1, "status": "COMPLETED",
		"finished_at": w.wall(),
	})
	w.Events = append(w.Events, evidence.Event{Topic: "news", ID: payload, Payload: payload})
}

// published is check.Expectations.Published.
func published(e evidence.Event) (run, step string, ok bool) {
	words := strings.Fields(e.Payload)
	if len(words) != 4 || words[0] != "news" {
		return "", "", false
	}
	return words[2], words[3], true
}

var badVerbs = []bad{
	{"DeletedIsThere", "verbs", func(w *world) {
		w.call("delete", "gone", func(c *evidence.Call) { c.Run = "changes" })
	}},
	{"ResumedIsNot", "verbs", func(w *world) {
		w.call("resume", "changes", func(c *evidence.Call) { c.Run = "sleeps" })
	}},
	{"ResumedLater", "verbs", func(w *world) {
		w.call("resume", "changes", func(c *evidence.Call) { c.Ended -= 10 * time.Second })
	}},
	{"PausedNever", "verbs", func(w *world) {
		w.call("pause", "changes", func(c *evidence.Call) { c.Run = "sleeps" })
	}},
	{"PausedIsClaimed", "verbs", func(w *world) {
		w.start("x", "", nil)
		w.run("driver", "x", columns{"paused_at": w.wall()})
		w.claim("2.1", "x", "X1")
		w.run("driver", "x", columns{"paused_at": nil})
		w.ended()
	}},
	{"UnpausedIsPaused", "verbs", func(w *world) {
		w.start("x", "", nil)
		w.done("unpause", "x", columns{"paused_at": w.wall(), "paused": true})
	}},
	{"UpdatedIsNot", "verbs", func(w *world) {
		w.call("update", "changes", func(c *evidence.Call) { c.Priority = 1 })
	}},
	{"UpdatedIsOverwritten", "verbs", func(w *world) { w.run("2.1", "changes", columns{"priority": 3}) }},

	{"PublishedWithoutRecord", "S16", func(w *world) {
		w.Events = append(w.Events, evidence.Event{Topic: "news", ID: "e", Payload: "news of changes other"})
	}},
	{"PublishedTwice", "S16", func(w *world) { w.Events = append(w.Events, w.Events[len(w.Events)-1]) }},
	{"RecordWithoutEvent", "S16", func(w *world) { w.Events = w.Events[:len(w.Events)-1] }},
}
