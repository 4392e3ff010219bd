package web

import (
	"fmt"
	"testing"
)

func TestRegionsAreKeptForStreamsOnly(t *testing.T) {
	var r renderings
	allow := func(ok bool) func(Action) bool { return func(Action) bool { return ok } }
	leave, leaveToo := r.enter("/"), r.enter("/")
	one := &rendering{asked: []Action{{Verb: "cancel"}}, allowed: []bool{true}}
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
