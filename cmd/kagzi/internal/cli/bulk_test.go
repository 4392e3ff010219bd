package cli_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// A change is what a verb with a filter prints as JSON.
type change struct {
	Verb    string
	DryRun  bool `json:"dry_run"`
	Matched int
	Changed []kagzi.RunID
	New     map[kagzi.RunID]kagzi.RunID
	Skipped map[kagzi.RunID]string
}

func TestBulkShowsAsksAndChanges(t *testing.T) {
	k, s := newShell(t)
	var up atomic.Bool
	serveCheckout(k, func() bool { return !up.Load() })
	for i := range 30 {
		run := kit.Begin(k, checkout, i, kagzi.ID(fmt.Sprintf("order-%d", i)))
		_, _ = run.Result(k.Ctx)
	}
	dry := s.run("runs resume --workflow checkout --dry-run").ok().prints("WOULD", "order-29", "order-1",
		"15 runs would be resumed.").omits("order-28")
	if strings.Contains(dry.out, "more") {
		t.Errorf("it shows only some of 15 runs:\n%s", dry.out)
	}
	plan := jsonOf[change](s.run("runs resume --workflow checkout --dry-run --json").ok())
	if !plan.DryRun || plan.Matched != 15 || len(plan.Changed) != 15 || plan.Verb != "resume" {
		t.Errorf("the plan is %+v", plan)
	}
	failed := func() int { return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'FAILED'`) }
	s.run("runs resume --workflow checkout").exits(2).says("--yes to resume them")
	s.terminal, s.in = 120, "n\n"
	s.run("runs resume --workflow checkout").ok().says("Resume 15 runs? [y/N]", "Nothing was changed.")
	s.in = "" // the end of the input is no yes
	s.run("runs resume --workflow checkout").ok().says("Nothing was changed.")
	if n := failed(); n != 15 {
		t.Fatalf("%d runs are failed, want all 15", n)
	}
	up.Store(true)
	s.in = "y\n"
	s.run("runs resume --workflow checkout --reason back").ok().prints("15 runs resumed.").says("resuming ━")
	for i := range 15 {
		k.WaitStatus(kagzi.ID(fmt.Sprintf("order-%d", 2*i+1)), kagzi.StatusCompleted)
	}
	s.run("runs log order-1").ok().prints("RESUMED", "back")
	s.run("runs resume --workflow checkout --yes").ok().says("No run matches.")
}

func TestBulkOfMoreRunsThanItShows(t *testing.T) {
	k, s := newShell(t)
	kit.StartRuns(t, k.Client, approveInts, 45)
	s.run("runs cancel --workflow approve --dry-run").ok().prints("… and 25 more", "45 runs would be cancelled.")
	out := jsonOf[change](s.run("runs cancel --workflow approve --limit 10 --yes --json").ok())
	if out.DryRun || len(out.Changed) != 10 {
		t.Errorf("it is %+v", out)
	}
	s.run("runs terminate --status pending --yes --reason cleanup").ok().prints("35 runs terminated.")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`); n != 45 {
		t.Errorf("%d runs are cancelled, want 45", n)
	}
	out = jsonOf[change](s.run("runs restart --status cancelled --limit 3 --yes --json").ok())
	if len(out.New) != 3 {
		t.Errorf("it is %+v", out)
	}
}

var approveInts = kagzi.Define[int, int]("approve")

func TestBulkCountsWhatItSkips(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	for range 2 { // two failed runs have one ID: only the newer one can be active
		run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
		kit.FailureOf(k, run, kagzi.StatusFailed)
	}
	s.terminal = 60
	for line := range strings.Lines(s.run("runs resume --status failed --dry-run").ok().out) {
		if strings.Contains(line, "would be resumed") && len(line) > 61 {
			t.Errorf("the terminal breaks %q", line)
		}
	}
	s.terminal = 0
	s.run("runs resume --status failed --dry-run").ok().prints("skip", "1 run would be resumed, skipped 1 (")
	out := jsonOf[change](s.run("runs resume --status failed --yes --json").ok())
	if len(out.Changed) != 1 || len(out.Skipped) != 1 {
		t.Errorf("it is %+v", out)
	}
}

func TestVerbsOfOneRun(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	s.run("runs signal order-1 approved").exits(1).says("run is over, so it reads no message: kagzi runs restart " +
		"starts another\n")
	s.run("runs update order-1 --set-queue slow").exits(1).says("run is over: kagzi runs restart starts another run " +
		"like it\n")
	made := strings.Fields(s.run("runs restart order-1 --new-id order-1b --input 2").ok().
		prints("restarted order-1 as run ").out)
	again := kagzi.RunID(made[len(made)-1])
	if info := k.WaitStatus(again, kagzi.StatusCompleted); info.ExternalID != "order-1b" || string(info.Input) != "2" {
		t.Errorf("the restarted run is %+v", info)
	}
	s.run("runs resume order-1b").exits(1).says("the run completed")
	s.run("runs fork order-1b --step charge").ok().prints("forked order-1b as run ")
	s.run("runs fork order-1 --step nope").exits(3)
	s.run("runs get order-1").ok().prints("RESTARTED", string(again))
	s.run("runs start approve --id order-2 --queue elsewhere").ok()
	s.run("runs delete order-2").exits(1).says("the run is not over: kagzi runs cancel ends it\n")
	s.run("runs restart order-2").exits(1).says("run is not over: kagzi runs wait waits for its end, kagzi runs " +
		"cancel ends it\n")
	s.run("runs terminate order-2 --reason test").ok().prints("terminated order-2")
	s.run("runs resume order-2").ok()
	s.run("runs cancel nope").exits(3)
}

// A change as one run's verb prints it.
type stopped struct {
	Verb    string
	Run     string
	Status  kagzi.Status
	Already bool
}

func TestCancelSaysWhatWasTheCase(t *testing.T) {
	k, s := newShell(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	refund := kagzi.Define[int, int]("refund")
	kit.Serve(k, refund, func(kagzi.Context, int) (int, error) { return 0, nil })
	kit.Serve(k, checkout, func(ctx kagzi.Context, _ int) (string, error) {
		kagzi.Compensate(ctx, "charge", refund.With(1))
		return "shipped", kagzi.Do(ctx, "ship", func(context.Context) error {
			close(begun)
			await.Opened(t, goOn)
			return nil
		})
	})
	run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
	await.Receive(t, begun)
	s.run("runs cancel order-1 --actor ada --reason late").ok().prints("order-1 is being cancelled",
		"kagzi runs terminate order-1 ends it at once")
	s.run("runs cancel order-1 --actor bob").ok().prints("order-1 was being cancelled already, since a request ",
		`by ada ("late")`).omits("cancelled order-1")
	if c := jsonOf[stopped](s.run("runs cancel order-1 --json").ok()); !c.Already || c.Status.Ended() {
		t.Errorf("a cancel of a run that is being cancelled prints %+v", c)
	}
	close(goOn)
	_, _ = run.Result(k.Ctx)
	s.run("runs cancel order-1").ok().prints("order-1 was cancelled already", "nothing was changed")
	s.run("runs terminate order-1").ok().prints("order-1 was cancelled already", "nothing was changed")
	if c := jsonOf[stopped](s.run("runs cancel order-1 --json").ok()); !c.Already || c.Status != kagzi.StatusCancelled {
		t.Errorf("a cancel of a cancelled run prints %+v", c)
	}

	kit.Begin(k, approve, 1, kagzi.ID("order-2"))
	if c := jsonOf[stopped](s.run("runs cancel order-2 --json").ok()); c.Already || c.Status != kagzi.StatusCancelled {
		t.Errorf("the first cancel prints %+v", c)
	}
	kit.Begin(k, approve, 1, kagzi.ID("order-3"))
	s.run("runs cancel order-3").ok().prints("cancelled order-3")
}

func TestStopOfARunThatHasEnded(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	kit.ResultOf(k, kit.Begin(k, checkout, 2, kagzi.ID("order-2")))
	for _, verb := range []string{"cancel", "terminate"} {
		r := s.run("runs " + verb + " order-2").exits(1).says("cannot " + verb + " order-2: the run has ended: " +
			"COMPLETED")
		if strings.Contains(r.err, "restart") {
			t.Errorf("it says %q", r.err)
		}
	}
}

func TestDeleteTakesChildrenWithTheirParents(t *testing.T) {
	k, s := newShell(t)
	child := kagzi.Define[int, int]("child")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(kagzi.Context, int) (int, error) { return 0, nil })
	kagzi.Handle(w, checkout, func(ctx kagzi.Context, n int) (string, error) {
		_, err := kagzi.RunChild(ctx, "ship", child, n)
		return "", err
	})
	kit.StartWorker(t, w)
	for i := range 4 {
		kit.ResultOf(k, kit.Begin(k, checkout, i, kagzi.ID(fmt.Sprintf("order-%d", i))))
	}
	s.run("runs delete --workflow child --dry-run").ok().prints("skip", "0 runs would be deleted")
	out := jsonOf[change](s.run("runs delete --since 1h --yes --json --reason cleanup --actor ada").ok())
	if len(out.Changed) != 8 || len(out.Skipped) != 0 {
		t.Errorf("it is %+v", out)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("%d runs are left", n)
	}
	s.run("runs log order-1").ok().prints("DELETED", "ada", "cleanup", "workflow checkout")
	s.run("runs delete order-1").exits(3)
	s.run("runs get order-1").exits(3).says("it was deleted 20",
		`by ada ("cleanup"): kagzi runs log order-1 shows what it was`+"\n")
	s.run("runs get order-nine").exits(3).says("kagzi runs list shows the runs")
}

func TestUpdateOfWhatWaits(t *testing.T) {
	k, s := newShell(t)
	kit.Begin(k, approve, 1, kagzi.ID("order-1"))
	kit.Begin(k, approve, 2, kagzi.ID("order-2"))
	s.run("runs update order-1 --set-queue slow --set-priority 1 --set-delay 2h --set-version 3 --set-metadata " +
		"tenant=acme --actor ada --reason large").ok().prints("updated order-1")
	info := k.InfoOf(kagzi.ID("order-1"))
	if info.Queue != "slow" || info.Priority != 1 || info.Version != 3 || info.Metadata["tenant"] != "acme" ||
		info.AvailableAt.Before(k.Now().Add(time.Hour)) {
		t.Errorf("the run is %+v", info)
	}
	s.run("runs log order-1").ok().prints("UPDATED", "ada", "large", "queue default → slow", "priority 3 → 1")
	s.run("runs update --workflow approve --set-version default --dry-run").ok().
		prints("1 run would be updated, skipped 1 (")
	s.run("runs update order-1 --set-queue slow").ok().prints("order-1 was so already: nothing was changed")
	s.run("runs update --workflow approve --set-queue slow --dry-run").ok().prints("1 run would be updated, skipped " +
		"1 (the run has these values already).")
	s.run("runs update --workflow approve --set-metadata tenant=acme --set-queue slow --yes").ok().
		prints("1 run updated, skipped 1 (the run has these values already).")
	s.run("runs update --workflow approve --set-version default --yes").ok().prints("1 run updated, skipped 1 (")
	s.run("runs cancel order-1").ok()
	s.run("runs update order-1 --set-queue slow").exits(1)
}

// With --dry-run a verb for one run says what it would do, or why it could not, and changes nothing.
func TestDryRunOfOneRun(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, func() bool { return true })
	kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
	k.WaitStatus(kagzi.ID("order-1"), kagzi.StatusFailed)
	waits := kit.Begin(k, kagzi.Define[int, int]("nobody-has-it"), 1, kagzi.ID("waits")).ID()
	before := k.Count(`SELECT count(*) FROM kagzi.run_events`)
	for line, want := range map[string]string{
		"cancel waits":                               "waits would be cancelled: nothing was changed",
		"terminate waits --reason x":                 "waits would be terminated: nothing was changed",
		"update waits --set-queue slow":              "waits would be updated: nothing was changed",
		"update waits --set-queue default":           "waits was so already: nothing would be changed",
		"unpause waits":                              "waits was so already: nothing would be changed",
		"resume order-1":                             "order-1 would be resumed: nothing was changed",
		"restart order-1 --input 3 --new-id another": "order-1 would be restarted: nothing was changed",
		"delete order-1":                             "order-1 would be deleted: nothing was changed",
	} {
		s.run("runs " + line + " --dry-run").ok().prints(want)
	}
	for line, want := range map[string]string{
		"cancel order-1": "over", "resume waits": "not over",
		"restart waits": "not over", "delete waits": "not over",
	} {
		s.run("runs " + line + " --dry-run").exits(1).says(want)
	}
	s.run("runs cancel no-such-run --dry-run").exits(3)
	type one struct {
		Verb, Run, Status string
		DryRun            bool `json:"dry_run"`
	}
	if got := jsonOf[one](s.run("runs cancel waits --dry-run --json").ok()); got != (one{
		"cancel", "waits",
		"PENDING", true,
	}) {
		t.Errorf("%+v", got)
	}
	if info := k.InfoOf(waits); info.Status != kagzi.StatusPending || info.Queue != "default" {
		t.Errorf("%+v", info)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.run_events`); n != before {
		t.Errorf("%d events, before %d", n, before)
	}
	s.run("runs cancel waits").ok()
	s.run("runs cancel waits --dry-run").ok().prints("waits was cancelled already, ", ": nothing would be changed")
}

// onRead is an input that does something before it gives its answer.
type onRead struct {
	do     func()
	answer *strings.Reader
}

func (r *onRead) Read(p []byte) (int, error) {
	if r.do != nil {
		r.do()
		r.do = nil
	}
	return r.answer.Read(p)
}

func TestBulkChangesOnlyWhatItHasShown(t *testing.T) {
	k, s := newShell(t)
	shown := kit.Begin(k, approve, 1)
	var late *kagzi.Run[string]
	s.terminal = 100
	in := &onRead{func() { late = kit.Begin(k, approve, 2) }, strings.NewReader("yes\n")}
	var out, stderr strings.Builder
	if code := cli.Run(k.Ctx, []string{"runs", "cancel", "--workflow", "approve"},
		s.world(in, &out, &stderr)); code != 0 {
		t.Fatalf("it exits with %d: %s%s", code, out.String(), stderr.String())
	}
	k.WaitStatus(shown.ID(), kagzi.StatusCancelled)
	if info := k.InfoOf(late.ID()); info.Status != kagzi.StatusPending {
		t.Errorf("a run that came after the question is %s", info.Status)
	}
}

// onWrite is an output that does something once it has got a text.
type onWrite struct {
	lockedBuffer
	text string
	do   func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	n, err := w.lockedBuffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.do()
	}
	return n, err
}

func TestCtrlCStopsABulkBetweenRuns(t *testing.T) {
	k, s := newShell(t)
	kit.StartRuns(t, k.Client, approveInts, 300)
	s.terminal = 100
	ctx, cancel := context.WithCancel(k.Ctx)
	var out strings.Builder
	stderr := &onWrite{text: "cancelling", do: cancel}
	code := cli.Run(ctx, strings.Fields("runs cancel --workflow approve --yes"),
		s.world(strings.NewReader(""), &out, stderr))
	if code != 130 || !strings.Contains(stderr.String(), "interrupted") || !strings.Contains(out.String(),
		"of 300 runs cancelled. The others are as they were: run the command again for them.") {
		t.Errorf("it exits with %d: %s%s", code, out.String(), stderr.String())
	}
	cancelled := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`)
	if !strings.HasPrefix(out.String(), fmt.Sprintf("%d of 300 runs cancelled", cancelled)) {
		t.Errorf("%d runs are cancelled, and it says %s", cancelled, out.String())
	}
	s.terminal = 0
	s.run("runs cancel --workflow approve --yes").ok().prints(fmt.Sprintf("%d runs cancelled.", 300-cancelled))
}
