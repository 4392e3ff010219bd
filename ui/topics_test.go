package ui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui/internal/web"
)

func TestNewestEventsOfALongTopic(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	long, other := topic.Define[int]("long"), topic.Define[int]("other")
	publish := func(about topic.Topic[int], from, to int) {
		t.Helper()
		var events []topic.NewEvent
		for n := from; n < to; n++ {
			events = append(events, about.With(n).Title(fmt.Sprintf("number %d of it", n)))
		}
		if err := topic.New(k.Client).PublishMany(k.Ctx, events); err != nil {
			t.Fatal(err)
		}
	}
	newest := func(want int) {
		t.Helper()
		events, err := s.all.topics.eventsOf(k.Ctx, web.Query{}, "long")
		if err != nil || len(events) != fewEvents {
			t.Fatalf("%d events, %v", len(events), err)
		}
		for i, e := range events {
			if string(e.Payload) != fmt.Sprint(want-i) {
				t.Fatalf("event %d is %s, not %d", i, e.Payload, want-i)
			}
		}
	}
	publish(other, 0, 2000) // so that positions are far apart
	publish(long, 0, 3000)
	publish(other, 0, 7000)
	newest(2999)
	publish(long, 3000, 3030) // the tail that is remembered goes on
	newest(3029)
	publish(long, 3030, 4000) // it is too old
	newest(3999)
	k.Exec(`DELETE FROM kagzi.events WHERE topic = 'long' AND position < (SELECT max(position) - 20 FROM kagzi.events
		WHERE topic = 'long')`)
	if events, err := s.all.topics.eventsOf(k.Ctx, web.Query{}, "long"); err != nil || len(events) != 21 {
		t.Errorf("after retention: %d events, %v", len(events), err)
	}
	page := s.mustGet("/topics/other")
	wantAll(t, "/topics/other", page, "1,000&#43;", "50 of them", "number 6999 of it", "number 6950 of it")
	wantNone(t, "/topics/other", page, "number 6949 of it")
	next := s.stream("/topics/other")
	publish(other, 7000, 7001)
	region(next, "topic-events", has("number 7000 of it"))
}

func TestEventsOfOtherSorts(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{RunEvents: true})
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x")
	wantAll(t, "the topic of runs", s.mustGet("/topics/"+topic.Runs.Name()), string(run.ID()), "PENDING")
	if err := topic.New(k.Client).Publish(k.Ctx, topic.Define[string]("sealed").With("x")); err != nil {
		t.Fatal(err)
	}
	k.Exec(`UPDATE kagzi.events SET payload = '\x0001ff' WHERE topic = 'sealed'`)
	wantAll(t, "the unreadable event", s.mustGet("/topics/sealed"), "unreadable", "does not decode")
}

func TestConsumers(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	about := topic.Define[string]("mail")
	subscribe := topic.ConsumerConfig{Topics: []topic.AnyTopic{about}, Queue: "default"}
	fine, fails := topic.DefineConsumer("fine", subscribe), topic.DefineConsumer("fails", subscribe)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	topic.Consume(w, fine, func(ctx kagzi.Context, n int) (int, error) {
		events, err := topic.Peek(ctx, "new", about, 10)
		if err != nil {
			return n, err
		}
		return n + len(events), topic.Reserve(ctx, "new", events...)
	})
	topic.Consume(w, fails, func(ctx kagzi.Context, n int) (int, error) {
		events, err := topic.Peek(ctx, "new", about, 10)
		if err == nil && len(events) > 0 {
			err = kagzi.Permanent(fmt.Errorf("the ledger is closed: %w", kind.Validation))
		}
		return n, err
	})
	kit.StartWorker(t, w)
	if err := topic.New(k.Client).Publish(k.Ctx, about.With("x")); err != nil {
		t.Fatal(err)
	}
	html := region(s.stream("/topics"), "consumer-rows", func(html string) bool {
		return strings.Contains(html, "Failed, paused") && strings.Contains(html, "Nothing pending") &&
			strings.Contains(html, "Completed")
	})
	if strings.Index(html, `id="consumer-fails"`) > strings.Index(html, `id="consumer-fine"`) {
		t.Error("the consumer that needs attention does not come first")
	}
	wantAll(t, "/topics", html, "Consumer fails is paused since", "by kagzi", "<strong>1</strong>")
	next := s.stream("/consumers/fails")
	wantAll(t, "the runs", region(next, "consumer-runs", has("Failed")), "the ledger is closed", "validation")
	wantAll(t, "/consumers/fails", s.mustGet("/consumers/fails"), "1 event, the oldest",
		"Events accumulate until that ends", "only when events come")
	wantAll(t, "/topics/mail", s.mustGet("/topics/mail"), `href="/kagzi/consumers/fails"`,
		`href="/kagzi/consumers/fine"`)
	page := s.mustGet("/topics?name=FINE")
	wantAll(t, "the filter", page, `id="consumer-fine"`, "No topic matches")
	wantNone(t, "the filter", page, `id="consumer-fails"`)
	wantAll(t, "/limits", s.mustGet("/limits"), "Consumer fails", `href="/kagzi/consumers/fails">its events`)
}

func TestManyTopicsAreBounded(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	var events []topic.NewEvent
	for n := range mostRows + 7 {
		events = append(events, topic.Define[int](fmt.Sprintf("topic-%03d", n)).With(n))
	}
	if err := topic.New(k.Client).PublishMany(k.Ctx, events); err != nil {
		t.Fatal(err)
	}
	page := s.mustGet("/topics")
	if n := strings.Count(page, `<tr id="topic-`); n != mostRows {
		t.Errorf("%d topics are shown", n)
	}
	wantAll(t, "/topics", page, "and 7 more")
	wantAll(t, "the filter", s.mustGet("/topics?name=106"), `id="topic-topic-106"`)
	await.True(t, "each topic has its page", func() bool { return s.get("/topics/topic-106").StatusCode == 200 })
}
