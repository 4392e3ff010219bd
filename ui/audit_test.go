package ui

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// Each change that a form makes is in the audit log, with the actor that Authorize has returned and the reason of the
// form.
func TestChangesAreAudited(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: func(*http.Request, Action) (string, error) { return "ada@example.com", nil }})
	c := k.Client
	run := string(kit.Begin(k, echo, "x", kagzi.ID("order-42")).ID())
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queue: "mail"})
	mails := topic.Define[json.RawMessage]("mails")
	topic.Consume(w, topic.DefineConsumer("reader", topic.ConsumerConfig{Topics: []topic.AnyTopic{mails}}),
		func(kagzi.Context, int) (int, error) { return 0, nil })
	kit.StartLocal(t, w)
	await.True(t, "the worker registers, and its consumer", func() bool {
		return k.Count(`SELECT (SELECT count(*) FROM kagzi.workers) + (SELECT count(*) FROM kagzi.consumers)`) == 2
	})
	worker, others := kit.Only(t, c, admin.WorkerFilter{}).ID, map[string]string{}
	for _, queue := range []string{"drained", "dead"} {
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queue: queue})
		kagzi.Handle(w, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil })
		kit.StartLocal(t, w)
		await.True(t, "the worker of queue "+queue+" registers", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workers WHERE $1 = ANY (task_queues)`, queue) == 1
		})
		others[queue] = kit.Only(t, c, admin.WorkerFilter{Queue: queue}).ID
	}
	if err := topic.New(c).Publish(k.Ctx, mails.With(json.RawMessage("1")).WithID("mail-1")); err != nil {
		t.Fatal(err)
	}
	if err := c.Schedule(k.Ctx, kagzi.Schedule{Name: "nightly", Run: echo.With("x"), Every: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		action, path string
		fields       []string
		on           string // a page that shows the entry, too
	}{
		{"PAUSED", "/schedules/nightly/pause", nil, "/schedules/nightly"},
		{"RESUMED", "/schedules/nightly/resume", nil, "/schedules/nightly"},
		{"TRIGGERED", "/schedules/nightly/trigger", nil, "/schedules/nightly"},
		{"BACKFILLED", "/schedules/nightly/backfill", []string{
			"sure", "1", "from",
			time.Now().Add(-5 * time.Hour).UTC().Format(time.RFC3339),
		}, "/schedules/nightly"},
		{"DELETED", "/schedules/nightly/delete", nil, ""},
		{"UPDATED", "/limits/queue", []string{"queue", "mail", "most", "4"}, "/queues/mail"},
		{"UPDATED", "/limits/key", []string{"queue", "mail", "key", "acme", "most", "2"}, "/audit?kind=key&queue=mail"},
		{"CREATED", "/limits/step", []string{"limit", "api", "most", "2"}, ""},
		{"DELETED", "/limits/step/delete", []string{"limit", "api"}, ""},
		{"PAUSED", "/limits/pause", []string{"queue", "mail"}, "/queues/mail"},
		{"UNPAUSED", "/limits/unpause", []string{"queue", "mail"}, "/queues/mail"},
		{"SKIPPED", "/consumers/reader/skip", []string{"topic", "mails", "event", "mail-1"}, "/consumers/reader"},
		{"TRIGGERED", "/consumers/reader/trigger", nil, "/consumers/reader"},
		{"DELETED", "/consumers/reader/delete", nil, ""},
		{"SIGNALLED", "/runs/" + run + "/signal", []string{"name", "approved"}, "/runs/" + run},
		{"CANCELLED", "/runs/" + run + "/cancel", nil, "/runs/" + run},
		{"DRAINED", "/workers/" + worker + "/drain", nil, "/workers/" + worker},
		{"DRAINED", "/workers/drain", []string{"queue", "drained"}, "/workers/" + others["drained"]},
		{"FORCED_OFFLINE", "/workers/" + others["dead"] + "/force-offline", nil, "/workers/" + others["dead"]},
	} {
		s.mustPost(step.path, step.fields...) // with the reason "because"
		entries, err := admin.New(c).Audit(k.Ctx, admin.AuditFilter{Actor: "ada@example.com", Limit: 1})
		if err != nil || len(entries) != 1 || entries[0].Reason != "because" || entries[0].Action != step.action {
			t.Errorf("after %s: %+v, %v", step.path, entries, err)
		}
		for _, page := range []string{"/audit", step.on} {
			if page != "" {
				wantAll(t, page, s.mustGet(page), "ada@example.com", "because",
					strings.ToLower(strings.ReplaceAll(step.action, "_", " ")))
			}
		}
	}
	if err := admin.New(c).Limits.Set(k.Ctx, admin.StepLimit{Name: "a/b", MaxRunning: 1},
		kagzi.Actor("bo@example.com")); err != nil {
		t.Fatal(err)
	}
	link := "/audit?kind=limit&name=a%2Fb"
	wantAll(t, "limits", s.mustGet("/limits"), html.EscapeString(link))
	wantAll(t, link, s.mustGet(link), "bo@example.com", "created")
	for filter, want := range map[string]string{
		"kind=limit": "limit on steps api", "name=order-42": "signalled",
		"action=drained": "drained", "actor=ada%40example.com&since=1h": "ada@example.com",
	} {
		wantAll(t, filter, s.mustGet("/audit?"+filter), want)
	}
	wantAll(t, "nothing", s.mustGet("/audit?actor=bob"), "No change matches")
	for _, bad := range []string{"kind=thing", "since=x", "after=" + run} {
		if r := s.get("/audit?" + bad); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", bad, r.Status)
		}
	}
}

// The log is read in pages, and shows names as they are.
func TestAuditPages(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	wantAll(t, "empty", s.mustGet("/audit"), "Nobody has changed anything yet")
	const hostile = `<script>alert(1)</script>`
	for range auditRows/2 + 1 {
		for _, most := range []int{1, 2} {
			if err := admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{Queue: hostile, MaxRunning: most},
				kagzi.Actor(hostile), kagzi.Reason(hostile)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.web.Cache.Expire()
	page := s.mustGet("/audit")
	wantAll(t, "first", page, "Older", "&lt;script&gt;", `href="/kagzi/queues/`+url.PathEscape(hostile)+`"`)
	wantNone(t, "first", page, hostile, "Newest")
	entries, err := admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{Limit: auditRows})
	if err != nil {
		t.Fatal(err)
	}
	second := s.mustGet("/audit?after=" + entries[auditRows-1].ID)
	wantAll(t, "second", second, "Newest")
	if n := strings.Count(second, `id="entry-`); n != 2 {
		t.Errorf("the second page has %d entries", n)
	}
}
