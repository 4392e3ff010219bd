package ui

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// The list hides the runs of consumers and of compensations if its address says so.
func TestRunsOfConsumersAndCompensationsAreHidden(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	s.web.Cache.Every = 0
	news := topic.Define[string]("news")
	reader := topic.DefineConsumer("reader", topic.ConsumerConfig{Topics: []topic.AnyTopic{news}})
	trip, undo := kagzi.Define[string, string]("trip"), kagzi.Define[string, string]("undo")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	topic.Consume(w, reader, func(kagzi.Context, string) (string, error) { return "", nil })
	kagzi.Handle(w, undo, func(kagzi.Context, string) (string, error) { return "", nil })
	kagzi.Handle(w, trip, func(ctx kagzi.Context, _ string) (string, error) {
		kagzi.Compensate(ctx, "book", undo.With("booking"))
		return "", kagzi.Permanent(errors.New("no seat"))
	})
	kit.StartWorker(t, w)
	kit.FailureOf(k, kit.Begin(k, trip, "", kagzi.ID("trip-1")), kagzi.StatusFailed)
	if err := topic.New(k.Client).Publish(k.Ctx, news.With("x")); err != nil {
		t.Fatal(err)
	}
	shows := func(query string) string {
		t.Helper()
		var names []string
		page := s.mustGet("/runs?" + query)
		for _, name := range []string{"trip", "undo", "reader"} {
			if strings.Contains(page, `data-label="Workflow">`+name+`<`) {
				names = append(names, name)
			}
		}
		return fmt.Sprint(names)
	}
	await.True(t, "the consumer has a run", func() bool { return shows("status=completed") == "[undo reader]" })
	for query, want := range map[string]string{
		"":                                  "[trip undo reader]",
		"hide=consumers":                    "[trip undo]",
		"hide=compensations":                "[trip reader]",
		"hide=consumers&hide=compensations": "[trip]",
	} {
		if got := shows(query); got != want {
			t.Errorf("%q shows %s, not %s", query, got, want)
		}
	}
	page := s.mustGet("/runs?hide=consumers")
	wantAll(t, "the list", page, `value="consumers" checked`, "2 runs on this page, ", " hidden</span>",
		"hide=consumers&amp;status=failed")
	wantNone(t, "the list", page, `name="all"`)
	wantAll(t, "everything", s.mustGet("/runs"), `name="all"`)
	wantAll(t, "only hidden ones", s.mustGet("/runs?workflow=reader&hide=consumers"), " of the sorts that are hidden")
	wantAll(t, "another sort", s.mustGet("/runs?hide=failures"), "nothing called")
	region(s.stream("/runs?hide=consumers"), "tabs", has(`All <span class="n">2</span>`))
	tabs := region(s.stream("/runs?hide=compensations"), "tabs", has("Completed"))
	wantNone(t, "the tabs", tabs, `class="n"`)
}

// A page of the list reads a bounded number of runs, however many of them are hidden, and the next one goes on there.
func TestHiddenRunsAreReadUpToABound(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	kit.Begin(k, echo, "x", kagzi.ID("oldest"))
	k.Exec(`
		INSERT INTO kagzi.consumers (namespace_id, consumer, run_key, task_queue, priority, least_wake, most_wake,
			pause_on_failure)
		VALUES ('default', 'reader', 'consumer reader', 'side', 2, '0', '1 h', false)`)
	reader := kagzi.Define[string, string]("reader")
	var calls []kagzi.Call
	for range mostSifted + siftedAtOnce {
		calls = append(calls, reader.With("x"))
	}
	if _, err := k.Client.StartMany(k.Ctx, calls); err != nil {
		t.Fatal(err)
	}
	page := s.mustGet("/runs?hide=consumers")
	wantAll(t, "the first page", page, "The 1,000 newest runs are hidden")
	_, rest, _ := strings.Cut(page, `newest runs are hidden. <a href="/kagzi`)
	next, _, _ := strings.Cut(rest, `"`)
	wantAll(t, "the next page", s.mustGet(html.UnescapeString(next)), ">oldest<", "1 run on this page, 250 hidden")
}
