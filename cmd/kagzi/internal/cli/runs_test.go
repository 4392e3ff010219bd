package cli_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

var (
	checkout = kagzi.Define[int, string]("checkout", kit.NoRetry)
	approve  = kagzi.Define[int, string]("approve")
	approved = kagzi.DefineSignal[string]("approved")
)

// serveCheckout executes runs of checkout: those with an odd input fail at the step charge while down says so.
func serveCheckout(k *kit.Kit, down func() bool) {
	k.T.Helper()
	kit.Serve(k, checkout, func(ctx kagzi.Context, n int) (string, error) {
		err := kagzi.Do(ctx, "reserve", func(context.Context) error { return nil })
		if err == nil {
			err = kagzi.Do(ctx, "charge", func(context.Context) error {
				if n%2 == 1 && down() {
					return kagzi.Permanent(fmt.Errorf("%w: the provider answers 503", kind.Unavailable))
				}
				return nil
			})
		}
		return "paid", err
	})
}

func always() bool { return true }

func TestListOfRuns(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	for i := range 6 {
		run := kit.Begin(k, checkout, i, kagzi.ID(fmt.Sprintf("order-%d", i)),
			kagzi.Metadata{"tenant": fmt.Sprintf("t%d", i%3)})
		_, _ = run.Result(k.Ctx)
	}
	s.run("runs list").ok().prints("RUN", "order-0", "order-5", "COMPLETED", "unavailable: step \"charge\"")
	s.run("runs list --status failed").ok().prints("order-1", "order-3", "order-5").omits("order-0", "order-2")
	s.run("runs list --status completed,failed --metadata tenant=t1").ok().prints("order-1", "order-4").omits("order-2")
	s.run("runs list --id order-4").ok().prints("order-4").omits("order-3")
	s.run("runs list --since 1h --until 30m").ok().says("No run matches.").omits("order")
	s.run("runs list --workflow other --json").ok().prints("[]")
	s.run("runs list --limit 2").ok().prints("order-5", "order-4").omits("order-3").says("--all lists all of them")
	all := jsonOf[[]kagzi.RunInfo](s.run("runs list --all --json").ok())
	if len(all) != 6 || all[0].ExternalID != "order-5" || all[0].Kind != kind.Unavailable {
		t.Errorf("the JSON is of %d runs: %+v", len(all), all)
	}
	next := jsonOf[[]kagzi.RunInfo](s.run("runs list --json --limit 2 --after", string(all[1].ID)).ok())
	if len(next) != 2 || next[0].ID != all[2].ID || next[1].ID != all[3].ID {
		t.Errorf("the next page is %v", next)
	}
}

func TestNarrowTerminalsShowWholeIDs(t *testing.T) {
	k, s := newShell(t)
	run := kit.Begin(k, approve, 1, kagzi.ID("order-with-a-very-long-identifier-that-does-not-fit-a-terminal"))
	s.terminal = 80
	r := s.run("runs list").ok().prints(string(run.ID()), "PENDING", "…", "\x1b[")
	for line := range strings.Lines(r.out) {
		if n := len([]rune(strings.NewReplacer("\x1b[2m", "", "\x1b[m", "", "\x1b[1m", "").
			Replace(strings.TrimSpace(line)))); n > 80 {
			t.Errorf("the line has %d columns: %q", n, line)
		}
	}
	s.env["NO_COLOR"] = "1"
	s.run("runs list").ok().omits("\x1b[")
	delete(s.env, "NO_COLOR")
	s.run("runs list --no-color").ok().omits("\x1b[")
	s.terminal = 0
	s.run("runs list").ok().omits("\x1b[", "…").
		prints("order-with-a-very-long-identifier-that-does-not-fit-a-terminal")
}

func TestPipesGetAllOfATextAtTheEndOfALine(t *testing.T) {
	k, s := newShell(t)
	long := strings.Repeat("a provider that is down for long ", 20)
	kit.Serve(k, checkout, func(kagzi.Context, int) (string, error) {
		return "", kagzi.Permanent(errors.New(long + "end"))
	})
	run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"), kagzi.DefineSignal[string]("note").With(long+"end"))
	_, _ = run.Result(k.Ctx)
	kit.Begin(k, approve, 1, kagzi.ID("order-2"))
	for line := range strings.Lines(s.run("runs list").ok().prints(long + "end").out) {
		if strings.HasSuffix(line, " \n") || strings.Contains(line, "order-2") && len(line) > 200 {
			t.Errorf("a line is padded: %q", line)
		}
	}
	s.run("runs messages order-1").ok().prints(long + "end")
}

// fullPipe is a pipe whose reader has left, as head does.
type fullPipe struct{}

func (fullPipe) Write([]byte) (int, error) { return 0, &writeError{} }

type writeError struct{}

func (*writeError) Error() string { return "write |1: broken pipe" }
func (*writeError) Unwrap() error { return syscall.EPIPE }

func TestAClosedPipeIsNoError(t *testing.T) {
	k, s := newShell(t)
	kit.Begin(k, approve, 1)
	for _, command := range []string{"runs list", "runs list --json", "migrate sql", "health", "version --json"} {
		var stderr strings.Builder
		if code := runWith(s, command, fullPipe{}, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("kagzi %s exits with %d and says %q", command, code, stderr.String())
		}
	}
}

func TestGetExplainsAWait(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) {
		return kagzi.WaitSignal(ctx, approved.For("call-7"), kagzi.Timeout(time.Hour))
	})
	misspelt := kagzi.DefineSignal[int]("aproved").With(1)
	run := kit.Begin(k, approve, 1, kagzi.ID("order-42"), kagzi.Metadata{"tenant": "acme"}, misspelt)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	s.run("runs get order-42").ok().prints(
		string(run.ID()), "tenant=acme", `It waits for a message of the signal "approved/call-7" until`,
		"kagzi runs signal order-42 approved --for call-7 --payload JSON",
		`It has an unread message of another name, "aproved"`, "SIGNAL",
	)
	report := jsonOf[struct {
		Run   kagzi.RunInfo
		Why   []string
		Steps []kagzi.StepAttempt
		Log   []admin.LogEntry
	}](s.run("runs get --json", string(run.ID())).ok())
	if report.Run.ID != run.ID() || len(report.Why) != 2 || len(report.Steps) != 1 {
		t.Errorf("the report is %+v", report)
	}
	s.run("runs messages order-42 --unread").ok().prints("aproved", "unread")
	s.run("runs signal order-42 approved --for call-7 --message-id m1 --payload", `"yes"`).ok().
		prints("sent approved/call-7 to order-42")
	s.run("runs wait order-42").ok().prints(`"yes"`)
	s.run("runs messages order-42").ok().prints("approved/call-7", "m1", "approved:call-7")
	messages := jsonOf[[]admin.MessageInfo](s.run("runs messages order-42 --json").ok())
	if len(messages) != 2 {
		t.Errorf("the messages are %+v", messages)
	}
	s.run("runs get order-42").ok().prints("It completed")
}

func TestGetExplainsOtherWaits(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, kagzi.Define[string, int]("waits"), func(ctx kagzi.Context, what string) (int, error) {
		switch what {
		case "sleep":
			return 0, kagzi.Sleep(ctx, "cooling-off", time.Hour)
		case "child":
			return kagzi.RunChild(ctx, "ship", kagzi.Define[string, int]("waits"), "sleep")
		case "retry":
			return 0, kagzi.Do(ctx, "call", func(context.Context) error { return errors.New("busy line") },
				kagzi.RetryPolicy{Backoff: time.Hour, MaxBackoff: time.Hour})
		case "limit":
			return 0, kagzi.Do(ctx, "call", func(context.Context) error { return nil }, kagzi.Limit("openai"))
		}
		return 0, kagzi.Permanent(errors.New("no such wait"))
	})
	start := func(what string) {
		t.Helper()
		s.run("runs start waits --id "+what+" --input", `"`+what+`"`).ok()
	}
	s.run("limits set openai --rate 1/h").ok()
	s.run(`runs start waits --input "limit" --wait`).ok() // it takes the token of this hour
	for _, what := range []string{"sleep", "child", "retry", "limit"} {
		start(what)
		k.WaitStatus(kagzi.ID(what), kagzi.StatusSleeping)
	}
	s.run("runs get limit").ok().prints(`A step of it waits for the limit "openai".`, "Waiting for it: 1 step. Slots "+
		"in use: 0. It allows 1/h.")
	s.run("runs get sleep").ok().prints(`It sleeps in "cooling-off" until`)
	s.run("runs get child").ok().prints(`It waits for its child "ship", run `, "of waits")
	s.run("runs get retry").ok().prints(`Attempt 1 of step "call" failed with unknown: busy line. The next one is due`)

	s.run("runs start nobody --id lost").ok()
	s.run("runs get lost").ok().prints("No live worker of queue default has a handler for nobody")
	s.run("runs start nobody --id later --delay 2h").ok()
	s.run("runs get later").ok().prints("It is due")
	s.run("runs start elsewhere --id empty --queue empty").ok()
	s.run("runs get empty").ok().prints("No worker of queue empty is live: start one.")

	s.run("pause --queue empty --actor ada --reason", "the provider is down").ok()
	s.run("runs get empty").ok().prints("pause of queue empty", `by ada ("the provider is down")`,
		"kagzi unpause --queue empty ends that")
	s.run("pauses").ok().prints("queue empty", "ada", "the provider is down")
	s.run("unpause --queue empty").ok()
	s.run("unpause --queue empty").exits(3).says("kagzi pauses lists them\n")

	s.run("runs pause lost --actor ada --reason", "a mistake").ok()
	s.run("runs get lost").ok().prints(`by ada ("a mistake")`, "kagzi runs unpause lost lets it go on", "PAUSED")
	s.run("runs pause lost").ok().prints("lost was paused already, since ").omits("paused lost")
	s.run("runs unpause lost").ok()

	s.run("runs cancel sleep --actor ada --reason", "the customer called").ok()
	s.run("runs get sleep").ok().prints(`It was cancelled by ada: "the customer called"`, "CANCELLED")
	s.run("runs log sleep").ok().prints("CANCELLED", "ada", "the customer called")
}

func TestGetExplainsAFailure(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	s.run("runs get order-1").ok().prints("unavailable: ", "kagzi runs resume "+string(run.ID()), "charge", "FAILED",
		"the provider answers 503")
	s.run("runs steps order-1").ok().prints("reserve", "COMPLETED", "charge", "FAILED")
	steps := jsonOf[[]kagzi.StepAttempt](s.run("runs steps order-1 --json").ok())
	if len(steps) != 2 || steps[1].Kind != kind.Unavailable {
		t.Errorf("the steps are %+v", steps)
	}
	s.run("runs wait order-1").exits(1).says("unavailable", "kagzi runs get "+string(run.ID())+" shows its steps")
	if info := jsonOf[kagzi.RunInfo](s.run("runs wait order-1 --json").exits(1)); info.ID != run.ID() {
		t.Errorf("the run is %+v", info)
	}
	s.run("runs get nope").exits(3).says("kagzi runs list shows the runs")
	s.run("runs get 01a21398-552f-7165-b514-9a1ae352ae5c").exits(3)
	s.run("runs get --id 01a21398-552f-7165-b514-9a1ae352ae5c").exits(3)
	kit.Begin(k, checkout, 2, kagzi.ID("01a21398-552f-7165-b514-9a1ae352ae5c"))
	s.run("runs get --id 01a21398-552f-7165-b514-9a1ae352ae5c").ok()
	s.run("replay order-1").ok().prints(string(run.ID()), "kagzi.Version(1)", "worker.Replay(")
}

func TestStartAndWait(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	if out := s.run("runs start checkout --input 2 --wait").ok(); strings.TrimSpace(out.out) != `"paid"` {
		t.Errorf("it prints %q", out.out)
	}
	s.run("runs start checkout --input 1 --wait").exits(1).says("unavailable")
	s.in = "4"
	id := strings.TrimSpace(s.run("runs start checkout --input - --id o4 --queue other --priority 1 --metadata " +
		"tenant=acme --header trace=1 --key k --run-timeout 1h").ok().out)
	info := k.InfoOf(kagzi.RunID(id))
	if info.ExternalID != "o4" || info.Queue != "other" || info.Priority != 1 || info.Metadata["tenant"] != "acme" ||
		info.Headers["trace"] != "1" || info.Key != "k" || info.DeadlineAt.IsZero() || string(info.Input) != "4" {
		t.Errorf("the run is %+v", info)
	}
	s.run("runs start checkout --input - --id o4 --queue other").ok().prints("is active already")
	again := jsonOf[kagzi.Started](s.run("runs start checkout --input - --id o4 --json").ok())
	if !again.Existed || string(again.ID) != id {
		t.Errorf("it is %+v", again)
	}
	s.run("runs start checkout --input 5 --id o4").exits(1).says("o4")
	s.run("runs signal o4 bad/name").exits(2)
}

func TestCountsAndKinds(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, checkout, func(ctx kagzi.Context, n int) (string, error) {
		return "", kagzi.Do(ctx, "charge", func(context.Context) error {
			switch n % 3 {
			case 0:
				return kagzi.Permanent(fmt.Errorf("%w: 503", kind.Unavailable))
			case 1:
				return kagzi.Permanent(fmt.Errorf("%w: card", kind.Kind("declined")))
			}
			return nil
		})
	})
	for i := range 7 {
		run := kit.Begin(k, checkout, i, kagzi.ID(fmt.Sprintf("order-%d", i)))
		_, _ = run.Result(k.Ctx)
	}
	if got := strings.Fields(s.run("runs count --status failed --ended-since 1h --by kind,step").ok().
		out); strings.Join(got, " ") != "RUNS KIND STEP 3 unavailable charge 2 declined charge" {
		t.Errorf("the table is %q", got)
	}
	s.run("runs count").ok().prints("WORKFLOW", "STATUS", "checkout", "COMPLETED")
	counts := jsonOf[[]admin.RunCount](s.run("runs count --json --by ended=1d").ok())
	if len(counts) == 0 || counts[0].Ended.IsZero() {
		t.Errorf("the counts are %+v", counts)
	}
	s.run("runs count --workflow other").ok().says("No run matches.")
	s.run("runs list --kind unavailable").ok().prints("order-0", "order-3", "order-6").omits("order-1")
	s.run("runs list --kind declined --ended-until 1h").ok().says("No run matches.")
	plan := jsonOf[change](s.run("runs resume --kind unavailable --dry-run --json").ok())
	if plan.Matched != 3 {
		t.Errorf("the plan is %+v", plan)
	}
	s.run("runs list --json --limit 1").ok().omits(`"input"`)
	s.run("runs list --json --limit 1 --payloads").ok().prints(`"input":6`)
}

func TestListOfWhatRunsWaitFor(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	run := kit.Begin(k, approve, 1, kagzi.ID("order-1"))
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	s.run("runs list --waiting-on signal").ok().prints("order-1")
	s.run("runs list --waiting-on", "signal approved").ok().prints("order-1")
	s.run("runs list --waiting-on timer").ok().omits("order-1")
}

func TestGetNamesCodeThatHangs(t *testing.T) {
	k, s := newShell(t)
	cfg := kit.RareHeartbeats
	cfg.HungAfter = 20 * time.Millisecond
	goOn := make(chan struct{})
	w := kit.NewWorker(t, k.Client, cfg)
	kagzi.Handle(w, checkout, func(ctx kagzi.Context, _ int) (string, error) {
		return "", kagzi.Do(ctx, "charge", func(context.Context) error {
			<-goOn // it ignores that its context ends
			return nil
		}, kagzi.Timeout(50*time.Millisecond))
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, checkout, 1, kagzi.ID("order-1"))
	await.True(t, "the step hangs", func() bool { return len(k.InfoOf(run.ID()).Hung) == 1 })
	worker := k.InfoOf(run.ID()).Worker
	s.run("runs get order-1").ok().prints("It is executed by worker "+worker,
		`The function of step "charge" has hung since`, "although its context has ended", "kagzi workers drain "+worker)
	// once it has run for a second
	await.True(t, "the step is shown", func() bool {
		return strings.Contains(s.run("runs steps order-1").ok().out, "has hung since")
	})
	s.run("stuck").exits(4).prints("hung", "charge")
	s.run("runs cancel order-1 --actor ada --reason late").ok()
	k.WaitStatus(run.ID(), kagzi.StatusCancelled)
	s.run("runs get order-1").ok().prints(`It was cancelled by ada: "late"`,
		`Its step "charge" still executes in worker `+worker+" although the run is over: it has hung since ",
		"kagzi workers drain "+worker)
	close(goOn)
	await.True(t, "the step has returned", func() bool {
		return !strings.Contains(s.run("runs get order-1").ok().out, "still executes")
	})
}

// A compensation that a completed run did not need is no cancelled step, and one that is registered has taken no time.
func TestStepsOfCompensations(t *testing.T) {
	k, s := newShell(t)
	ask := kagzi.DefineSignal[int]("go-on")
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
		return kagzi.WaitSignal(ctx, ask)
	})
	run := kit.Begin(k, kit.Travel, 1, kagzi.ID("trip"))
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	compensation := func() (line string) {
		for l := range strings.Lines(s.run("runs steps trip").ok().out) {
			if strings.Contains(l, "COMPENSATION") {
				line = strings.Join(strings.Fields(l), " ")
			}
		}
		return line
	}
	if line := compensation(); !strings.Contains(line, "PENDING - ") {
		t.Errorf("registered: %s", line)
	}
	k.Signal(run.ID(), ask.With(1))
	kit.ResultOf(k, run)
	if line := compensation(); !strings.Contains(line, "not needed - ") {
		t.Errorf("of a completed run: %s", line)
	}
	s.run("runs get " + string(run.ID())).ok().prints("not needed").omits("CANCELLED")
}
