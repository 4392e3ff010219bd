package ui

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// Failures of one cause are one row, whatever their numbers, with a link to exactly its runs.
func TestFailuresAreGrouped(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	wantAll(t, "no failures", s.mustGet("/failures"), "No run has failed", `href="/kagzi/failures?within=7d"`)
	s.web.Cache.Expire()
	order, ship := kagzi.Define[int, string]("order"), kagzi.Define[int, string]("ship")
	fail := func(ctx kagzi.Context, n int) (string, error) {
		step := []string{"charge", "refund"}[n%2]
		return kagzi.Step(ctx, step, func(context.Context) (string, error) {
			return "", fmt.Errorf("card %d of <ada> was declined: %w", 4000+n, kind.BadRequest)
		})
	}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, order, fail)
	kagzi.Handle(w, ship, fail)
	kit.StartWorker(t, w)
	for n := range 3 {
		kit.FailureOf(k, kit.Begin(k, order, n, kagzi.ID(fmt.Sprint("order-", n))), kagzi.StatusFailed)
	}
	kit.FailureOf(k, kit.Begin(k, ship, 1), kagzi.StatusFailed)
	page := s.mustGet("/failures")
	wantAll(t, "failures", page, "4 runs, 3 causes", "card # of &lt;ada&gt; was declined", "step charge", "step refund",
		">order-2</a>",
		`aria-label="trend in steps of 1 h: 2 runs at most, 2 in the last one"`)
	runs := regexp.MustCompile(`href="/kagzi(/runs\?[^"]*)" title="Show the runs"><strong>([0-9]+)<`)
	links := runs.FindAllStringSubmatch(page, -1)
	if len(links) != 3 {
		t.Fatalf("there are %d groups: %v", len(links), links)
	}
	for _, link := range links {
		list := s.mustGet(html.UnescapeString(link[1]))
		if n := fmt.Sprint(strings.Count(list, `<tr id="run-`)); n != link[2] {
			t.Errorf("%s has %s runs, and the group %s", link[1], n, link[2])
		}
	}
	one := s.mustGet("/failures?within=1h&workflow=ship")
	wantAll(t, "failures of a workflow", one, "1 run, 1 cause", "step refund")
	wantNone(t, "failures of a workflow", one, "step charge</small>")
	wantAll(t, "failures of another workflow", s.mustGet("/failures?workflow=other"), "No run of this workflow")
	if r := s.get("/failures?within=1y"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("another time: %s", r.Status)
	}
}

// The link of a group asks for the longest text that its runs have in common.
func TestLiteralPartsOfFailures(t *testing.T) {
	for want, g := range map[string]admin.FailureGroup{
		"":                      {Text: "#", Error: "7"},
		"was declined":          {Text: "card # was declined", Error: "card 7 was declined"},
		`step "charge": card`:   {Step: "charge", Text: "card # declined", Error: `step "charge": card 7 declined`},
		"is away: no answer":    {Step: "a", Text: "# is away: no answer", Error: `x: 7 is away: no answer`},
		`step "a":`:             {Step: "a", Text: "#", Error: `step "a": 7 (unknown, 1 attempt)`},
		strings.Repeat("é", 60): {Text: strings.Repeat("é", 100), Error: strings.Repeat("é", 100)},
	} {
		if got := literal(g); got != want {
			t.Errorf("%+v: %q, not %q", g, got, want)
		}
	}
}
