package test

import (
	"context"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui"
)

// With HidePayloads no payload reaches the browser: not of the run, its steps and messages, nor of schedules, events
// and forms.
func TestHiddenPayloads(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody, HidePayloads: true})
	const secret = "s3cr3t"
	answer := kagzi.DefineSignal[string]("answer")
	wf := kagzi.Define[string, string]("keeper")
	kit.Serve(k, wf, func(ctx kagzi.Context, in string) (string, error) {
		if _, err := kagzi.Step(ctx, "store", func(context.Context) (string, error) { return "output " + secret, nil },
			kagzi.Input("input "+secret)); err != nil {
			return "", err
		}
		return kagzi.WaitSignal(ctx, answer)
	})
	run := kit.Begin(k, wf, secret)
	k.Signal(run.ID(), answer.With("message "+secret))
	if got := kit.ResultOf(k, run); !strings.Contains(got, secret) {
		t.Fatal(got)
	}
	k.Schedule(kagzi.Schedule{Name: "hourly", Run: wf.With(secret), Cron: "0 * * * *"})
	if err := topic.New(k.Client).Publish(k.Ctx, topic.Define[string]("mail").With("event "+secret).
		WithID("m1")); err != nil {
		t.Fatal(err)
	}
	page := path("runs", string(run.ID()))
	for _, at := range []string{
		page, page + "/restart", page + "/fork", "/schedules/hourly",
		"/schedules/hourly/trigger", "/topics/mail", "/runs", "/",
	} {
		tb.open(at)
		eval[bool](tb, `(document.querySelectorAll("details").forEach((d) => { d.open = true }), true)`)
		if strings.Contains(eval[string](tb, `document.documentElement.outerHTML`), secret) {
			t.Errorf("%s has a payload", at)
		}
	}
	tb.open(page)
	for _, id := range []string{"data", "steps", "messages"} {
		// within folds
		if text := eval[string](tb, `document.querySelector("#`+id+`").textContent`); !strings.Contains(text,
			"hidden, ") {
			t.Errorf("#%s does not say that a payload is hidden: %s", id, text)
		}
	}
	tb.allow("403", "404")
	for _, of := range []string{"input", "output"} {
		if text := eval[string](tb, `fetch(location.pathname + "/raw?of=`+of+
			`").then((r) => r.text())`); strings.Contains(text, secret) {
			t.Errorf("the raw %s is %s", of, text)
		}
	}
}
