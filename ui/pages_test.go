package ui

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// wantAll fails the test unless the page has all texts.
func wantAll(t *testing.T, path, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s lacks %q", path, text)
		}
	}
}

// wantNone fails the test if the page has one of the texts.
func wantNone(t *testing.T, path, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("%s has %q", path, text)
		}
	}
}

// region returns the next region of that id that a stream sends, for which ok is true.
func region(next func() sse, id string, ok func(html string) bool) string {
	return until(next, func(e sse) bool {
		return e.name == "region" && strings.Contains(e.data, `id="`+id+`"`) && ok(e.data)
	}).data
}

func has(text string) func(string) bool {
	return func(html string) bool { return strings.Contains(html, text) }
}

func TestPagesWithoutDataExplainThemselves(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for path, want := range map[string][]string{
		"/schedules":           {"No schedules", "client.Schedule(ctx"},
		"/schedules?name=x":    {"No schedule matches"},
		"/schedules?after=x":   {"No further schedule"},
		"/topics":              {"No topics", "topic.Define"},
		"/topics?name=x":       {"No topic matches", "No consumer matches"},
		"/limits":              {"Nothing is paused", "admin.New(client).Queues.Set", "admin.New(client).Limits.Set"},
		"/queues/shop":         {"No keys", "kagzi.Key("},
		"/queues/shop?order=x": {"There is no such order"},
		"/groups":              {"No groups", "kagzi.Group("},
		"/workers":             {"No worker is live", "kagzi.NewWorker"},
		"/workers?queue=x":     {"No worker matches"},
		"/workers?status=lost": {"There is no status"},
		"/workers?label=x":     {"has no value"},
		"/stranded":            {"Nothing is stranded"},
		"/doctor":              {"The doctor needs the pool", "ui.Config{Pool: pool}"},
	} {
		wantAll(t, path, s.mustGet(path), append(want, "<h1", "aria-current=\"page\"")...)
	}
	for _, path := range []string{
		"/schedules/none", "/topics/none", "/consumers/none",
		"/workers/01987654-0000-7000-8000-000000000000",
	} {
		if r := s.get(path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	for _, path := range []string{"/workers/junk", "/topics/none?event=first", "/topics/none?event=7"} {
		if r := s.get(path); r.StatusCode < 400 || r.StatusCode >= 500 {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

const hostile = `"><script>alert(1)</script><img src=x onerror='x'>`

func TestPagesEscapeHostileNames(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody, Pool: k.Pool})
	wf := kagzi.Define[string, string](hostile, kagzi.Queue(hostile))
	about, consumed := topic.Define[string](hostile), hostile+"c"
	consumer := topic.DefineConsumer(consumed, topic.ConsumerConfig{Topics: []topic.AnyTopic{about}, Queue: hostile})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
		Queue: hostile, Build: hostile,
		Labels: map[string]string{hostile: hostile},
	})
	kagzi.Handle(w, wf, func(_ kagzi.Context, in string) (string, error) { return in, nil })
	topic.Consume(w, consumer, func(kagzi.Context, string) (string, error) { return hostile, nil })
	kit.StartWorker(t, w)
	await.True(t, "the worker is registered", func() bool { return k.Count(`SELECT count(*) FROM kagzi.workers`) == 1 })
	why := []kagzi.ChangeOption{kagzi.Actor(hostile), kagzi.Reason(hostile)}
	for _, err := range []error{
		k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: hostile, Run: wf.With(hostile, kagzi.Metadata{hostile: hostile},
			kagzi.Key(hostile)), Cron: "0 7 * * *"}),
		admin.New(k.Client).Queues.Set(k.Ctx,
			admin.QueueLimits{Queue: hostile, EachKey: admin.KeyLimits{MaxRunning: 1}}),
		admin.New(k.Client).Keys.Set(k.Ctx, hostile, hostile, admin.KeyLimits{Weight: 2}),
		admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{Name: hostile, MaxRunning: 2}),
		admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: hostile}, why...),
		admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: hostile, Key: hostile}, why...),
		admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Group: "consumer " + consumed}, why...),
		topic.New(k.Client).Publish(k.Ctx, about.With(hostile).Title(hostile).WithID(hostile)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	kit.Begin(k, kagzi.Define[string, string](hostile+"2", kagzi.Queue(hostile)), hostile, kagzi.ID(hostile))
	name := url.PathEscape(hostile)
	for _, path := range []string{
		"/schedules", "/schedules/" + name, "/topics", "/topics/" + name, "/consumers/" + url.PathEscape(consumed),
		"/limits", "/queues/" + name, "/groups", "/workers",
		"/workers/" + kit.Only(t, k.Client, admin.WorkerFilter{}).ID, "/stranded", "/audit", "/doctor",
		"/schedules?name=" + url.QueryEscape(hostile), "/workers?status=" + url.QueryEscape(hostile), "/topics/" +
			name + "?event=" + url.QueryEscape(hostile),
	} {
		r := s.get(path + map[bool]string{true: "&wait", false: "?wait"}[strings.Contains(path, "?")])
		if r.StatusCode >= 500 {
			t.Errorf("%s: %s", path, r.Status)
		}
		wantNone(t, path, r.body, "<script>alert", "<img", "onerror='x'>")
	}
	region(s.stream("/topics/"+name), "topic-events", func(html string) bool {
		wantNone(t, "the stream", html, "<script>alert")
		return strings.Contains(html, "&lt;script&gt;alert")
	})
}

func TestPagesHidePayloads(t *testing.T) {
	k := kit.New(t)
	s, hiding := newSite(k, Config{}), newSite(k, Config{HidePayloads: true})
	const secret = "s3cret"
	about := topic.Define[string]("mail")
	consumer := topic.DefineConsumer("sorter", topic.ConsumerConfig{Topics: []topic.AnyTopic{about}, Queue: "default"})
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	topic.Consume(w, consumer, func(ctx kagzi.Context, _ string) (string, error) {
		events, err := topic.Peek(ctx, "new", about, 10)
		if err != nil {
			return "", err
		}
		return secret, topic.Reserve(ctx, "new", events...)
	})
	kit.StartWorker(t, w)
	k.Schedule(kagzi.Schedule{Name: "nightly", Run: echo.With(secret), Cron: "0 7 * * *"})
	large := secret + strings.Repeat("x", 2*largeEvent)
	for _, payload := range []string{secret, large} {
		if err := topic.New(k.Client).Publish(k.Ctx, about.With(payload)); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "the consumer is stored", func() bool {
		all, err := admin.New(k.Client).Consumers.List(k.Ctx)
		return err == nil && len(all) == 1
	})
	region(s.stream("/consumers/sorter"), "consumer-value", has(secret))
	events, err := s.all.topics.newestEvents(k.Ctx, "mail")
	if err != nil || len(events) != 2 {
		t.Fatal(events, err)
	}
	one := "/topics/mail?event=" + strconv.FormatInt(events[1].Position, 10)
	for _, path := range []string{"/schedules/nightly", "/topics/mail", one, "/consumers/sorter"} {
		wantAll(t, path, s.mustGet(path), secret)
		page := hiding.mustGet(path)
		wantNone(t, path, page, secret)
		wantAll(t, path, page, "hidden, ")
	}
	page := s.mustGet("/topics/mail")
	wantAll(t, "/topics/mail", page, `href="/kagzi`+one+`">Show the payload`)
	wantNone(t, "/topics/mail", page, secret+"xxx")
	wantAll(t, one, s.mustGet(one), secret+"xxx")
}

// keeping lets a site begin with all that another one knows.
func keeping(s *site) func(*web.Config) {
	return func(c *web.Config) { c.Cache = s.web.Cache }
}

func TestOutagesShowWhatWasKnown(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	k.Schedule(kagzi.Schedule{Name: "nightly", Run: echo.With("x"), Cron: "0 7 * * *"})
	paths := []string{"/schedules", "/schedules/nightly", "/topics", "/limits", "/workers", "/stranded"}
	for _, path := range paths {
		s.mustGet(path)
	}
	away := &kit.Kit{T: t, Ctx: k.Ctx, Client: kit.NewClientWith(t, kit.Unreachable(t), kagzi.ClientConfig{})}
	s.web.Cache.Expire() // so that the next page looks again
	s = newSite(away, Config{}, keeping(s))
	for _, path := range paths {
		wantAll(t, path, s.mustGet(path), "<strong>Postgres gives no answer</strong>")
	}
}
