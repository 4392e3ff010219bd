package ui

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestStreamsShareRegionsOfThoseWithTheSameRights(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: func(r *http.Request, a Action) (string, error) {
		if a.Changes() && r.Header.Get("Cookie") != "operator=1" {
			return "", errors.New("operators only")
		}
		return "mira", nil
	}})
	run := kit.Begin(k, echo, "x")
	path := "/runs/" + string(run.ID())
	var readers, operators []func() sse
	for range 3 {
		readers, operators = append(readers, s.stream(path)), append(operators, s.stream(path, "Cookie", "operator=1"))
	}
	shows := func(status string) {
		t.Helper()
		head := func(e sse) bool { return strings.Contains(e.data, `id="head"`) && strings.Contains(e.data, status) }
		for i := range readers {
			if e := until(readers[i], head); strings.Contains(e.data, "data-dialog") {
				t.Fatal("who only reads sees a button")
			}
			if e := until(operators[i], head); !strings.Contains(e.data, "data-dialog") {
				t.Fatal("an operator sees no button")
			}
		}
	}
	shows("Pending")
	k.Cancel(run)
	shows("Cancelled")
	s.d.rendered.mu.Lock()
	defer s.d.rendered.mu.Unlock()
	if n := len(s.d.rendered.by); n > 1 {
		t.Errorf("the regions of %d pages are kept", n)
	}
}

func TestRegionsAreKeptForStreamsOnly(t *testing.T) {
	var r renderings
	allow := func(ok bool) func(Action) bool { return func(Action) bool { return ok } }
	leave, leaveToo := r.enter("/"), r.enter("/")
	one := &rendering{asked: []Action{{Verb: Cancel}}, allowed: []bool{true}}
	r.keep("/", "1", one)
	if got := r.find("/", "1"); len(got) != 1 || !got[0].fits(allow(true)) || got[0].fits(allow(false)) {
		t.Errorf("found %v", got)
	}
	if r.find("/", "2") != nil || r.find("/runs", "1") != nil {
		t.Error("an old rendering was found, or one of another page")
	}
	for i := range 100 {
		r.keep("/", "2", one)
		r.keep(fmt.Sprint("/", i), "2", one)
	}
	if len(r.find("/", "2")) != mostRights || len(r.by) != 1 {
		t.Errorf("%d renderings of %d pages are kept", len(r.find("/", "2")), len(r.by))
	}
	leave()
	if r.find("/", "2") == nil {
		t.Error("the other stream has lost its renderings")
	}
	if leaveToo(); len(r.by) != 0 {
		t.Error("renderings outlive their streams")
	}
}

func TestACarriageReturnMakesNoEvent(t *testing.T) {
	var events bytes.Buffer
	event(&events, "region", []byte("a\rb\r\nc\n\r\revent: gone\rdata: x\r\r"))
	for line := range strings.FieldsFuncSeq(events.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if line != "event: region" && !strings.HasPrefix(line, "data: ") {
			t.Errorf("the stream has the line %q", line)
		}
	}
	if strings.Contains(strings.TrimSuffix(events.String(), "\n\n"), "\n\n") {
		t.Errorf("it is more than one event: %q", events.String())
	}
	k := kit.New(t)
	s := newSite(k, Config{})
	const evil = "x\r\revent: gone\rdata: You were logged out\r\r"
	run := kit.Begin(k, echo, evil, kagzi.Metadata{"tag": evil})
	next := s.stream("/runs/" + string(run.ID()))
	if e := until(next, func(e sse) bool { return strings.Contains(e.data, `id="data"`) }); strings.Contains(e.data,
		"\r") {
		t.Errorf("a carriage return is sent: %q", e.data)
	}
}
