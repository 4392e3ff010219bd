package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestOverview(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	if page := s.mustGet("/"); !strings.Contains(page, "No runs yet") || !strings.Contains(page, "No worker is live") {
		t.Error("an empty namespace is not explained")
	}
	s.web.Cache.Every = 0
	fails := kagzi.Define[string, string]("fails")
	kit.Serve(k, fails, func(kagzi.Context, string) (string, error) { return "", kagzi.Permanent(errBroken) })
	kit.FailureOf(k, kit.Begin(k, fails, ""), kagzi.StatusFailed)
	page := until(s.stream("/"), func(e sse) bool {
		return strings.Contains(e.data, `id="failures"`) && strings.Contains(e.data, "unknown")
	})
	if !strings.Contains(page.data,
		`/kagzi/runs?ended-since=1h&amp;kind=unknown&amp;queue=default&amp;status=failed&amp;workflow=fails`) {
		t.Errorf("the failures have no link to their runs: %s", page.data)
	}
}

var errBroken = errors.New("broken")

func TestRunsAreFiltered(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	other := kagzi.Define[string, string]("other", kagzi.Queue("side"))
	kit.Begin(k, echo, "x", kagzi.ID("one"), kagzi.Metadata{"tenant": "acme", "plan": "pro"}, kagzi.Key("k7"))
	two := kit.Begin(k, other, "x", kagzi.ID("two"), kagzi.Delay(time.Hour), kagzi.Group("g"))
	k.Cancel(kit.Begin(k, echo, "x", kagzi.ID("three")))
	for query, want := range map[string]string{
		"":                                     "one two three",
		"status=active":                        "one two",
		"status=cancelled":                     "three",
		"workflow=other":                       "two",
		"queue=default&status=pending":         "one",
		"id=one":                               "one",
		"id=" + string(two.ID()):               "two",
		"id=01987654-0000-7000-8000-000000000": "",
		"metadata=tenant%3Dacme%2C+plan%3Dpro": "one",
		"metadata=tenant%3Dother":              "",
		"key=k7":                               "one",
		"group=g":                              "two",
		"since=1h":                             "one two three",
		"until=1h":                             "",
		"ended-since=1h":                       "three",
		"kind=cancelled&status=":               "three",
		"parent=" + string(two.ID()):           "",
		"workflow=+other+":                     "two",
	} {
		page := s.mustGet("/runs?" + query)
		for _, id := range []string{"one", "two", "three"} {
			if shown := strings.Contains(page, ">"+id+"<"); shown != strings.Contains(want, id) {
				t.Errorf("%q: %s is shown: %v", query, id, shown)
			}
		}
	}
	fails := kagzi.Define[string, string]("fails")
	kit.Serve(k, fails, func(kagzi.Context, string) (string, error) {
		return "", kagzi.Permanent(errors.New("The card was declined"))
	})
	failed := kit.Begin(k, fails, "", kagzi.ID("four"))
	kit.FailureOf(k, failed, kagzi.StatusFailed)
	for query, want := range map[string]bool{"error=CARD+was": true, "error=card+is": false} {
		if page := s.mustGet("/runs?" + query); strings.Contains(page, ">four<") != want {
			t.Errorf("%q: shown: %v", query, !want)
		}
	}
	for query, want := range map[string]string{
		"status=lost": "There is no status", "since=yesterday": "is no time", "metadata=x": "has no value",
		"parent=7": "is no run ID",
	} {
		if page := s.mustGet("/runs?" + query); !strings.Contains(page, want) {
			t.Errorf("%q is not refused", query)
		}
	}
}

func TestRunsHavePages(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	var calls []kagzi.Call
	for range 2*pageSize + 1 {
		calls = append(calls, echo.With("x"))
	}
	if _, err := k.Client.StartMany(k.Ctx, calls); err != nil {
		t.Fatal(err)
	}
	path, seen := "/runs?queue=default", map[string]bool{}
	for _, want := range []int{pageSize, pageSize, 1} {
		page := s.mustGet(path)
		if n := strings.Count(page, `<tr id="run-`); n != want {
			t.Fatalf("%s has %d runs, not %d", path, n, want)
		}
		for row := range strings.SplitSeq(page, `<tr id="run-`) {
			seen[row[:36]] = true
		}
		if _, rest, ok := strings.Cut(page, `rel="next" href="/kagzi`); ok {
			path, _, _ = strings.Cut(strings.ReplaceAll(rest, "&amp;", "&"), `"`)
		} else if want != 1 {
			t.Fatalf("%s has no next page", path)
		}
	}
	if len(seen) != 2*pageSize+2 { // and what is before the first row
		t.Errorf("%d different runs were shown", len(seen)-1)
	}
	until(s.stream("/runs"), func(e sse) bool { return strings.Contains(e.data, `Pending <span class="n">101</span>`) })
}

func TestFind(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	one := kit.Begin(k, echo, "x", kagzi.ID("one"))
	k.Cancel(kit.Begin(k, echo, "x", kagzi.ID("twice")))
	kit.Begin(k, echo, "x", kagzi.ID("twice"))
	for q, want := range map[string]string{
		"order-42":                             "/kagzi/runs?id=order-42",
		" one ":                                "/kagzi/runs/" + string(one.ID()),
		"twice":                                "/kagzi/runs?id=twice",
		"\xff":                                 "/kagzi/runs?id=%FF",
		"01987654-0000-7000-8000-00000000ABCD": "/kagzi/runs/01987654-0000-7000-8000-00000000abcd",
		"":                                     "/kagzi/runs",
		"//evil.example":                       "/kagzi/runs?id=%2F%2Fevil.example",
	} {
		if r := s.get("/find?q=" + url.QueryEscape(q)); r.StatusCode != http.StatusSeeOther ||
			r.Header.Get("Location") != want {
			t.Errorf("%q: %s to %s", q, r.Status, r.Header.Get("Location"))
		}
	}
}

func TestHostileNamesAreEscaped(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	const evil = `"><script>alert(1)</script><img src=x onerror='x'>`
	wf := kagzi.Define[string, string](evil, kagzi.Queue(evil))
	kit.Begin(k, wf, evil, kagzi.ID(evil), kagzi.Metadata{"a": evil}, kagzi.Key(evil))
	for _, path := range []string{"/", "/runs", "/runs?queue=" + url.QueryEscape(evil), "/runs?status=" +
		url.QueryEscape(evil), "/runs?since=" + url.QueryEscape(evil), "/" + url.PathEscape(evil)} {
		if body := s.get(path).body; strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") {
			t.Errorf("%s is not escaped", path)
		}
	}
	until(s.stream("/runs"), func(e sse) bool {
		if strings.Contains(e.data, "<script>alert") {
			t.Fatalf("the stream is not escaped: %s", e.data)
		}
		return strings.Contains(e.data, "&lt;script&gt;alert")
	})
}

func TestPayloads(t *testing.T) {
	s := newSite(kit.New(t), Config{})
	hiding := newSite(&kit.Kit{T: t, Ctx: s.Ctx, Client: s.Client}, Config{HidePayloads: true})
	show := func(s *site, data string) string {
		funcs := maps.Clone(s.web.Funcs)
		funcs["asset"], funcs["token"] = fmt.Sprint, fmt.Sprint // of package web
		shared, err := template.New("").Funcs(funcs).ParseFS(files, "templates/partials.html")
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := shared.ExecuteTemplate(&b, "payload",
			s.all.run.payloads.show(json.RawMessage(data), "/raw")); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	deep := strings.Repeat(`[`, 500) + strings.Repeat(`]`, 500)
	long := `["` + strings.Repeat("é", 50_000) + `"]`
	wide := `[` + strings.TrimSuffix(strings.Repeat(`1,`, 50_000), ",") + `]`
	for data, want := range map[string]string{
		"": "none", `{"b":1,"a":{"x":null}}`: `<span class="name">b</span>: <span class="number">1</span>`,
		"\x00\x01sealed":              "unreadable here",
		`"<script>alert(1)</script>"`: `"&lt;script&gt;`, `9007199254740993`: "9007199254740993", `[]`: "[]",
		`{}`: "{}",
		deep: "Only a part", long: "Only a part", wide: "and 49,",
	} {
		if html := show(s, data); !strings.Contains(html, want) || strings.Contains(html, "<script>") ||
			len(html) > 200_000 {
			t.Errorf("%.40s is shown as %.300s", data, html)
		}
		if html := show(hiding, data); data != "" &&
			(!strings.Contains(html, "hidden") || strings.Contains(html, "/raw") || strings.Contains(html, "alert")) {
			t.Errorf("%.40s is not hidden: %.300s", data, html)
		}
	}
}
