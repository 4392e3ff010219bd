package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Screen is the data of a page's template.
type Screen struct {
	V         any // the view model that the look returned
	Query     Query
	Namespace string
	Actor     string
	ReadOnly  bool   // no viewer can change anything
	Said      string // what the last change did
	Old       *old   // nil unless V is an old answer
	Live      bool   // the page has a stream
	section   string // the first element of the path
	parts     map[string]any
	at        time.Time        // when the answer V was looked up
	partsAt   map[string]int64 // and those of the parts
	may       func(Action) bool
	asked     int      // changes that this page may have buttons for
	allowed   int      // those of them that Access allows
	usual     []Action // for OnlyReads, on a page without buttons
}

// An old says why a page shows an old answer.
type old struct {
	At    time.Time // when the answer was good
	Since time.Time // since when there is no new one
	Err   string
}

// event returns what a stream says of it.
func (o *old) event() string {
	said, _ := json.Marshal(map[string]any{"since": o.Since.UTC().Format(time.RFC3339), "text": o.Err}) // strings
	return string(said)
}

// May reports whether to show the button of a change.
func (s *Screen) May(a Action) bool {
	allowed := s.may != nil && s.may(a)
	if s.asked++; allowed {
		s.allowed++
	}
	return allowed
}

// Sees reports whether the viewer may see something besides the page.
func (s *Screen) Sees(a Action) bool { return s.may != nil && s.may(a) }

// OnlyReads reports whether Access refuses all changes that the page has buttons for. The layout asks it after the
// page's own content is there.
func (s *Screen) OnlyReads() bool {
	if s.asked > 0 || s.may == nil {
		return s.asked > 0 && s.allowed == 0
	}
	return !slices.ContainsFunc(s.usual, s.may)
}

// Rest says why the page has no stream, or has one no more. A view may say it itself.
func (s *Screen) Rest() string {
	if v, ok := s.V.(interface{ Rest() string }); ok {
		return v.Rest()
	}
	return "This page does not change any more."
}

// Part returns the view model of a part; nil if it is not there yet.
func (s *Screen) Part(name string) any { return s.parts[name] }

// Section returns the first element of the page's path.
func (s *Screen) Section() string { return s.section }

// rights returns what the viewer may do.
func (s *Screen) rights() func(Action) bool { return s.may }

// asking returns a copy of the screen that says what Access is asked, and what it answers.
func (s *Screen) asking(note func(a Action, ok bool)) *Screen {
	asking := *s
	asking.may = func(a Action) bool {
		ok := s.may(a)
		note(a, ok)
		return ok
	}
	return &asking
}

// key is the key under which what the screen shows is shared.
func (s *Screen) key(more ...string) string { return s.Query.key(more...) }

// stamp changes whenever there are new answers for the screen.
func (s *Screen) stamp() string {
	return fmt.Sprint(s.at.UnixNano(), s.partsAt)
}

// screens makes the screens of requests.
type screens struct {
	namespace string
	access    Access
	usual     []Action
}

// of returns the screen of a request, without a view model.
func (f screens) of(r *http.Request, who Viewer, q Query) *Screen {
	section, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return &Screen{
		Query: q, Namespace: f.namespace, Actor: who.name(), ReadOnly: f.access.ReadOnly(), section: section,
		may: who.rights(), parts: map[string]any{}, usual: f.usual,
	}
}

// query returns the path and the fields of the request.
func (s *Screen) query() Query { return s.Query }

// says lets the page say what the last change did.
func (s *Screen) says(text string) { s.Said = text }

// lives reports whether the page has a stream.
func (s *Screen) lives() bool { return s.Live }

// outage returns why the page shows an old answer; nil if it does not.
func (s *Screen) outage() *old { return s.Old }

// shows puts a view into the screen.
func (s *Screen) shows(view any, live bool) { s.V, s.Live = view, live }

// answers puts the answer of the page's look into the screen, and reports whether it is an old one.
func (s *Screen) answers(view any, at time.Time, live bool, outage *old) {
	s.V, s.at, s.Old, s.Live = view, at, outage, live
}

// keeps puts the answer for a part into the screen, without saying that it is new.
func (s *Screen) keeps(part string, view any) { s.parts[part] = view }

// notes puts the answer for a part into the screen, with when it was looked up.
func (s *Screen) notes(part string, view any, at time.Time) {
	s.parts[part] = view
	if s.partsAt == nil {
		s.partsAt = map[string]int64{}
	}
	s.partsAt[part] = at.UnixNano()
}
