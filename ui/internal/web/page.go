package web

import (
	"context"
	"net/http"
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

// A Look asks the client for what a page shows.
type Look func(ctx context.Context, q Query) (any, error)

// A Part is what a page shows besides its look, and does not wait for.
type Part struct {
	Name  string // of the live region
	Every time.Duration
	Look  Look
}

// A settled view never changes again, so its page needs no stream.
type settled interface{ Settled() bool }

// lives reports whether the page needs a stream to show what comes after the view.
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

// An Answer is what a change leads to: another page, with a sentence about what was done, or a page of its own, such as
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

// A Handler is a route of GET that is no page, such as a file.
type Handler struct {
	Path   string
	Action Action
	Serve  func(w http.ResponseWriter, r *http.Request) error // an error is shown by a page
}

// exact returns the pattern that matches the path and nothing below it.
func exact(pattern string) string {
	if pattern[len(pattern)-1] == '/' {
		return pattern + "{$}"
	}
	return pattern
}
