package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestFewLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		var under, most, busy atomic.Int64
		look := func(ctx context.Context) (any, error) {
			// A look within a look is a part of it.
			f := c.get(ctx, "within"+fmt.Sprint(under.Load()), time.Hour, func(context.Context) (any, error) {
				return 1, nil
			})
			for n := under.Add(1); n > most.Load(); {
				most.Store(n)
			}
			time.Sleep(time.Second)
			under.Add(-1)
			return f.view, f.err
		}
		for i := range 100 {
			go func() {
				if f := c.get(t.Context(), fmt.Sprint(i), time.Second, look); errors.Is(f.err, errBusy) && away(f.err) {
					busy.Add(1)
				} else if f.view != 1 {
					t.Errorf("a look has found %+v", f)
				}
			}()
		}
		time.Sleep(lookTimeout + time.Second)
		synctest.Wait()
		if most.Load() != mostLooks || under.Load() != 0 {
			t.Errorf("%d looks were under way at once", most.Load())
		}
		if n := busy.Load(); n > 100-5*mostLooks || n < 100-6*mostLooks { // the last four come when the others give up
			t.Errorf("%d of 100 gave up", n)
		}
		if f := c.get(t.Context(), "later", time.Second, look); f.err != nil {
			t.Errorf("afterwards: %v", f.err)
		}
	})
}

func TestLongAddressesAndTokensAreRefused(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	run := kit.Begin(k, echo, "x")
	for _, path := range []string{"/runs?error=", "/runs/" + string(run.ID()) + "?open=", "/schedules/", "/find?q="} {
		if r := s.get(path + strings.Repeat("x", maxAddress)); r.StatusCode != http.StatusRequestURITooLong {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	s.refused(http.StatusBadRequest, "too long", runPath(run)+"cancel", "form", strings.Repeat("x", maxToken+1))
	if n := len(s.d.once.sent); n != 0 {
		t.Errorf("%d forms are kept", n)
	}
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
	d := &dashboard{}
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
		p := d.payload(json.RawMessage(data), "/raw")
		if p.Root == nil || !p.Cut || p.Raw == "" {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		if n := weight(p.Root); n > 100<<10 {
			t.Errorf("%s: %d bytes are shown", name, n)
		}
	}
	if p := d.payload(json.RawMessage(`{"a":[1,"é",null,true,{"b":1.50}]}`), ""); p.Cut || weight(p.Root) != len("a")+1+
		len("é")+len("nulltrue")+1+len("1.50")+len("01234") {
		t.Errorf("a small one is cut: %d", weight(p.Root))
	}
}

func TestPagesOfHugeRunsAreBounded(t *testing.T) {
	s := newSite(kit.New(t), Config{})
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
		q := query{url: "/runs/x"}
		h := newHistory("", all, nil)
		h.payloads.add(all, false)
		chosen, err := choose(q, h.steps)
		if err != nil {
			t.Fatal(err)
		}
		v.Timeline = chosen.timeline(v, time.Now())
		if v.Steps, err = chosen.table(t.Context(), s.d, v, h); err != nil {
			t.Fatal(err)
		}
		var page bytes.Buffer
		if err := s.d.templates["run"].ExecuteTemplate(&page, "layout", &screen{V: v, Query: q}); err != nil {
			t.Fatal(err)
		}
		if page.Len() > 4<<20 {
			t.Errorf("%s: the page has %d KiB", name, page.Len()>>10)
		}
	}
}

func TestTheLogOfARunIsBounded(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, echo, "x")
	if err := k.Client.PauseRun(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	for range mostDrawn / 2 {
		if err := errors.Join(k.Client.UnpauseRun(k.Ctx, run.ID()), k.Client.PauseRun(k.Ctx, run.ID())); err != nil {
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
