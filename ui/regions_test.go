package ui

import (
	"errors"
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
}

func TestACarriageReturnOfARunMakesNoEvent(t *testing.T) {
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
