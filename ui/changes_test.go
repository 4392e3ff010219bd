package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/ui/internal/web"
	"github.com/kagzi/kagzi/waits"
)

// post sends a form, given as pairs of a field and its value.
func (s *site) post(path string, fields ...string) reply {
	s.T.Helper()
	return s.do(http.MethodPost, path, encoded(fields...))
}

func encoded(fields ...string) string {
	values := url.Values{"reason": {"because"}}
	for i := 0; i+1 < len(fields); i += 2 {
		values.Add(fields[i], fields[i+1])
	}
	return values.Encode()
}

// mustPost sends a form that must succeed, and returns where it leads.
func (s *site) mustPost(path string, fields ...string) string {
	s.T.Helper()
	r := s.post(path, fields...)
	if r.StatusCode != http.StatusSeeOther {
		s.T.Fatalf("POST %s: %s\n%s", path, r.Status, notice(r.body))
	}
	return r.Header.Get("Location")
}

// notice returns what a page says in its notices.
func notice(page string) string {
	_, page, _ = strings.Cut(page, "<h1")
	return first(1500, page)
}

// refused sends a form that must fail, with what it says.
func (s *site) refused(code int, says, path string, fields ...string) string {
	s.T.Helper()
	r := s.post(path, fields...)
	if r.StatusCode != code || !strings.Contains(r.body, says) {
		s.T.Fatalf("POST %s: %s, not %d with %q\n%s", path, r.Status, code, says, notice(r.body))
	}
	return r.body
}

// logged fails unless the run's log ends with an event by mira, with the reason that post gives.
func (s *site) logged(ref kagzi.Ref, event string) admin.LogEntry {
	s.T.Helper()
	log, err := admin.New(s.Client).Runs.Log(s.Ctx, ref)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, e := range log {
		if e.Event == event && e.Actor == "mira" && e.Reason == "because" {
			return e
		}
	}
	s.T.Fatalf("the log of the run is %+v, without %s by mira", log, event)
	return admin.LogEntry{}
}

func runPath(ref interface{ ID() kagzi.RunID }) string { return "/runs/" + string(ref.ID()) + "/" }

func TestRunsAreChanged(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x", kagzi.ID("one"), kagzi.Metadata{"a": "1"})
	path := runPath(run)
	s.mustPost(path + "pause")
	if k.InfoOf(run).PausedAt.IsZero() {
		t.Error("it is not paused")
	}
	s.logged(run, "PAUSED")
	s.mustPost(path + "unpause")
	s.logged(run, "UNPAUSED")
	page := s.mustGet(path + "update")
	if !strings.Contains(page, `name="metadata-was" value="a=1"`) {
		t.Error("the form of an update does not have the run's tags")
	}
	s.mustPost(path+"update", "queue", "side", "priority", "1", "version", "3", "due", "2h", "metadata",
		"a=1\r\nb=2 = 3\r\n", "metadata-was", "a=1")
	info := k.InfoOf(run)
	if info.Queue != "side" || info.Priority != 1 || info.Version != 3 || time.Until(info.AvailableAt) < time.Hour ||
		info.Metadata["b"] != "2 = 3" || info.Metadata["a"] != "1" {
		t.Errorf("it was updated to %+v", info)
	}
	s.logged(run, "UPDATED")
	s.refused(http.StatusBadRequest, "There is nothing to change", path+"update", "metadata", "a=1",
		"metadata-was", "a=1")
	s.mustPost(path+"update", "metadata", "", "metadata-was", "a=1\nb=2 = 3")
	if m := k.InfoOf(run).Metadata; len(m) != 0 {
		t.Errorf("the tags are %v", m)
	}
	s.mustPost(path+"cancel", "grace", "1m")
	s.logged(run, "CANCELLED")
	s.mustPost(path + "resume")
	s.logged(run, "RESUMED")
	s.mustPost(path + "terminate")
	s.logged(run, "TERMINATED")
	if to := s.mustPost(path + "delete"); to != "/kagzi/runs" {
		t.Errorf("a delete leads to %s", to)
	}
	s.logged(run.ID(), "DELETED")
	if r := s.get(path + "cancel"); r.StatusCode != http.StatusNotFound {
		t.Errorf("the form of a run that is gone: %s", r.Status)
	}
	s.refused(http.StatusNotFound, "not found", path+"cancel")
}

func TestFormsKeepWhatWasTyped(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	path := runPath(run)
	for _, c := range []struct {
		verb, says string
		fields     []string
	}{
		{"cancel", "give a duration, such as 30s", []string{"grace", "so<on"}},
		{"update", "give a duration such as 1h", []string{"due", "so<on"}},
		{"update", "write it as name=value", []string{"metadata", "so<on", "metadata-was", ""}},
		{"signal", "line 2, column 3", []string{"name", "so<on", "payload", "{\n  so<on}"}},
		{"restart", "is no JSON", []string{"input", "so<on"}},
		{"resume", "not over", []string{"forget", "so<on"}},
	} {
		r := s.post(path+c.verb, c.fields...)
		if r.StatusCode < 400 || r.StatusCode > 499 || !strings.Contains(r.body, c.says) ||
			strings.Contains(r.body, "so<on") {
			t.Errorf("%s: %s, without %q:\n%s", c.verb, r.Status, c.says, notice(r.body))
		}
		if c.verb != "resume" && !strings.Contains(r.body, "so&lt;on") || c.verb != "signal" &&
			!strings.Contains(r.body, `value="because"`) {
			t.Errorf("%s forgets what was typed:\n%s", c.verb, notice(r.body))
		}
	}
}

func TestNewRuns(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	two := kagzi.Define[string, string]("two")
	kit.Serve(k, two, func(ctx kagzi.Context, in string) (string, error) {
		for _, name := range []string{"first", "second"} {
			if err := kagzi.Do(ctx, name, func(context.Context) error { return nil }); err != nil {
				return "", err
			}
		}
		if in == "bad" {
			return "", kagzi.Permanent(errors.New("bad input"))
		}
		return in, nil
	})
	run := kit.Begin(k, two, "bad", kagzi.ID("two-1"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	path := runPath(run)
	page := s.mustGet(path + "restart")
	if !strings.Contains(page, "&#34;bad&#34;") || !strings.Contains(page, `name="made" value="0"`) {
		t.Errorf("the form does not have the input:\n%s", notice(page))
	}
	to := s.mustPost(path+"restart", "input", `"good"`, "new-id", "two-2", "made", "0")
	as := kagzi.RunID(strings.TrimPrefix(to, "/kagzi/runs/"))
	if info := k.WaitStatus(as, kagzi.StatusCompleted); info.ExternalID != "two-2" || string(info.Output) != `"good"` ||
		info.Origin != run.ID() {
		t.Errorf("the new run is %+v", info)
	}
	s.logged(run, "RESTARTED")
	page = s.refused(http.StatusBadRequest, "was restarted since this form was opened by mira", path+"restart",
		"made", "0")
	if !strings.Contains(page, `name="made" value="1"`) {
		t.Error("a form that was sent twice cannot be sent again on purpose")
	}
	s.mustPost(path+"restart", "made", "1")
	page = s.mustGet(path + "fork?step=second")
	if !strings.Contains(page, `<option value="second" selected>`) || strings.Contains(page, "#") &&
		strings.Contains(page, `value="#`) {
		t.Errorf("the form does not choose the step:\n%s", notice(page))
	}
	to = s.mustPost(path+"fork", "step", "second", "input", `"good"`, "made", "0", "new-id", "two-3")
	k.WaitStatus(kagzi.RunID(strings.TrimPrefix(to, "/kagzi/runs/")), kagzi.StatusCompleted)
	if e := s.logged(run, "FORKED"); e.Step != "second" {
		t.Errorf("it was forked from %q", e.Step)
	}
	s.refused(http.StatusNotFound, "The run has no such step", path+"fork", "step", "third", "made", "1")
	s.refused(http.StatusBadRequest, "From step is missing", path+"fork", "made", "1")
}

func TestSignals(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	other := newSite(k, Config{Authorize: everybody}) // as another process
	approved := kagzi.DefineSignal[map[string]int]("approved")
	wf := kagzi.Define[string, int]("approval")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ string) (int, error) {
		m, err := kagzi.WaitMessage(ctx, approved.For("call-7"))
		if err == nil && m.Headers[deeds.SentBy] != "mira" {
			return 0, kagzi.Permanent(errors.New("nobody sent it"))
		}
		return m.Payload["n"], err
	})
	run := kit.Begin(k, wf, "")
	k.WaitStatus(run, kagzi.StatusSleeping)
	path := runPath(run)
	page := s.mustGet(path + "signal")
	for _, want := range []string{
		`name="name" value="approved"`, `name="key" value="call-7"`,
		"waits for approved/call-7",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the form lacks %q:\n%s", want, notice(page))
		}
	}
	fields := []string{"name", "late", "payload", `{"n":1}`, "form", "f1"}
	for _, site := range []*site{s, s, other} {
		site.mustPost(path+"signal", fields...)
	}
	messages, err := admin.New(k.Client).Messages.List(k.Ctx, run, admin.MessageFilter{})
	if err != nil || len(messages) != 1 {
		t.Errorf("a form that was sent three times made the messages %v, %v", messages, err)
	}
	s.refused(http.StatusBadRequest, "is no JSON", path+"signal", "name", "approved", "payload", "{")
	s.mustPost(path+"signal", "name", "approved", "key", "call-7", "payload", `{"n":7}`, "form", "f2")
	if n := kit.ResultOf(k, run); n != 7 {
		t.Errorf("the run got %d", n)
	}
	s.refused(http.StatusConflict, "is over", path+"signal", "name", "approved")
}

func TestFormsAreSentOnce(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	k.Cancel(run)
	path := runPath(run)
	first := s.mustPost(path+"restart", "form", "f1", "made", "0")
	if again := s.mustPost(path+"restart", "form", "f1", "made", "0"); again != first {
		t.Errorf("the second answer leads to %s, the first to %s", again, first)
	}
	s.refused(http.StatusBadRequest, "There is nothing to change", strings.TrimPrefix(first, "/kagzi")+"/update",
		"form", "f2")
	// the first try changed nothing
	s.mustPost(strings.TrimPrefix(first, "/kagzi")+"/update", "form", "f2", "queue", "side")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("there are %d runs", n)
	}
}

func TestHiddenInputsAreNotShownInForms(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody, HidePayloads: true})
	run := kit.Begin(k, echo, "secret")
	k.Cancel(run)
	for _, verb := range []string{"restart", "fork", "resume", "delete", "update", "signal"} {
		if page := s.mustGet(runPath(run) + verb); strings.Contains(page, "secret") {
			t.Errorf("the form %s shows the input", verb)
		}
	}
	to := s.mustPost(runPath(run)+"restart", "input", "")
	if info := k.InfoOf(kagzi.RunID(strings.TrimPrefix(to, "/kagzi/runs/"))); string(info.Input) != `"secret"` {
		t.Errorf("the new run's input is %s", info.Input)
	}
}

// seeing calls do with the screen of a page of the site.
func seeing(s *site, do func(*screen)) {
	s.T.Helper()
	newSite(s.Kit, Config{}, func(c *web.Config) {
		c.Access, c.Data = s.web.Access, func(one *web.Screen) any {
			do(&screen{one})
			return onScreen(one)
		}
	}).mustGet("/doctor")
}

func TestButtonsObeyAuthorizeAndTheStatus(t *testing.T) {
	k := kit.New(t)
	only := func(verbs ...Verb) *site {
		return newSite(k, Config{Authorize: func(_ *http.Request, a Action) (string, error) {
			if a.Changes() && !slices.Contains(verbs, a.Verb) {
				return "", errors.New("not you")
			}
			return "mira", nil
		}})
	}
	titles := func(s *site, r kagzi.RunInfo) string {
		var a actions
		seeing(s, func(screen *screen) { a = screen.RunActions(r) })
		var out []string
		for _, b := range slices.Concat(a.First, a.More) {
			out = append(out, strings.TrimSuffix(b.Title, "…"))
		}
		return strings.Join(out, ", ")
	}
	all := newSite(k, Config{Authorize: everybody})
	now := time.Now()
	for want, r := range map[string]kagzi.RunInfo{
		"Cancel, Pause, Signal, Update, Terminate": {
			Status:    kagzi.StatusPending,
			WaitingOn: waits.List{{Kind: waits.PauseOfQueue, Name: "shop"}},
		},
		"Cancel, Pause, Signal, Terminate": {Status: kagzi.StatusRunning},
		"Signal, Cancel, Pause, Update, Terminate": {
			Status:    kagzi.StatusSleeping,
			WaitingOn: waits.List{waits.Parse("timer x"), waits.Parse("signal approved")},
		},
		"Unpause, Cancel, Signal, Update, Terminate": {Status: kagzi.StatusPending, PausedAt: now},
		"Pause, Signal, Terminate":                   {Status: kagzi.StatusRunning, CancelRequestedAt: now},
		"Resume, Restart, Fork from a step, Delete":  {Status: kagzi.StatusFailed},
		"Restart, Fork from a step, Delete":          {Status: kagzi.StatusCompleted},
		"Restart, Delete":                            {Status: kagzi.StatusFailed, Compensated: true},
		"Resume, Restart, Delete":                    {Status: kagzi.StatusFailed, Kind: kind.Compensation},
	} {
		if got := titles(all, r); got != want {
			t.Errorf("the buttons of %+v are %s, not %s", r, got, want)
		}
	}
	if got := titles(only(Cancel, Delete), kagzi.RunInfo{Status: kagzi.StatusPending}); got != "Cancel" {
		t.Errorf("the buttons of somebody who may cancel and delete are %s", got)
	}
	if got := titles(newSite(k, Config{}), kagzi.RunInfo{Status: kagzi.StatusFailed}); got != "" {
		t.Errorf("the buttons of a dashboard that only reads are %s", got)
	}
	run := kit.Begin(k, echo, "x")
	s := only(Cancel)
	s.refused(http.StatusForbidden, "Not you", runPath(run)+"terminate")
	if r := s.get(runPath(run) + "terminate"); r.StatusCode != http.StatusForbidden {
		t.Errorf("the form: %s", r.Status)
	}
	if page := s.mustGet("/runs"); !strings.Contains(page, "/runs/bulk/cancel") ||
		strings.Contains(page, "/runs/bulk/terminate") {
		t.Error("the list does not obey Authorize")
	}
	s.mustPost(runPath(run) + "cancel")
}

func TestNothingChangesWithoutAuthorizeOrFromElsewhere(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, echo, "x")
	reading, all := newSite(k, Config{}), newSite(k, Config{Authorize: everybody})
	before := k.Count(`SELECT count(*) FROM kagzi.run_events`)
	for _, c := range all.changes() {
		path := strings.NewReplacer("{id}", string(run.ID()), "{name}", "some").Replace(c.Path)
		body := encoded("run", string(run.ID()), "stage", "apply", "queue", "side", "name", "x")
		if r := reading.do(http.MethodPost, path, body); r.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s of a dashboard that only reads: %s", path, r.Status)
		}
		if strings.Contains(c.Path, "bulk") {
			continue
		}
		if r := reading.get(path); r.StatusCode != http.StatusForbidden {
			t.Errorf("GET %s of a dashboard that only reads: %s", path, r.Status)
		}
		if r := all.do(http.MethodPost, path, body, "Sec-Fetch-Site",
			"cross-site"); r.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s from another site: %s", path, r.Status)
		}
	}
	if info := k.InfoOf(run); info.Status != kagzi.StatusPending || info.Queue != "default" {
		t.Errorf("the run is %+v", info)
	}
	if after := k.Count(`SELECT count(*) FROM kagzi.run_events`); after != before {
		t.Errorf("%d events were recorded", after-before)
	}
}

func TestDialogsGetAnAnswerForScripts(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	r := s.do(http.MethodPost, runPath(run)+"pause", encoded(), "HX-Request", "true", "HX-Current-URL",
		"http://x/kagzi/runs?status=active")
	if r.StatusCode != http.StatusOK || r.Header.Get("HX-Redirect") != "/kagzi/runs?status=active" ||
		len(r.Cookies()) != 1 {
		t.Errorf("%s to %q", r.Status, r.Header.Get("HX-Redirect"))
	}
	r = s.do(http.MethodPost, runPath(run)+"unpause", encoded(), "HX-Request", "true", "HX-Current-URL",
		"http://evil.example/other")
	if to := r.Header.Get("HX-Redirect"); to != "/kagzi/runs/"+string(run.ID()) {
		t.Errorf("it leads to %q", to)
	}
	s.mustPost(runPath(run) + "cancel")
	r = s.do(http.MethodPost, runPath(run)+"restart", encoded(), "HX-Request", "true", "HX-Current-URL",
		"http://x/kagzi/runs")
	if to := r.Header.Get("HX-Redirect"); to == "/kagzi/runs" || !strings.HasPrefix(to, "/kagzi/runs/") {
		t.Errorf("a restart leads to %q", to)
	}
}

func TestAFormOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	k, proxy := behindProxy(t)
	s := newSite(k, Config{Authorize: everybody}, func(c *web.Config) { c.Patience = 300 * time.Millisecond })
	run := kit.Begin(k, echo, "x")
	proxy.Freeze()
	page := s.refused(http.StatusServiceUnavailable, "may have been done or not", runPath(run)+"signal", "name",
		"app<roved", "payload", `{"n":1}`, "form", "f1")
	says(t, page, "Try again", `name="form" value="f1"`, `name="name" value="app&lt;roved"`)
	proxy.Unfreeze()
	newSite(k, Config{Authorize: everybody}).mustPost(runPath(run)+"signal", "name", "approved", "form", "f1")
}
