package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

func TestSchedulesAreChanged(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	const name = `a/b?<i>c`
	if err := k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: name, Run: echo.With("x"), Every: time.Hour}); err != nil {
		t.Fatal(err)
	}
	path := "/schedules/" + url.PathEscape(name)
	info := func() admin.ScheduleInfo {
		i, err := admin.New(k.Client).Schedules.Get(k.Ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if to := s.mustPost(path + "/pause"); to != "/kagzi"+path || !info().Paused {
		t.Errorf("a pause leads to %s, and the schedule is %+v", to, info())
	}
	says(t, s.mustGet(path+"/pause"), "is paused already")
	s.mustPost(path + "/resume")
	says(t, s.mustGet(path+"/resume"), "is not paused")
	if info().Paused {
		t.Error("it is paused")
	}
	to := s.mustPost(path+"/trigger", "unless-active", "1")
	if run := k.InfoOf(kagzi.RunID(strings.TrimPrefix(to, "/kagzi/runs/"))); run.Schedule != name {
		t.Errorf("the run is %+v", run)
	}
	s.refused(http.StatusConflict, "name=\"unless-active\" value=\"1\" checked", path+"/trigger", "unless-active", "1")
	s.mustPost(path + "/trigger")

	begin := time.Now().Add(-5 * time.Hour).UTC().Format(time.RFC3339)
	plan := s.post(path+"/backfill", "from", begin)
	says(t, plan.body, "5 ticks from", "start a run", "Start 5 runs")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("the preview started runs: there are %d", n)
	}
	s.mustPost(path+"/backfill", fieldsOf(plan.body)...)
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 7 {
		t.Errorf("there are %d runs", n)
	}
	says(t, s.post(path+"/backfill", "from", time.Now().Add(-7*time.Hour).UTC().Format(time.RFC3339)).body,
		"7 ticks from", "of which 5 have a run", "Start 2 runs")
	s.refused(http.StatusBadRequest, "of the 5 ticks in that time, none lacks a run", path+"/backfill", "from", begin)
	s.refused(http.StatusBadRequest, "more than 10,000 ticks", path+"/backfill", "from", "730d")
	s.refused(http.StatusBadRequest, "in the future", path+"/backfill", "from", "1h", "until", "2999-01-01")
	s.refused(http.StatusBadRequest, "before it begins", path+"/backfill", "from", "1h", "until", "2h")
	s.refused(http.StatusBadRequest, "say from when on", path+"/backfill")
	if to := s.mustPost(path + "/delete"); to != "/kagzi/schedules" {
		t.Errorf("a delete leads to %s", to)
	}
	s.refused(http.StatusNotFound, "", path+"/delete")
}

func TestLimitsAreSet(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	const queue = `a/b?<i>&c`
	s.mustPost("/limits/queue", "queue", queue, "new-queue", "1", "most", "4", "rate", "600/m", "burst", "7",
		"key-most", "1", "hold", "1")
	all, err := admin.New(k.Client).Queues.List(k.Ctx)
	if err != nil || len(all) != 1 || all[0].Queue != queue || all[0].MaxRunning != 4 ||
		all[0].EachKey.MaxRunning != 1 || !all[0].Hold || all[0].Rate.Burst != 7 {
		t.Fatalf("the limits are %+v, %v", all, err)
	}
	form := "/limits/queue?" + url.Values{"queue": {queue}}.Encode()
	says(t, s.mustGet(form), `name="rate" value="10/s"`, `name="burst" value="7"`, `name="most" value="4"`,
		`name="hold" value="1" checked`)
	s.refused(http.StatusBadRequest, "has limits already", "/limits/queue", "queue", queue, "new-queue", "1",
		"most", "5")
	s.refused(http.StatusBadRequest, "write it as 10/s", "/limits/queue", "queue", queue, "rate", "often")
	s.refused(http.StatusBadRequest, "give a positive number", "/limits/queue", "queue", queue, "most", "-1")
	s.refused(http.StatusBadRequest, "needs a rate", "/limits/queue", "queue", queue, "burst", "2")
	s.mustPost("/limits/queue", "queue", queue)
	if all, _ := admin.New(k.Client).Queues.List(k.Ctx); len(all) != 0 {
		t.Errorf("the limits are %+v", all)
	}

	s.mustPost("/limits/key", "queue", queue, "key", "k/7", "most", "2", "weight", "3")
	says(t, s.mustGet("/limits/key?"+url.Values{"queue": {queue}, "key": {"k/7"}}.Encode()), `name="weight" value="3"`,
		`name="most" value="2"`)
	s.refused(http.StatusBadRequest, "has limits already", "/limits/key", "queue", queue, "key", "k/7", "new-key", "1")

	s.mustPost("/limits/step", "limit", "openai", "new-limit", "1", "most", "3", "rate", "3/10s", "honor", "1")
	limits, err := admin.New(k.Client).Limits.List(k.Ctx, "", 0)
	if err != nil || len(limits) != 1 || limits[0].MaxRunning != 3 || !limits[0].HonorRetryAfter {
		t.Fatalf("the limits are %+v, %v", limits, err)
	}
	says(t, s.mustGet("/limits/step?limit=openai"), `name="rate" value="18/m"`, `name="honor" value="1" checked`)
	s.refused(http.StatusBadRequest, "has limits already", "/limits/step", "limit", "openai", "new-limit", "1")
	s.mustPost("/limits/step/delete", "limit", "openai")
	s.refused(http.StatusNotFound, "", "/limits/step/delete", "limit", "openai")
}

func TestTargetsArePaused(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	kit.Begin(k, echo, "x", kagzi.Queue("shop"))
	says(t, s.mustGet("/limits/pause?queue=shop"), "Pause queue shop", "1 run is active now, 0 of them")
	s.mustPost("/limits/pause", "queue", "shop", "park", "1")
	all, err := admin.New(k.Client).Pauses.List(k.Ctx)
	if err != nil || len(all) != 1 || all[0].Queue != "shop" || !all[0].Parks || all[0].Actor != "mira" ||
		all[0].Reason != "because" {
		t.Fatalf("the pauses are %+v, %v", all, err)
	}
	s.mustPost("/limits/unpause", "queue", "shop")
	s.refused(http.StatusNotFound, "there is no pause of exactly this", "/limits/unpause", "queue", "shop")
	s.refused(http.StatusBadRequest, "Nothing is named", "/limits/pause", "choose", "1")
	says(t, s.mustGet("/limits/pause"), `name="queue"`, `name="workflow"`, `name="all"`, `name="choose" value="1"`)
}

func TestWorkersAreChanged(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	worker := func(queue string) (id string, ended <-chan error) {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: queue})
		kagzi.Handle(w, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil })
		done := make(chan error, 1)
		go func() { done <- w.Run(k.Ctx) }()
		for {
			page, _, err := admin.New(k.Client).Workers.List(k.Ctx,
				admin.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 1 {
				return page[0].ID, done
			}
		}
	}
	one, ended := worker("a")
	says(t, s.mustGet("/workers/"+one+"/drain"), "executes 0 runs")
	s.mustPost("/workers/" + one + "/drain")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	says(t, s.mustGet("/workers/"+one+"/drain"), "is not online")
	two, ended := worker("b")
	says(t, s.mustGet("/workers/drain?queue=b"), "1 worker of queue b would drain")
	s.mustPost("/workers/drain", "queue", "b")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.mustPost("/workers/" + two + "/force-offline")
	s.refused(http.StatusNotFound, "", "/workers/01987654-0000-7000-8000-000000000000/drain")
}

func TestConsumersAreChanged(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	mail := topic.Define[string]("mail")
	sorter := topic.DefineConsumer("sorter", topic.ConsumerConfig{Topics: []topic.AnyTopic{mail}})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	runs := make(chan struct{}, 10)
	topic.Consume(w, sorter, func(_ kagzi.Context, n int) (int, error) { runs <- struct{}{}; return n + 1, nil })
	kit.StartWorker(t, w)
	if err := topic.New(k.Client).Publish(k.Ctx, mail.With("x").WithID("m1")); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, runs) // it sees the event and leaves it
	says(t, s.mustGet("/consumers/sorter/skip"), `<option value="mail"`)
	if to := s.mustPost("/consumers/sorter/trigger"); to != "/kagzi/consumers/sorter" {
		t.Errorf("it leads to %s", to)
	}
	await.Receive(t, runs)
	s.mustPost("/consumers/sorter/skip", "topic", "mail", "event", "m1")
	all, err := admin.New(k.Client).Consumers.List(k.Ctx)
	if err != nil || len(all) != 1 || all[0].Topics[0].Pending != 0 {
		t.Errorf("the consumers are %+v, %v", all, err)
	}
	s.refused(http.StatusNotFound, "", "/consumers/sorter/skip", "topic", "mail", "event", "m2")
	s.mustPost("/consumers/sorter/delete")
	s.refused(http.StatusNotFound, "onsumer not found", "/consumers/sorter/delete")
}

func TestAuthorizeIsAskedForWhatAFormNames(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: func(_ *http.Request, a Action) (string, error) {
		if a.ID == "prod" && a.Changes() {
			return "", errors.New("not prod")
		}
		return "mira", nil
	}})
	s.refused(http.StatusForbidden, "", "/limits/queue", "queue", "prod", "most", "1")
	s.refused(http.StatusForbidden, "", "/limits/pause", "queue", "prod")
	s.refused(http.StatusForbidden, "", "/workers/drain", "queue", "prod")
	s.mustPost("/limits/queue", "queue", "test", "most", "1")
}

func TestAFormThatIsSentAtTheSameTime(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	k.Cancel(run)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if r := s.post(runPath(run)+"restart", "form", "f1"); r.StatusCode != http.StatusSeeOther {
				t.Error(r.Status)
			}
		})
	}
	all.Wait()
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("there are %d runs", n)
	}
}

func TestHostileNamesInForms(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	const evil = `"><script>alert(1)</script><img src=x onerror='x'>`
	wf := kagzi.Define[string, string](evil)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, evilStep, func(context.Context) (string, error) {
			return "", kagzi.Permanent(errors.New(evil))
		})
	})
	run := kit.Begin(k, wf, evil, kagzi.ID(evil), kagzi.Metadata{"a": evil}, kagzi.Queue("default"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	other := kit.Begin(k, wf, evil, kagzi.ID(evil), kagzi.Delay(time.Hour))
	var pages []string
	for _, verb := range []string{
		"cancel", "terminate", "delete", "resume", "pause", "restart", "fork", "signal",
		"update",
	} {
		pages = append(pages, s.mustGet(runPath(run)+verb), s.mustGet(runPath(other)+verb),
			s.mustGet(runPath(other)+verb+"?reason="+url.QueryEscape(evil)+"&step="+url.QueryEscape(evil)))
	}
	pages = append(pages, s.post("/runs/bulk/resume", "run", string(run.ID()), "filter", evil, "reason", evil).body,
		s.post("/runs/bulk/update", "run", string(run.ID()), "due", evil).body,
		s.post("/runs/bulk/cancel", "run", string(other.ID()), "stage", "apply", "stop", "1", "skipped", "3 "+evil,
			"new", evil, "from", evil, "reason", evil).body,
		s.mustGet("/limits/queue?queue="+url.QueryEscape(evil)), s.mustGet("/limits/pause?group="+
			url.QueryEscape(evil)), s.mustGet("/limits/step/delete?limit="+url.QueryEscape(evil)))
	for i, page := range pages {
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") ||
			!strings.Contains(page, "&lt;script&gt;") {
			t.Errorf("page %d is not escaped, or shows no name:\n%s", i, notice(page))
		}
	}
}

const evilStep = `<script>alert(2)<-script>`
