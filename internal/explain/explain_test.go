package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/waits"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	now      = time.Date(2026, 10, 1, 8, 0, 0, 0, time.UTC)
	later    = now.Add(2 * time.Hour)
	earlier  = now.Add(-time.Hour)
	checkout = kagzi.Define[string, string]("checkout")
)

// words name deeds by their verb.
var words = explain.Words{
	Now: func() time.Time { return now },
	Deed: func(d explain.Deed) string {
		name := d.Name + string(d.Other) + d.Target.Queue
		if d.Ref != nil {
			name = fmt.Sprint(d.Ref)
		}
		return "<" + strings.TrimSpace(string(d.Verb)+" "+name) + ">"
	},
}

// A situation is a run with its steps and log.
type situation struct {
	run   kagzi.RunInfo
	steps []kagzi.StepAttempt
	log   []admin.LogEntry
}

func (s situation) says(k *kit.Kit, w explain.Words) string {
	k.T.Helper()
	text, err := explain.Run(k.Ctx, k.Client, s.run, s.steps, s.log, w)
	if err != nil {
		k.T.Fatal(err)
	}
	return strings.Join(text, "\n")
}

// sleeping is a run that sleeps. The first of the waits ends at a time.
func sleeping(on string, steps ...kagzi.StepAttempt) situation {
	var all waits.List
	for text := range strings.SplitSeq(on, "; ") {
		all = append(all, waits.Parse(text))
	}
	all[0].Until = later
	return sleepingOn(all, steps...)
}

func sleepingOn(on waits.List, steps ...kagzi.StepAttempt) situation {
	return situation{run: kagzi.RunInfo{
		ID: "01987654-0000-7000-8000-000000000000", Workflow: "checkout", Queue: "default",
		Status: kagzi.StatusSleeping, WaitingOn: on, AvailableAt: later,
		Schedule: "daily", Recoveries: 3, Attempts: 2, Kind: "unavailable", Error: "kagzi: no answer\nagain",
	}, steps: steps}
}

func TestWaits(t *testing.T) {
	k := kit.New(t)
	failed := kagzi.StepAttempt{
		Step: "a/charge", Type: "FUNCTION", Attempt: 4, Status: kagzi.StatusFailed,
		Kind: "unavailable", Error: "card\nservice",
	}
	for on, c := range map[string]struct {
		s    situation
		want string
	}{
		"timer": {sleeping("timer cooling-off"), `It sleeps in "cooling-off" until 2026-10-01T10:00:00Z.`},
		"two timers": {sleepingOn(waits.List{
			{Kind: waits.Timer, Name: "x", Until: later}, {Kind: waits.Timer, Name: "nap", Until: later.Add(time.Hour)},
		}), "It sleeps in \"x\" until 2026-10-01T10:00:00Z.\nIt " +
			"sleeps in \"nap\" until 2026-10-01T11:00:00Z."},
		"no time": {sleeping("timer x; timer nap"), "It sleeps in \"x\" until 2026-10-01T10:00:00Z.\nIt sleeps in " +
			"\"nap\"."},
		"timeout": {
			sleeping("timeout ship"),
			`The timeout of its branches "ship" comes 2026-10-01T10:00:00Z, unless they end before.`,
		},
		"compensation": {sleeping("compensation flight"), "It has failed, was cancelled or rolls back, and its " +
			"compensation flight is under way."},
		"refused start": {
			sleepingOn(waits.List{{Kind: waits.Compensation, Name: "flight", Refused: "start"}}, kagzi.StepAttempt{
				Step: "flight#compensation", Type: "COMPENSATION",
				Error: "poison\nP0001",
			}),
			"its compensation flight does not go on.\nThe database refuses its start: poison; P0001. It is tried " +
				"again 2026-10-01T10:00:00Z: remove the cause.",
		},
		"refused end": {sleepingOn(waits.List{{Kind: waits.Compensation, Refused: "end"}}), "The " +
			"database refuses its end. It is tried again " +
			"2026-10-01T10:00:00Z: remove the cause."},
		"children": {sleeping("children"), "waits for its children to end before its compensations run."},
		"retry step": {
			sleeping("retry charge", failed),
			`Attempt 4 of step "charge" failed with unavailable: card; service. The next one is due ` +
				`2026-10-01T10:00:00Z.`,
		},
		"retry lost": {sleeping("retry charge"), `Step "charge" failed. Its next attempt is due 2026-10-01T10:00:00Z.`},
		"retry run": {sleeping("retry"), "Its attempt 2 failed with unavailable: no answer; again. The next one is " +
			"due 2026-10-01T10:00:00Z."},
		"previous": {sleeping("previous run"), "It waits until the previous run of its schedule daily has ended: " +
			"<previous daily>."},
		"key": {sleepingOn(waits.List{{Kind: waits.Key, Name: "tenant-7", Count: 2, Limit: 2}}), "It " +
			"is due, and waits for a slot: key tenant-7 (2 of " +
			"2 running). <limits> show the limits."},
		"group": {sleepingOn(waits.List{{Kind: waits.Group, Name: "mail", Count: 1, Limit: 1}}), "waits " +
			"for a slot: group mail (1 of 1 running)."},
		"queue": {sleepingOn(waits.List{{Kind: waits.Queue, Name: "shop", Count: 50, Limit: 50}}), "waits " +
			"for a slot: queue shop (50 of 50 running)."},
		"rate": {sleepingOn(waits.List{{Kind: waits.QueueRate, Name: "shop"}}), "It is due, and " +
			"the rate of queue shop lets no further run " +
			"start now. <limits> show the limits."},
		"worker": {sleeping("worker"), "Its worker drained or lost the database, and gave it back.\nIt is due " +
			"2026-10-01T10:00:00Z.\nNo worker of queue default is live: start one."},
		"recovery": {sleeping("recovery"), "It was under way when 3 workers died, so it may be what kills them: it " +
			"is tried after growing pauses, beside few others like it, and quarantined in the end.\nIts next try " +
			"comes 2026-10-01T10:00:00Z."},
		"history": {sleeping("history"), "Its history could not be read. A worker tries again 2026-10-01T10:00:00Z."},
		"more": {
			sleepingOn(waits.List{waits.Parse("timer x"), waits.Parse("signal y"), {Kind: waits.More, Count: 4}}),
			"It waits for 4 more.",
		},
		"newer": {sleeping("moon full"), "It waits for moon full."},
		"child gone": {
			sleepingOn(waits.List{{Kind: waits.Child, Name: "ship", Count: 3}}),
			`It waits for its child "ship": <children> lists the children.`,
		},
		"limit unset": {sleeping("limit openai"), "A step of it waits for the limit \"openai\".\nThat limit " +
			"was neither declared nor set, so no step of it begins: declare it"},
		"stranded": {sleeping("timer nap"), "until 2026-10-01T10:00:00Z.\nNo worker of queue default is live: start " +
			"one. It does not go on without."},
		"delay": {sleepingOn(nil), "It is due 2026-10-01T10:00:00Z."},
	} {
		t.Run(on, func(t *testing.T) {
			if on == "more" { // its signal is asked for the run's messages
				c.s.run.ID = kit.Begin(k, checkout, "x").ID()
			}
			if text := c.s.says(k, words); !strings.Contains(text, c.want) {
				t.Errorf("it says\n%s\nand not\n%s", text, c.want)
			}
			if text := c.s.says(k, explain.Words{}); strings.Contains(text, "<") || strings.Contains(text, ": .") ||
				strings.Contains(text, "  ") {
				t.Errorf("without advice it says\n%s", text)
			}
		})
	}
}

func TestWaitsForASignal(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, checkout, "x", kagzi.ID("one"))
	k.Signal(run.ID(), kagzi.DefineSignal[bool]("aproved").With(true))
	s := sleeping("signal approved")
	s.run.ID = run.ID()
	text := s.says(k, words)
	for _, want := range []string{
		`It waits for a message of the signal "approved" until 2026-10-01T10:00:00Z: <signal approved> sends one.`,
		`unread message of another name, "aproved", from 20`, "misspelt?",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
}

func TestWaitsForAChild(t *testing.T) {
	k := kit.New(t)
	child := kit.Begin(k, checkout, "x")
	s := sleeping("child ship", kagzi.StepAttempt{Step: "a/ship", Type: "CHILD_WORKFLOW", Child: child.ID()})
	want := `It waits for its child "ship", run ` + string(child.ID()) + " of checkout, which is PENDING: <child " +
		string(child.ID()) + "> says more."
	if text := s.says(k, words); !strings.Contains(text, want) {
		t.Errorf("%s\nlacks %s", text, want)
	}
	k.Cancel(child)
	if text := s.says(k, words); !strings.Contains(text, "which is CANCELLED, cancelled") {
		t.Error(text)
	}
}

func TestWaitsForALimit(t *testing.T) {
	k := kit.New(t)
	if err := admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{
		Name: "openai", MaxRunning: 3,
		Rate: admin.Rate{Starts: 50, Per: time.Second, Burst: 5},
	}); err != nil {
		t.Fatal(err)
	}
	if text := sleeping("limit openai").says(k, words); !strings.Contains(text, "Waiting for it: 0 steps. "+
		"Slots in use: 0. It allows 50/s burst 5, at most 3 at once.") {
		t.Error(text)
	}
}

func TestPaused(t *testing.T) {
	k := kit.New(t)
	for _, target := range []admin.Target{
		{Queue: "default"},
		{Queue: "other"},
		{Workflow: "checkout"},
		{Queue: "default", Key: "k"},
		{Group: "g"},
	} {
		if err := admin.New(k.Client).Pauses.Set(k.Ctx, target, kagzi.Actor("mira"),
			kagzi.Reason("the provider is down")); err != nil {
			t.Fatal(err)
		}
	}
	text := sleepingOn(waits.List{{Kind: waits.PauseOfQueue, Name: "default"}}).says(k, words)
	for _, want := range []string{
		"It is held up by the pause of queue default.", "Paused: queue default, 20",
		` by mira ("the provider is down"): <unpause default> ends that.`, "Paused: workflow checkout",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	if strings.Contains(text, "queue other") || strings.Contains(text, "key k") || strings.Contains(text, "group g") {
		t.Errorf("%s\nnames pauses of other runs", text)
	}
	own := sleeping("pause")
	own.run.PausedAt, own.log = earlier, []admin.LogEntry{
		{Event: "PAUSED", Actor: "ada", Reason: "old"},
		{Event: "PAUSED", Actor: "mira", Reason: "audit"},
	}
	if text := own.says(k, words); !strings.Contains(text,
		`It was paused 2026-10-01T07:00:00Z by mira ("audit"): <unpause-run> lets it go on.`) {
		t.Error(text)
	}
	own.run.WaitingOn = sleeping("timer nap").run.WaitingOn
	const without = "No worker of queue default is live: start one. It does not go on without."
	if text, want := own.says(k, words), "It sleeps in \"nap\" until 2026-10-01T10:00:00Z.\nIt is also paused since "+
		"2026-10-01T07:00:00Z by mira (\"audit\"): it does not go on before <unpause-run>."; !strings.HasPrefix(text,
		"It sleeps") || strings.ReplaceAll(text, without+"\n", "") != want {
		t.Errorf("a paused run that sleeps: %s", text)
	}
	if text := own.says(k, explain.Words{}); !strings.HasSuffix(text,
		`It is also paused since 2026-10-01T07:00:00Z by mira ("audit").`) {
		t.Errorf("without advice: %s", text)
	}
}

func TestUnclaimed(t *testing.T) {
	k := kit.New(t)
	due := sleepingOn(nil)
	due.run.Status, due.run.AvailableAt, due.run.DeadlineAt = kagzi.StatusPending, earlier, later
	has := func(want string) {
		t.Helper()
		if text := due.says(k, words); !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	has("It has been due since 2026-10-01T07:00:00Z, and no worker has taken it.\nNo worker of queue default is " +
		"live: start one.\nIts timeout ends it 2026-10-01T10:00:00Z.")
	other := kagzi.Define[string, string]("other")
	w := kit.NewWorker(t, k.Client, kit.Unmonitored)
	kagzi.Handle(w, other, func(kagzi.Context, string) (string, error) { return "", nil }, kagzi.Version(2))
	kit.StartWorker(t, w)
	kit.ResultOf(k, kit.Begin(k, other, "x")) // the worker is there
	has("No live worker of queue default has a handler for checkout: <workers default> shows what they have.")
	due.run.Workflow, due.run.Version = "other", 7
	has("No live worker of queue default has a handler for version 7 of other: start one with it, or <workers " +
		"default> shows what they have.")
	due.run.WaitingOn = sleeping("timer nap").run.WaitingOn
	has("It sleeps in \"nap\" until 2026-10-01T10:00:00Z.\nNo live worker of queue default has a handler for version " +
		"7 of other: start one with it, or <workers default> shows what they have. It does not go on without.")
	due.run.Version = 2
	if text := due.says(k, words); strings.Contains(text, "worker") {
		t.Errorf("the run has a worker, and it says %s", text)
	}
	due.run.WaitingOn = nil
	k.Exec(`UPDATE kagzi.workers SET active_count = max_concurrent, report_number = report_number + 1000000`)
	has("All workers that have its code are busy")
	k.Exec(`UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 day', report_number = report_number + 1000000`)
	has("No worker of queue default is live: start one.")
}

func TestRunning(t *testing.T) {
	k := kit.New(t)
	gate := make(chan struct{})
	kit.Serve(k, checkout, func(kagzi.Context, string) (string, error) { <-gate; return "", nil })
	t.Cleanup(func() { close(gate) })
	s := situation{run: k.WaitStatus(kit.Begin(k, checkout, "x"), kagzi.StatusRunning)}
	worker := s.run.Worker
	s.run.CancelRequestedAt, s.run.WaitingOn = earlier, waits.List{{Kind: waits.Cancel, Name: "charge"}}
	s.run.Hung = []kagzi.HungCode{
		{Step: "charge", Cause: "step timed out after 30s", Since: earlier, Worker: worker},
		{Branch: "b", Since: earlier, Worker: worker},
		{Since: earlier, Worker: worker},
	}
	s.steps = []kagzi.StepAttempt{{
		Step: "pay", Type: "FUNCTION", Attempt: 2, Status: kagzi.StatusRunning,
		StartedAt: earlier,
	}}
	s.log = []admin.LogEntry{{Event: "CANCELLED", Actor: "ada"}}
	has := func(want ...string) {
		t.Helper()
		text := s.says(k, words)
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("%s\nlacks %s", text, want)
			}
		}
	}
	has("It is executed by worker "+worker+" (process ", "It was cancelled 2026-10-01T07:00:00Z by ada, and ends "+
		"once its code has returned: it waits on cancel (step charge under way).",
		`The function of step "charge" has hung since 2026-10-01T07:00:00Z, although its context has ended: step `+
			`timed out after 30s.`, `The function of branch "b" has hung`,
		"The workflow function has hung since 2026-10-01T07:00:00Z, and waits for something outside of steps. The "+
			"worker's log has its stack. If it does not return, restart the worker: <drain "+worker+">",
		"Step pay, attempt 2, has run for 1h0m0s.")
	s.run.Hung = append(s.run.Hung, kagzi.HungCode{
		Step: "ship", Since: earlier, Worker: worker,
		Awaits: "01987654-0000-7000-8000-000000000001",
	})
	has(`The function of step "ship" has waited since 2026-10-01T07:00:00Z for the result of run `+
		`01987654-0000-7000-8000-000000000001, and such steps hold all slots of its worker`, "Call it as a child")
	s.run.PausedAt, s.log = earlier, append(s.log, admin.LogEntry{Event: "PAUSED", Actor: "bob"})
	has("It was paused 2026-10-01T07:00:00Z by bob, and stops at its next step, sleep, wait or child: <unpause-run> " +
		"lets it go on.")
	if text := s.says(k, explain.Words{}); !strings.Contains(text, "sleep, wait or child.\n") ||
		!strings.Contains(text, "If it does not return, restart the worker.\n") {
		t.Errorf("without advice: %s", text)
	}
	k.Exec(`UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 day', report_number = report_number + 1000000`)
	s.run.Recoveries = 7
	has("It is not being executed, as far as is known: its worker "+worker+" (process ", " has been silent since 20",
		"no coordinator has noticed. Start a worker. Another one takes over at the latest 20",
		"It was under way when 7 workers died, so it may be what kills them")
	k.Exec(`UPDATE kagzi.workers SET status = 'OFFLINE'`)
	has("It is not being executed: its worker "+worker+" (process ", " died, and last reported 20",
		". Another one takes over at the latest")
	s.run.Worker = "01987654-0000-7000-8000-000000000000"
	has("It is not being executed: its worker 01987654-0000-7000-8000-000000000000 is gone. Another one takes over")
	s.run.AvailableAt = earlier
	has("Another one may have it since 2026-10-01T07:00:00Z, and takes it over when it has a free slot.")
	s.run.Worker = ""
	has("It is being executed.")
}

func TestEnded(t *testing.T) {
	k := kit.New(t)
	run := kagzi.RunInfo{Status: kagzi.StatusCompleted, CreatedAt: earlier, EndedAt: now, DeadlineAt: later}
	for want, change := range map[string]func(*situation){
		"It completed 1h0m0s after it was started.": func(*situation) {},
		"<resume> tries what failed again, and keeps the results of the other steps.": func(s *situation) {
			s.run.Status, s.run.Kind = kagzi.StatusFailed, "panic"
		},
		"It is quarantined: mend the cause first, then <resume>.": func(s *situation) {
			s.run.Status, s.run.Quarantined = kagzi.StatusFailed, true
		},
		"Its compensations have run.\n<restart> starts another run with its input.": func(s *situation) {
			s.run.Status, s.run.Compensated = kagzi.StatusFailed, true
		},
		"It was cancelled by somebody.\nIts compensations have run.\n<restart> starts": func(s *situation) {
			s.run.Status, s.run.Compensated = kagzi.StatusCancelled, true
		},
		"It is being deleted: a coordinator does the rest within about a minute.": func(s *situation) {
			s.run.Status, s.run.Kind, s.run.WaitingOn = kagzi.StatusFailed, "panic", waits.List{{Kind: waits.Deletion}}
		},
		`Its step "charge" still executes in worker w although the run is over: it has hung since ` +
			`2026-10-01T07:00:00Z, and can still have effects. The worker's log has its stack. If it does not ` +
			`return, restart the worker: <drain w>`: func(s *situation) {
			s.run.Hung = []kagzi.HungCode{{Step: "charge", Since: earlier, Worker: "w"}}
		},
		`Its branch "b" still executes`: func(s *situation) {
			s.run.Hung = []kagzi.HungCode{{Branch: "b", Since: earlier, Worker: "w"}}
		},
		"Its workflow function still executes": func(s *situation) {
			s.run.Hung = []kagzi.HungCode{{Since: earlier, Worker: "w"}}
		},
		"It was cancelled by somebody.": func(s *situation) { s.run.Status = kagzi.StatusCancelled },
		"It was cancelled, perhaps with its parent p.": func(s *situation) {
			s.run.Status, s.run.Parent = kagzi.StatusCancelled, "p"
		},
		`It was cancelled by ada: "the customer called \"us\"".`: func(s *situation) {
			s.run.Status, s.log = kagzi.StatusCancelled, []admin.LogEntry{
				{Event: "RESUMED", Actor: "bob"},
				{Event: "TERMINATED", Actor: "ada", Reason: `the customer called "us"`},
			}
		},
	} {
		s := situation{run: run}
		change(&s)
		if text := s.says(k, words); !strings.Contains(text, want) || strings.Contains(text, "timeout") {
			t.Errorf("it says\n%s\nand not\n%s", text, want)
		}
	}
}

func TestTextsAreEscaped(t *testing.T) {
	k := kit.New(t)
	w := explain.Words{Now: words.Now}
	w.Text = func(s string) string { return strings.ReplaceAll(s, "<b>", "&") }
	s := sleeping("timer <b>; timeout <b>; compensation <b>; retry <b>; previous run; limit <b>; key <b>; " +
		"rate of <b>; child <b>; <b>")
	s.run.Schedule = "<b>"
	if text := s.says(k, w); strings.Contains(text, "<b>") {
		t.Errorf("%s\nis not escaped", text)
	}
}
