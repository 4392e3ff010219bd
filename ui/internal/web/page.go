package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Page is a route of GET.
type Page struct {
	Path     string   // pattern of http.ServeMux, such as "/schedules/{name}"
	Action   Action   // its ID is the path's {id} or {name}
	Template string   // the file in templates, without .html
	Live     []string // the names of its live regions
	Look     Look
	Parts    []Part
	About    func(q Query) []Action // for what its query names, if its path does not: see guard
}

// on serves the page.
func (p Page) on(mux *http.ServeMux, g guard, serve func(http.ResponseWriter, *http.Request, Viewer, Page)) {
	mux.HandleFunc("GET "+exact(p.Path), g.before(p.Action, p.About, func(w http.ResponseWriter, r *http.Request,
		who Viewer,
	) {
		serve(w, r, who, p)
	}))
}

// file returns the name of its template.
func (p Page) file() string { return p.Template }

// parts returns its parts.
func (p Page) parts() []Part { return p.Parts }

// regions returns the names of its live regions.
func (p Page) regions() []string { return p.Live }

// ask returns the answer of the page's look, through the cache.
func (p Page) ask(ctx context.Context, c *Cache, q Query) Found {
	return c.shared(ctx, q.key(), func(ctx context.Context) (any, error) { return p.Look(ctx, q) })
}

// A Look asks the client for what a page shows.
type Look func(ctx context.Context, q Query) (any, error)

// A Part is what a page shows besides its look, and does not wait for.
type Part struct {
	Name  string // of the live region
	Every time.Duration
	Look  Look
	// Framing is a part of the layout: all pages share its answer, and the first waits for it. So its look is short.
	Framing bool
}

// framed returns the page with the parts of the layout. They are live on a page that is.
func (p Page) framed(frame []Part) Page {
	p.Parts = slices.Concat(p.Parts, frame)
	for _, part := range frame {
		if len(p.Live) > 0 {
			p.Live = append(slices.Clip(p.Live), part.Name)
		}
	}
	return p
}

// frames reports whether it is a part of the layout.
func (p Part) frames() bool { return p.Framing }

// name returns the name of its live region.
func (p Part) name() string { return p.Name }

// key returns the key of the part's answer for a query.
func (p Part) key(q Query) string {
	if p.Framing {
		return p.Name
	}
	return q.key(p.Name)
}

// ask returns the answer of the part's look, through the cache.
func (p Part) ask(ctx context.Context, c *Cache, q Query) Found {
	return c.Get(ctx, p.key(q), c.atLeast(p.Every), func(ctx context.Context) (any, error) { return p.Look(ctx, q) })
}

// A settled view never changes again, so its page needs no stream.
type settled interface{ Settled() bool }

// lives reports whether the view can change, so that the page needs a stream.
func (p Page) lives(view any) bool {
	end, ok := view.(settled)
	return len(p.Live) > 0 && !(ok && end.Settled())
}

// A Change is a route of POST.
type Change struct {
	Path   string
	Action Action
	Do     func(ctx context.Context, f Form) (Answer, error)
	About  func(q Query) []Action // for what its form names, if its path does not: see guard
}

// on serves the change.
func (c Change) on(mux *http.ServeMux, g guard, serve func(http.ResponseWriter, *http.Request, Viewer, Change)) {
	mux.HandleFunc("POST "+exact(c.Path), g.before(c.Action, c.About, func(w http.ResponseWriter, r *http.Request,
		who Viewer,
	) {
		serve(w, r, who, c)
	}))
}

// make makes the change.
func (c Change) make(ctx context.Context, f Form) (Answer, error) { return c.Do(ctx, f) }

// An Answer is what a change leads to: another page, with a sentence about the change, or a page of its own, such as
// a preview.
type Answer struct {
	To       string // path behind the dashboard's path
	Said     string
	Template string
	View     any
	Code     int  // of the page of its own; zero means 200
	Leads    bool // it leads there also from a dialog; else the page stays that the dialog was opened on
	Again    bool // the form may be sent again: it has changed nothing, or not all
}

// isPage reports whether the answer is a page of its own.
func (a Answer) isPage() bool { return a.Template != "" }

// again reports whether the form may be sent again.
func (a Answer) again() bool { return a.Again }

// onScreen puts the page of its own into the screen, and returns its status and template.
func (a Answer) onScreen(s *Screen) (code int, template string) {
	s.shows(a.View, false)
	return cmp.Or(a.Code, http.StatusOK), a.Template
}

// lead leads to the other page, where the sentence is shown.
func (a Answer) lead(w http.ResponseWriter, r *http.Request, links Links) {
	say(w, string(links), a.Said)
	to := links.To(a.To)
	if r.Header.Get("HX-Request") == "" {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	// a dialog asks, and the page under it is to change
	if under, err := url.Parse(r.Header.Get("HX-Current-URL")); err == nil && !a.Leads &&
		strings.HasPrefix(under.Path, string(links)) && !strings.HasPrefix(under.Path, "//") {
		to = under.RequestURI()
	}
	w.Header().Set("HX-Redirect", to)
}

// A Handler is a route of GET that is no page, such as a file.
type Handler struct {
	Path   string
	Action Action
	Serve  func(w http.ResponseWriter, r *http.Request) error // an error is shown by a page
}

// on serves what the handler answers.
func (h Handler) on(mux *http.ServeMux, g guard, fail func(http.ResponseWriter, *http.Request, Viewer, error)) {
	mux.HandleFunc("GET "+exact(h.Path), g.before(h.Action, nil, func(w http.ResponseWriter, r *http.Request,
		who Viewer,
	) {
		if err := h.Serve(w, r); err != nil {
			fail(w, r, who, err)
		}
	}))
}

// exact returns the pattern that matches the path and nothing below it.
func exact(pattern string) string {
	if pattern[len(pattern)-1] == '/' {
		return pattern + "{$}"
	}
	return pattern
}
