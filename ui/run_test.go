package ui

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// wants fails the test for each text that the page lacks.
func wants(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

// lacks fails the test for each text that the page has.
func lacks(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

func TestRunWithoutSteps(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x", kagzi.ID("one"), kagzi.Metadata{"tenant": "acme"}, kagzi.Headers{"trace": "t-1"},
		kagzi.Key("k7"))
	for _, path := range []string{"/runs/" + string(run.ID()), "/runs/one"} {
		wants(t, s.mustGet(path), ">one<", string(run.ID()), "Why it waits", "No worker of queue default is live",
			"No step is recorded yet", "tenant=acme", "trace: t-1", ">k7<",
			"Nobody has changed this run", `"x"`, "data-stream")
	}
}

func TestRunThatIsNotThere(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for _, path := range []string{"/runs/01987654-0000-7000-8000-000000000000", "/runs/nobody"} {
		if r := s.get(path); r.StatusCode != http.StatusNotFound ||
			!strings.Contains(r.body, "No run of this namespace") || !strings.Contains(r.body, `name="q"`) {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	run := kit.Begin(k, echo, "x")
	k.Cancel(run)
	if err := admin.New(k.Client).Runs.Delete(k.Ctx, run, kagzi.Actor("mira"),
		kagzi.Reason("asked to forget")); err != nil {
		t.Fatal(err)
	}
	if r := s.get("/runs/" + string(run.ID())); r.StatusCode != http.StatusNotFound || !strings.Contains(r.body,
		"it was deleted 20") || !strings.Contains(r.body, "by mira (&#34;asked to forget&#34;).") {
		t.Errorf("a deleted run: %s", r.Status)
	}
}

// A compensation that a completed run did not need says so, and has taken no time; nor has one that is only registered.
// While no live worker has the run's version, the page says that too, although the run waits for something else.
func TestCompensationsOfARun(t *testing.T) {
	k := kit.New(t)
	ask := kagzi.DefineSignal[int]("go-on")
	run := kit.Begin(k, kit.Travel, 1)
	stop := kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
		return kagzi.WaitSignal(ctx, ask)
	}, kagzi.Version(3))
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	// another site has no answer that is a moment old
	look := func(path string) string { return newSite(k, Config{}).mustGet(path) }
	took := regexp.MustCompile(`(?s)>compensation</small>.*?data-label="Took">([^<]*)<`)
	path := "/runs/" + string(run.ID())
	page := look(path)
	wants(t, page, "runs if the run fails", "Pending")
	lacks(t, page, "has a handler", "is live")
	if m := took.FindStringSubmatch(page); m == nil || m[1] != "" {
		t.Errorf("a registered compensation has taken %q", m)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	wants(t, look(path), "No worker of queue default is live: start one. It does not go on without.")
	stop = kit.Serve(k, echo, func(_ kagzi.Context, text string) (string, error) { return text, nil })
	kit.ResultOf(k, kit.Begin(k, echo, "the worker is there"))
	wants(t, look(path), "No live worker of queue default has a handler for version 3 of trip: start one with it")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
		return kagzi.WaitSignal(ctx, ask)
	}, kagzi.Version(3))
	k.Signal(run.ID(), ask.With(1))
	kit.ResultOf(k, run)
	page = look(path)
	wants(t, page, ">Not needed<", "compensation, not needed")
	lacks(t, page, ">Cancelled<")
	if m := took.FindStringSubmatch(page); m == nil || m[1] != "" {
		t.Errorf("a compensation that was not needed has taken %q", m)
	}
}

// story is a workflow with branches, a retry, a failure with a stack, a child and a wait.
var story = kagzi.Define[string, string]("story")

func tell(ctx kagzi.Context, text string) (string, error) {
	_, err := kagzi.Step(ctx, "open", func(context.Context) (string, error) { return "secret output " + text, nil },
		kagzi.Input("secret input"))
	if err != nil {
		return "", err
	}
	err = kagzi.Parallel(ctx, "parts", map[string]func(kagzi.Context) error{
		"a": func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "try", func(ctx context.Context) error {
				if kagzi.CurrentStep(ctx).Attempt < 3 {
					return errors.New("no answer\nstack line two")
				}
				return nil
			}, kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond})
		},
		"b": func(ctx kagzi.Context) error { _, err := kagzi.RunChild(ctx, "ship", echo, "child"); return err },
	})
	if err != nil {
		return "", err
	}
	return kagzi.WaitSignal(ctx, kagzi.DefineSignal[string]("approved"))
}

// serveStory starts a run with messages, and serves the workflows. It returns the site once the run waits for its
// signal.
func serveStory(k *kit.Kit, cfg Config, in string, messages ...kagzi.Message) (*site, *kagzi.Run[string]) {
	run := kit.Begin(k, story, in, kagzi.ID("tale"))
	for _, m := range messages {
		k.Signal(run, m)
	}
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, story, tell)
	kagzi.Handle(w, echo, func(_ kagzi.Context, text string) (string, error) { return text, nil })
	kit.StartWorker(k.T, w)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved")
	return newSite(k, cfg), run
}

func TestRunThatWaits(t *testing.T) {
	k := kit.New(t)
	s, run := serveStory(k, Config{Authorize: everybody}, "x", kagzi.DefineSignal[string]("aproved").
		With("hello there"))
	page := s.mustGet("/runs/tale")
	wants(t, page, "It waits for a message of the signal &#34;approved&#34;", "<b>Signal</b> sends one",
		"is one of the names misspelt?", "hello there",
		`id="`+stepID("parts/a/try")+`"`, "2 earlier attempts", "stack line two", `<span class="kind">unknown</span>`,
		"secret input", "secret output x", "1 child", "seg failed", `aria-expanded="true"`,
		`href="/kagzi/runs/`+string(run.ID())+`/signal"`)
	if strings.Contains(page, `style="`) || strings.Contains(page, "<script>") {
		t.Error("the page has inline styles or scripts")
	}
	child := k.ChildOf(run.ID(), "parts/b/ship")
	wants(t, s.mustGet("/runs/"+string(child.ID)), "parent", "/kagzi/runs/"+string(run.ID()), "It completed",
		"This page does not change")
	k.Signal(run, kagzi.DefineSignal[string]("approved").With("yes"))
	kit.ResultOf(k, run)
	s.web.Cache.Expire()
	wants(t, s.mustGet("/runs/tale"), "How it ended", "the run has ended, and never read it", "by approved,",
		"the message came")
}

func TestRunThatWaitsAndIsPaused(t *testing.T) {
	k := kit.New(t)
	s, run := serveStory(k, Config{Authorize: everybody}, "x")
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, run, kagzi.Actor("mira"),
		kagzi.Reason("call <him> first")); err != nil {
		t.Fatal(err)
	}
	wants(t, s.mustGet("/runs/tale"), "It waits for a message of the signal", "It is also paused since ",
		" by mira (&#34;call &lt;him&gt; first&#34;): it does not go on before <b>Unpause</b>.")
	wants(t, s.mustGet("/runs"), "paused; signal approved")
}

func TestRunThatIsOverAndHangs(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	cfg := kit.RareHeartbeats
	cfg.HungAfter = 20 * time.Millisecond
	goOn := make(chan struct{})
	w := kit.NewWorker(t, k.Client, cfg)
	kagzi.Handle(w, echo, func(ctx kagzi.Context, in string) (string, error) {
		return in, kagzi.Do(ctx, "charge", func(context.Context) error {
			<-goOn // it ignores that its context ends
			return nil
		}, kagzi.Timeout(50*time.Millisecond))
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, echo, "x", kagzi.ID("one"))
	await.True(t, "the step hangs", func() bool { return len(k.InfoOf(run.ID()).Hung) == 1 })
	worker := k.InfoOf(run.ID()).Worker
	k.Cancel(run)
	k.WaitStatus(run.ID(), kagzi.StatusCancelled)
	page := s.mustGet("/runs/one")
	wants(t, page, "It was cancelled", "Its step &#34;charge&#34; still executes in worker ",
		"although the run is over: it has hung since ", `drain it on <a href="/kagzi/workers/`+worker+`">its page</a>.`)
	lacks(t, page, ">This page does not change")
	close(goOn)
	await.True(t, "the step has returned", func() bool {
		s.web.Cache.Expire()
		page := s.mustGet("/runs/one")
		return !strings.Contains(page, "still executes") && strings.Contains(page, ">This page does not change")
	})
}

func TestRunIsLiveUntilItEnds(t *testing.T) {
	k := kit.New(t)
	s, run := serveStory(k, Config{}, "x")
	next := s.stream("/runs/tale")
	until(next, func(e sse) bool {
		return strings.Contains(e.data, `id="why"`) && strings.Contains(e.data, "approved")
	})
	k.Signal(run, kagzi.DefineSignal[string]("approved").With("yes"))
	until(next, func(e sse) bool {
		return strings.Contains(e.data, `id="head"`) && strings.Contains(e.data, "Completed")
	})
	until(next, func(e sse) bool { return e.name == "settled" })
}

func TestRunHidesPayloads(t *testing.T) {
	k := kit.New(t)
	s, _ := serveStory(k, Config{HidePayloads: true}, "secret start", kagzi.DefineSignal[string]("other").
		With("secret message"))
	page := s.mustGet("/runs/tale")
	lacks(t, page, "secret", "/raw?")
	wants(t, page, "hidden, ", "no answer")
	for _, of := range []string{
		"of=input", "of=output", "of=input&step=open&attempt=1",
		"of=message&signal=other&message=x",
	} {
		if r := s.get("/runs/tale/raw?" + of); r.StatusCode != http.StatusForbidden ||
			strings.Contains(r.body, "secret") {
			t.Errorf("%s: %s", of, r.Status)
		}
	}
}

func TestRawPayloads(t *testing.T) {
	k := kit.New(t)
	large := strings.Repeat("<b>é", 5_000)
	s, _ := serveStory(k, Config{}, large, kagzi.DefineSignal[string]("other").With(large).WithID("m 1"))
	page := s.mustGet("/runs/tale")
	lacks(t, page, "<b>é")
	page = html.UnescapeString(page)
	for _, q := range []string{
		"of=input", "of=output&step=open&attempt=1", "of=message&message=m+1&signal=other",
		"of=input&step=open&attempt=1",
	} {
		r := s.get("/runs/tale/raw?" + q)
		var text string
		if err := json.Unmarshal([]byte(r.body), &text); err != nil ||
			r.Header.Get("Content-Type") != "application/json" ||
			!strings.HasPrefix(r.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %s, %v, %v", q, r.Status, r.Header, err)
		}
		if !strings.HasPrefix(q, "of=input&") && !strings.HasSuffix(text, large) {
			t.Errorf("%s is %.60q", q, text)
		}
		if values, _ := url.ParseQuery(q); q != "of=input" && !strings.Contains(page, values.Encode()) &&
			values.Get("step") == "" {
			t.Errorf("the page has no link to %s", values.Encode())
		}
	}
	for q, want := range map[string]int{
		"of=output": http.StatusNotFound, "of=x": http.StatusBadRequest,
		"": http.StatusBadRequest, "of=input&step=no&attempt=1": http.StatusNotFound,
		"of=message&message=no": http.StatusNotFound,
	} {
		if r := s.get("/runs/tale/raw?" + q); r.StatusCode != want {
			t.Errorf("%q: %s, not %d", q, r.Status, want)
		}
	}
	run, err := k.Client.Get(k.Ctx, kagzi.ID("tale"))
	if err != nil {
		t.Fatal(err)
	}
	closed := newSite(k, Config{Authorize: func(_ *http.Request, a Action) (string, error) {
		if a == (Action{View, OnRun, string(run.ID), "default"}) {
			return "", errors.New("not yours")
		}
		return "ada", nil
	}})
	for _, path := range []string{"/runs/tale", "/runs/tale/raw?of=input"} {
		if r := closed.get(path); r.StatusCode != http.StatusForbidden || !strings.Contains(r.body, "Not yours") {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

func TestHostileRunIsEscaped(t *testing.T) {
	k := kit.New(t)
	const evil = `"><script>alert(1)</script><img src=x onerror='x'>`
	wf := kagzi.Define[string, string]("wf" + evil)
	kit.Serve(k, wf, func(ctx kagzi.Context, text string) (string, error) {
		if _, err := kagzi.Step(ctx, "fine"+strings.ReplaceAll(evil, "/", "!"), func(context.Context) (string, error) {
			return text, nil
		}); err != nil {
			return "", err
		}
		return "", kagzi.Do(ctx, "step", func(context.Context) error {
			return kagzi.Permanent(errors.New(evil + "\n" + evil))
		})
	})
	run := kit.Begin(k, wf, evil, kagzi.ID(evil), kagzi.Metadata{"a" + evil: evil}, kagzi.Headers{"h": evil})
	k.Signal(run, kagzi.DefineSignal[string]("sig").With(evil))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, run, kagzi.Actor(evil), kagzi.Reason(evil)); err != nil {
		t.Fatal(err)
	}
	s := newSite(k, Config{Authorize: everybody})
	path := "/runs/" + string(run.ID())
	for _, path := range []string{path, path + "?name=" + url.QueryEscape(evil), path + "?state=" +
		url.QueryEscape(evil), path + "?from=" + url.QueryEscape(evil), path + "?open=" + url.QueryEscape(evil)} {
		lacks(t, s.get(path).body, "<script>alert", "<img")
	}
	wants(t, s.mustGet(path), "&lt;script&gt;alert", "Resume", "restarted")
}

// manySteps gives a run 1,000 pages of two steps, one of which failed.
const manySteps = `
	INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
		first_attempt, position, started_at, finished_at, error_kind, error)
	SELECT run_id, namespace_id, 'pages/' || n || '/' || s, 1, CASE WHEN n = 700 AND s = 'store' THEN 'FAILED'
		ELSE 'COMPLETED' END, 'FUNCTION', 1, 1, n,
		created_at + n * interval '1 s', created_at + (n + 1) * interval '1 s', CASE WHEN n = 700 AND s = 'store'
			THEN 'timeout' END, CASE WHEN n = 700 AND s = 'store' THEN 'no page' END
	FROM kagzi.workflow_runs, generate_series(0, 999) n, unnest(ARRAY['fetch', 'store']) s WHERE run_id = $1`

func TestRunWithManySteps(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x", kagzi.ID("crawl"))
	k.Exec(manySteps, string(run.ID()))
	page := s.mustGet("/runs/crawl")
	wants(t, page, "2,000 steps, 1 failed", "open=pages", "steps 1 to 100 of 2,000", `aria-expanded="false"`)
	if len(page) > 300_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	open := s.mustGet("/runs/crawl?open=pages")
	wants(t, open, "rows 1 to 200 of 3,001", "fold=pages", "row=200")
	if n := strings.Count(open, `class="gantt-row"`); n != rowsPerPage || len(open) > 600_000 {
		t.Errorf("%d rows, %d bytes", n, len(open))
	}
	wants(t, s.mustGet("/runs/crawl?open=pages&row=3000&step=1900"), "rows 3,001 to 3,001", "steps 1,901 to 2,000")
	wants(t, s.mustGet("/runs/crawl?state=failed"), "1 of 2,000 steps match", "no page", "pages/<wbr>700/<wbr>store")
	wants(t, s.mustGet("/runs/crawl?name=700/STORE"), "1 of 2,000 steps match")
	wants(t, s.mustGet("/runs/crawl?name=nothing"), "No step matches", "show all")
	for _, q := range []string{
		"row=-1", "row=99999", "step=x", "step=99999999999999999999", "from=2026-01-01",
		"from=2036-01-01&to=2035-01-01", "to=1h", "scale=true",
	} {
		s.mustGet("/runs/crawl?" + q)
	}
	for _, q := range []string{"from=soon", "state=lost"} {
		if r := s.get("/runs/crawl?" + q); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", q, r.Status)
		}
	}
}

func TestTimelineIsZoomed(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x", kagzi.ID("crawl"))
	k.Exec(manySteps, string(run.ID()))
	path := "/runs/crawl"
	for range 12 {
		page := s.mustGet(path)
		_, rest, ok := strings.Cut(page, `id="zoom-plus" href="/kagzi`)
		if !ok {
			t.Fatalf("%s has no way in", path)
		}
		path, _, _ = strings.Cut(strings.ReplaceAll(rest, "&amp;", "&"), `"`)
	}
	page := s.mustGet(path)
	wants(t, page, `id="zoom-all"`, `id="zoom-minus"`, `id="zoom-left"`, `id="zoom-next"`, `name="from" value="20`)
	if n := strings.Count(page, `class="gantt-row"`); n == 0 || n > 20 || !strings.Contains(page, " in this time") {
		t.Errorf("%d rows of a narrow window", n)
	}
	lacks(t, s.mustGet("/runs/crawl"), `id="zoom-all"`, " in this time")
}

func TestALongSleepIsFolded(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x", kagzi.ID("sleeper"))
	k.Exec(`UPDATE kagzi.workflow_runs SET created_at = now() - interval '91 days',
		started_at = now() - interval '91 days' WHERE run_id = $1`, string(run.ID()))
	k.Exec(`INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
		first_attempt, started_at, finished_at)
		SELECT run_id, namespace_id, v.name, 1, 'COMPLETED', v.kind, 1, 1, now() - v.begun, now() - v.ended
		FROM kagzi.workflow_runs, (VALUES ('work', 'FUNCTION', interval '91 days', interval '90 days 23:50'),
			('nap', 'SLEEP', interval '90 days 23:50', interval '10 min'), ('more', 'FUNCTION', interval '10 min',
			interval '0')) v (name, kind, begun, ended)
		WHERE run_id = $1`, string(run.ID()))
	page := s.mustGet("/runs/sleeper")
	wants(t, page, `class="gap"`, ">90 d", "To scale", "wait completed")
	lacks(t, s.mustGet("/runs/sleeper?scale=true"), `class="gap"`)
}

func TestStepsAreReadAsOftenAsTheyCanChange(t *testing.T) {
	long := &history{mark: "asleep", attempts: make([]kagzi.StepAttempt, 2000)}
	for name, c := range map[string]struct {
		h      *history
		status kagzi.Status
		mark   string
		want   time.Duration
	}{
		"never read":          {nil, kagzi.StatusRunning, "", time.Second},
		"waits as before":     {long, kagzi.StatusSleeping, "asleep", waitEvery},
		"waits for another":   {long, kagzi.StatusSleeping, "other", time.Second},
		"ended since":         {long, kagzi.StatusCompleted, "ended", time.Second},
		"runs, many steps":    {long, kagzi.StatusRunning, "asleep", 4 * time.Second},
		"runs, without steps": {&history{}, kagzi.StatusRunning, "", time.Second},
	} {
		if got := c.h.keeps(kagzi.RunInfo{Status: c.status}, c.mark, time.Second); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}
