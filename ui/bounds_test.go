package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

func TestLongAddressesAndTokensAreRefused(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	for _, path := range []string{"/runs?error=", "/runs/" + string(run.ID()) + "?open=", "/schedules/", "/find?q="} {
		if r := s.get(path + strings.Repeat("x", web.MaxAddress)); r.StatusCode != http.StatusRequestURITooLong {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	s.refused(http.StatusBadRequest, "too long", runPath(run)+"cancel", "form", strings.Repeat("x", 101))
}

// weight returns the size of a node as it is shown.
func weight(n *node) (bytes int) {
	bytes = len(n.Name) + len(n.Text)
	for _, c := range n.Children {
		bytes += weight(c)
	}
	return bytes
}

func TestLargePayloadsAreShownInPart(t *testing.T) {
	var all payloads
	long := strings.Repeat("é", 1<<20)
	object, texts := map[string]string{}, []string{}
	for i := range 2000 {
		object[fmt.Sprint(i)+long[:200]] = long[:200]
		texts = append(texts, long[:mostText])
	}
	as := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, data := range map[string]string{
		"deep":   strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		"nested": strings.Repeat(`{"a":`, 9_999) + "1" + strings.Repeat("}", 9_999),
		"digits": strings.Repeat("1", 4<<20),
		"name":   as(map[string]int{long: 1}),
		"text":   as(long),
		"object": as(object),
		"texts":  as(texts),
		"many":   "[" + strings.Repeat("1,", 1<<20) + "1]",
	} {
		p := all.show(json.RawMessage(data), "/raw")
		if p.Root == nil || !p.Cut || p.Raw == "" {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		if n := weight(p.Root); n > 100<<10 {
			t.Errorf("%s: %d bytes are shown", name, n)
		}
	}
	if p := all.show(json.RawMessage(`{"a":[1,"é",null,true,{"b":1.50}]}`), ""); p.Cut || weight(p.Root) != len("a")+1+
		len("é")+len("nulltrue")+1+len("1.50")+len("01234") {
		t.Errorf("a small one is cut: %d", weight(p.Root))
	}
}

func TestPagesOfHugeRunsAreBounded(t *testing.T) {
	k := kit.New(t)
	began := time.Now().Add(-time.Hour)
	attempt := func(name string, n int) kagzi.StepAttempt {
		return kagzi.StepAttempt{
			Step: name, Type: "FUNCTION", Attempt: n, Status: kagzi.StatusFailed, Error: strings.Repeat("boom\n", 3000),
			Kind:      "unknown",
			StartedAt: began.Add(time.Duration(n) * time.Millisecond),
			EndedAt:   began.Add(time.Duration(n+1) * time.Millisecond),
		}
	}
	for name, c := range map[string]struct {
		steps, attempts int
	}{"steps": {20_000, 1}, "attempts": {1, 20_000}, "both": {500, 40}} {
		var all []kagzi.StepAttempt
		for i := range c.steps {
			for n := range c.attempts {
				all = append(all, attempt(fmt.Sprintf("step %d", i), n+1))
			}
		}
		v := &runView{
			workers: &workersLane{}, Input: payload{Empty: true}, Output: payload{Empty: true},
			Run: kagzi.RunInfo{
				ID: "01987654-0000-7000-8000-000000000000", Status: kagzi.StatusRunning,
				CreatedAt: began,
			},
		}
		q := web.Query{URL: "/runs/x"}
		h := newHistory("", all, nil)
		h.payloads.add(all, false)
		chosen, err := choose(q, h.steps)
		if err != nil {
			t.Fatal(err)
		}
		v.Timeline = chosen.timeline(lanes{v.Run, v.Log, v.Messages, v.workers}, time.Now())
		if v.Steps, err = (&runPage{}).table(t.Context(), chosen, v.Run, v.workers, h); err != nil {
			t.Fatal(err)
		}
		shown := newSite(k, Config{}, func(c *web.Config) {
			c.Routes.Pages = []web.Page{{
				Path: "/runs/x", Action: asks(View, OnOverview), Template: "run",
				Look: func(context.Context, web.Query) (any, error) { return v, nil },
			}}
		})
		if n := len(shown.mustGet("/runs/x")); n > 4<<20 {
			t.Errorf("%s: the page has %d KiB", name, n>>10)
		}
	}
}

func TestTheLogOfARunIsBounded(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x")
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	for range mostDrawn / 2 {
		if err := errors.Join(admin.New(k.Client).Runs.Unpause(k.Ctx, run.ID()),
			admin.New(k.Client).Runs.Pause(k.Ctx, run.ID())); err != nil {
			t.Fatal(err)
		}
	}
	page := s.mustGet("/runs/" + string(run.ID()))
	if n := strings.Count(page, `<tr id="log-`); n != mostDrawn ||
		!strings.Contains(page, "the newest; 1 came before") {
		t.Errorf("the page has %d changes", n)
	}
}

func TestMessagesAreReadInPortions(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x")
	signal := kagzi.DefineSignal[string]("news")
	for i := range 2*messagePortion + 5 {
		k.Signal(run.ID(), signal.With(fmt.Sprint("number ", i)).WithID(kagzi.ID(fmt.Sprint("m", i))))
	}
	page := s.mustGet("/runs/" + string(run.ID()))
	if n := strings.Count(page, `<tr id="message-`); n != 2*messagePortion+5 || strings.Contains(page, ", the first") {
		t.Errorf("the page has %d messages", n)
	}
	for i := range 2*messagePortion + 5 {
		if body := s.mustGet(fmt.Sprintf("/runs/%s/raw?of=message&signal=news&message=m%d", run.ID(), i)); body !=
			fmt.Sprintf(`"number %d"`, i) {
			t.Errorf("message %d is %s", i, body)
		}
	}
	for i := range mostMessages {
		k.Signal(run.ID(), signal.With("x").WithID(kagzi.ID(fmt.Sprint("n", i))))
	}
	if page := s.mustGet("/runs/" + string(run.ID()) + "?x=1"); strings.Count(page,
		`<tr id="message-`) != mostMessages || !strings.Contains(page, ", the first") {
		t.Error("the page does not say that there are more")
	}
}
