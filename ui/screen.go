package ui

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed templates/*.html templates/partials/*.html
var templateFiles embed.FS

// A screen is the data of a page's template.
type screen struct {
	V         any // the view model that the look returned
	Query     query
	Namespace string
	Actor     string
	ReadOnly  bool   // nobody can change anything
	Said      string // what the last change did
	Old       *old   // nil unless V is an old answer
	Live      bool   // the page has a stream
	section   string // the first element of the path
	parts     map[string]any
	at        time.Time        // when the answer V was looked up
	partsAt   map[string]int64 // and those of the parts
	may       func(Action) bool
	asked     int // changes that this page may have buttons for
	allowed   int // those of them that Authorize allows
}

// An old says why a page shows an old answer.
type old struct {
	At    time.Time // when the answer was good
	Since time.Time // since when there is no new one
	Err   string
}

// May reports whether to show the button of a change.
func (s *screen) May(verb Verb, object Object, id ...string) bool {
	allowed := s.may != nil && s.may(Action{Verb: verb, Object: object, ID: strings.Join(id, "")})
	if s.asked++; allowed {
		s.allowed++
	}
	return allowed
}

// usualChanges are what OnlyReads asks for on a page without buttons.
var usualChanges = []Action{
	{Verb: Cancel, Object: OnRun},
	{Verb: Pause, Object: OnLimit},
	{Verb: Set, Object: OnQueue},
	{Verb: Trigger, Object: OnSchedule},
	{Verb: Drain, Object: OnWorker},
}

// OnlyReads reports whether Authorize refuses all changes that the page has buttons for. The layout asks it after the
// page's own content is there.
func (s *screen) OnlyReads() bool {
	if s.asked > 0 || s.may == nil {
		return s.asked > 0 && s.allowed == 0
	}
	return !slices.ContainsFunc(usualChanges, s.may)
}

// Rest says why the page has no stream, or has one no more.
func (s *screen) Rest() string {
	switch s.V.(type) {
	case doctorView:
		return "An examination is not repeated by itself."
	case *dialog:
		return "Nothing changes until you send the form."
	}
	return "This page does not change any more."
}

// Part returns the view model of a part; nil if it is not there yet.
func (s *screen) Part(name string) any { return s.parts[name] }

// A navItem is a link in the navigation.
type navItem struct {
	Title, Path, Icon string
	Current           bool
}

// navigation is the order of the pages. A page whose route does not exist yet is left out.
var navigation = []navItem{
	{Title: "Overview", Path: "/", Icon: "overview"},
	{Title: "Runs", Path: "/runs", Icon: "runs"},
	{Title: "Schedules", Path: "/schedules", Icon: "schedules"},
	{Title: "Topics", Path: "/topics", Icon: "topics"},
	{Title: "Limits", Path: "/limits", Icon: "limits"},
	{Title: "Workers", Path: "/workers", Icon: "workers"},
	{Title: "Stranded", Path: "/stranded", Icon: "stranded"},
	{Title: "Audit log", Path: "/audit", Icon: "audit"},
	{Title: "Doctor", Path: "/doctor", Icon: "doctor"},
}

// sections are the first elements of paths whose pages belong to another one's item of the navigation.
var sections = map[string]string{"consumers": "topics", "queues": "limits", "groups": "limits"}

// parseTemplates parses the layout with each page.
func (d *dashboard) parseTemplates() (map[string]*template.Template, error) {
	known := map[string]bool{}
	for _, p := range d.allPages() {
		known[p.path] = true
	}
	funcs := d.funcs()
	maps.Copy(funcs, runFuncs())
	funcs["nav"] = func(section string) (items []navItem) {
		for _, item := range navigation {
			if known[item.Path] {
				item.Current = item.Path == "/"+cmp.Or(sections[section], section)
				items = append(items, item)
			}
		}
		return items
	}
	shared, err := template.New("").Funcs(funcs).ParseFS(templateFiles, "templates/layout.html",
		"templates/partials.html", "templates/partials/*.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	out := map[string]*template.Template{}
	for _, name := range names {
		if name == "templates/layout.html" || name == "templates/partials.html" {
			continue
		}
		t, err := template.Must(shared.Clone()).ParseFS(templateFiles, name)
		if err != nil {
			return nil, err
		}
		out[strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".html")] = t
	}
	return out, nil
}

// screen returns the screen of a request, without a view model.
func (d *dashboard) screen(r *http.Request, who viewer, q query) *screen {
	section, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return &screen{
		Query: q, Namespace: d.namespace, Actor: who.actor, ReadOnly: d.cfg.Authorize == nil, section: section,
		may:   who.may,
		parts: map[string]any{},
	}
}

// Section returns the first element of the page's path.
func (s *screen) Section() string { return s.section }

// page answers a GET with the page, or with its stream if a script asks for that.
func (d *dashboard) page(w http.ResponseWriter, r *http.Request, who viewer, p page) {
	q := d.query(r, r.URL.Query())
	s := d.screen(r, who, q)
	if r.Method == http.MethodGet && slices.Contains(strings.Split(r.Header.Get("Accept"), ","), "text/event-stream") {
		d.stream(w, r, who, p, s)
		return
	}
	if err := d.fill(r.Context(), s, p); err != nil {
		d.fail(w, r, who, err)
		return
	}
	for _, part := range p.parts {
		if q.values.Has("wait") { // without a script there is no stream
			d.fillPart(r.Context(), s, part)
		} else {
			d.keepPart(s, part)
		}
	}
	s.Said = said(w, r, d.cfg.Path)
	d.render(w, http.StatusOK, p.template, s)
}

// fill puts the view model into the screen. If the database is away, that is the last one, and Old says so.
func (d *dashboard) fill(ctx context.Context, s *screen, p page) error {
	f := d.cache.get(ctx, s.Query.url, d.every, func(ctx context.Context) (any, error) { return p.look(ctx, s.Query) })
	d.heard(ctx, f.err)
	if f.err != nil && (f.view == nil || !away(f.err)) {
		return f.err
	}
	s.V, s.at, s.Old = f.view, f.at, nil
	if f.err != nil {
		s.Old = &old{f.at, f.since, sentence(f.err)}
	}
	end, ok := s.V.(settled)
	s.Live = len(p.live) > 0 && !(ok && end.settled())
	return nil
}

// keepPart puts what is known of a part into the screen, however old.
func (d *dashboard) keepPart(s *screen, p part) {
	if view := d.cache.peek(s.Query.url + " " + p.name).view; view != nil {
		s.parts[p.name] = view
	}
}

// fillPart puts a part into the screen. A part that fails stays as it was: the page's own look says what is wrong with
// the database.
func (d *dashboard) fillPart(ctx context.Context, s *screen, p part) {
	f := d.cache.get(ctx, s.Query.url+" "+p.name, p.every, func(ctx context.Context) (any, error) {
		return p.look(ctx, s.Query)
	})
	if f.err != nil && !away(f.err) && !errors.Is(f.err, context.Canceled) {
		d.log.WarnContext(ctx, "kagzi: a part of the dashboard failed", "page", s.Query.url, "part", p.name,
			"err", f.err)
	}
	if f.view != nil {
		s.parts[p.name] = f.view
		s.noted(p.name, f.at)
	}
}

// render writes the page. A mistake in a template is a bug: the answer says so, rather than half a page.
func (d *dashboard) render(w http.ResponseWriter, code int, name string, s *screen) {
	var page bytes.Buffer
	t, ok := d.templates[name]
	err := fmt.Errorf("there is no template %q", name)
	if ok {
		err = t.ExecuteTemplate(&page, "layout", s)
	}
	if err != nil {
		d.log.Error("kagzi: the dashboard cannot show a page", "template", name, "err", err)
		http.Error(w, "This page has a bug. The program's log says more.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes()) // the browser may have gone
}
