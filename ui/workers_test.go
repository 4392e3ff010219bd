package ui

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestWorkers(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	g := kit.NewGate()
	old := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
		MaxConcurrent: 4, Build: "v1.0.0",
		Labels: map[string]string{"region": "eu"},
	})
	g.Handle(old)
	stop := kit.StartWorker(t, old)
	now := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "side", Build: "v2.0.0"})
	kagzi.Handle(now, g.Workflow, func(kagzi.Context, int) (string, error) { return "", nil }, kagzi.Version(12))
	kagzi.Handle(now, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil })
	kit.StartWorker(t, now)
	run := kit.Begin(k, g.Workflow, 1, kagzi.ID("the run"))
	await.Receive(t, g.Begun)
	await.True(t, "both workers are registered", func() bool {
		_, total, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{})
		return err == nil && total == 2
	})
	page := s.mustGet("/workers")
	wantAll(t, "/workers", page, "v1.0.0", "v2.0.0", "Online", "region", ">default", ">side", "2 handlers")
	versions := region(s.stream("/workers"), "versions", has("v12"))
	wantAll(t, "the versions", versions, "1 workflow has several side by side", `class="mixed"`, "Builds:")
	if strings.Index(versions, "v12") > strings.Index(versions, "v1 ") {
		t.Error("the highest version does not come first")
	}
	for query, want := range map[string][2]bool{
		"queue=side": {false, true}, "workflow=echo": {false, true},
		"workflow=gate": {true, true}, "label=region%3Deu": {true, false}, "status=offline": {false, false},
		"status=all": {true, true},
	} {
		page := s.mustGet("/workers?" + query)
		_, rows, _ := strings.Cut(page, `id="worker-rows"`)
		if got := [2]bool{strings.Contains(rows, "v1.0.0"), strings.Contains(rows, "v2.0.0")}; got != want {
			t.Errorf("%s shows the workers %v, not %v", query, got, want)
		}
	}
	id := kit.Only(t, k.Client, admin.WorkerFilter{Queue: "default"}).ID
	path := "/workers/" + id
	next := s.stream(path)
	wantAll(t, "the runs", region(next, "worker-runs", has("the run")), string(run.ID()))
	wantAll(t, path, s.mustGet(path), "of 4", "v1.0.0", "region", "Started", `href="/kagzi/queues/default"`,
		"1 handler")
	close(g.Open)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	region(next, "worker-log", has("context ended"))
	until(next, func(e sse) bool { return e.name == "settled" })
	wantAll(t, "a stopped worker", s.mustGet(path+"?x=1"), "Offline", "It has stopped.",
		"This page does not change any more.")
	wantAll(t, "/workers", s.mustGet("/workers?x=1"), "Offline", "stopped within the last hour")
	k.Exec(`UPDATE kagzi.workers SET stopped_at = stopped_at - interval '2 hours' WHERE status = 'OFFLINE'`)
	wantNone(t, "/workers", s.mustGet("/workers?x=2"), "Offline</span>")
}

func TestWorkersThatHangAndAreSilent(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	begun, open := make(chan bool, 1), make(chan bool)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
		HungAfter: 50 * time.Millisecond,
		Heartbeat: 100 * time.Millisecond,
	})
	kagzi.Handle(w, echo, func(ctx kagzi.Context, in string) (string, error) {
		return kagzi.Step(ctx, "wait", func(context.Context) (string, error) {
			begun <- true
			await.Opened(t, open)
			return in, nil
		}, kagzi.Timeout(50*time.Millisecond))
	})
	kit.StartWorker(t, w)
	t.Cleanup(func() { close(open) })
	kit.Begin(k, echo, "x", kagzi.ID("hanging"))
	await.Receive(t, begun)
	path := "/workers/" + kit.Only(t, k.Client, admin.WorkerFilter{}).ID
	wantAll(t, "the code that hangs", region(s.stream(path), "worker-runs", has("hangs:")), "step wait",
		"1 function hangs")
	region(s.stream("/workers"), "worker-counts", has(`class="bad"><dt>Slots that hang`))
}

func TestManyWorkersHavePages(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil })
	stop := kit.StartWorker(t, w)
	await.True(t, "the worker is registered", func() bool { return k.Count(`SELECT count(*) FROM kagzi.workers`) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	copyWorkers(k, pageSize)
	page := s.mustGet("/workers?status=offline")
	if n := strings.Count(page, `<tr id="worker-`); n != pageSize {
		t.Errorf("the first page has %d workers", n)
	}
	wantAll(t, "the first page", page, fmt.Sprintf("%d of %d workers", pageSize, pageSize+1))
	_, rest, _ := strings.Cut(page, `rel="next" href="/kagzi`)
	path, _, _ := strings.Cut(strings.ReplaceAll(rest, "&amp;", "&"), `"`)
	if n := strings.Count(s.mustGet(path), `<tr id="worker-`); n != 1 {
		t.Errorf("the second page has %d workers", n)
	}
}

func TestStranded(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil }, kagzi.Version(3))
	kit.StartWorker(t, w)
	kit.Begin(k, echo, "x", kagzi.Version(2))
	kit.Begin(k, kagzi.Define[string, string]("gone"), "x")
	kit.Begin(k, echo, "x", kagzi.Queue("nowhere"), kagzi.Version(3))
	for range 2 {
		kit.Begin(k, kagzi.Define[string, string]("lost", kagzi.Queue("island")), "x", kagzi.Delay(time.Hour))
	}
	for _, target := range []admin.Target{{Queue: "island"}, {Queue: "elsewhere"}, {Workflow: "other"}} {
		if err := admin.New(k.Client).Pauses.Set(k.Ctx, target, kagzi.Actor("mira"),
			kagzi.Reason("the move")); err != nil {
			t.Fatal(err)
		}
	}
	page := s.mustGet("/stranded")
	if n := strings.Count(page, `<article`); n != 3 {
		t.Errorf("%d queues have advice, not 3: one piece for each queue", n)
	}
	wantNone(t, "/stranded", page, "Queue elsewhere", "Workflow other")
	wantAll(t, "/stranded", page, "5 runs wait",
		"1 live worker claims from it", "version 3</span>", "beside the new one", "kagzi.Version(2)",
		"no code for it here", "If a workflow was renamed or removed",
		"no live worker claims from it", "it is in queue default",
		"Let a worker that has the code claim from queue nowhere too",
		"If the queue was given up", ">2</a>", "Queue island is paused", "by mira: the move",
		url.Values{"queue": {"island"}}.Encode())
	if strings.LastIndex(page, `id="stranded-island`) < strings.LastIndex(page, `id="stranded-default`) {
		t.Error("what is due first does not come first")
	}
	late := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "island"})
	kagzi.Handle(late, kagzi.Define[string, string]("lost"), func(_ kagzi.Context, in string) (string, error) {
		return in, nil
	})
	kit.StartWorker(t, late)
	region(s.stream("/stranded?x=1"), "stranded", func(html string) bool { return !strings.Contains(html, "island") })
}

func TestDoctor(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Pool: k.Pool})
	wantAll(t, "/doctor", s.mustGet("/doctor"), "Examining the database", "data-stream")
	next := s.stream("/doctor")
	html := region(next, "examination", has("Examine again"))
	wantAll(t, "the examination", html, "server", "notifications", "Fine")
	until(next, func(e sse) bool { return e.name == "settled" })
	first := s.web.Cache.Peek(examinationKey).View
	page := s.mustGet("/doctor?wait")
	wantAll(t, "/doctor", page, "Examine again", "An examination is not repeated by itself.")
	if again := s.web.Cache.Peek(examinationKey).View; again.(examination).At != first.(examination).At {
		t.Error("the database was examined twice within a minute")
	}
	away := newSite(k, Config{Pool: kit.Unreachable(t)})
	wantAll(t, "without a database", away.mustGet("/doctor?wait"), "The database could not be examined", "Try again")
}

func TestDoctorSortsBySeverity(t *testing.T) {
	t.Parallel()
	e := examinationOf([]doctor.Advice{
		{Topic: "fine", Severity: doctor.Fine},
		{Topic: "warned", Severity: doctor.Warning},
		{Topic: "bad", Severity: doctor.Problem},
		{Topic: "worse", Severity: doctor.Problem},
	}, time.Now())
	if len(e.Sorts) != 3 || e.Sorts[0].Found[1].Topic != "worse" || e.Sorts[2].Title != "Fine" ||
		e.Title() != "2 problems found" || e.Health() != "unhealthy" {
		t.Errorf("%+v, %s, %s", e, e.Title(), e.Health())
	}
	if e = examinationOf(nil, time.Now()); e.Title() != "Nothing to do" || e.Health() != "healthy" {
		t.Errorf("%+v, %s, %s", e, e.Title(), e.Health())
	}
}

// copyWorkers adds n rows to the registry, as the worker that is there.
func copyWorkers(k *kit.Kit, n int) {
	k.T.Helper()
	k.Exec(`INSERT INTO kagzi.workers
		SELECT (jsonb_populate_record(w, jsonb_build_object('worker_id', gen_random_uuid(), 'started_at',
		w.started_at + n * interval '1 second'))).*
		FROM kagzi.workers w, generate_series(1, $1) n`, n)
}
