package web

import (
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Config says what a Site serves, and to whom.
type Config struct {
	Links      Links  // where a browser finds the site
	Namespace  string // of the client
	Access     Access
	Usual      []Action // changes that a viewer may make who may make any, for pages without buttons
	MaxStreams int
	Patience   time.Duration // how long the change of one thing may take
	Cache      *Cache
	Log        *slog.Logger
	Files      fs.FS // has the folders static and templates
	Funcs      template.FuncMap
	Data       func(*Screen) any // what a template gets; it has the screen's methods
	// Name returns the request with its object named as Access is asked for it.
	Name  func(*http.Request, Action) (*http.Request, error)
	Frame []Part // of the layout
	// Elsewhere is the Action of paths without a page.
	Elsewhere Action
	Routes    Routes
}

// Routes are what a Site has.
type Routes struct {
	Pages    []Page
	Handlers []Handler
	Forms    []ChangeForm
	Changes  []Change
}

// A Site is the handler. Nothing in it changes after New but fields that have a lock of their own.
type Site struct {
	links    Links
	assets   *assets
	guard    guard
	failures *failures
	looks    *looks
	screens  screens
	streamer *streamer
	changes  *changes
	render   *templates
	mux      http.Handler
}

// New returns the site. The error is a mistake in a template.
func New(cfg Config) (*Site, error) {
	s := &Site{
		links: cfg.Links, assets: newAssets(cfg.Files), looks: &looks{cache: cfg.Cache, log: cfg.Log},
		render:  &templates{data: cfg.Data, log: cfg.Log},
		screens: screens{cfg.Namespace, cfg.Access, cfg.Usual},
	}
	funcs := template.FuncMap{
		"asset": func(name string) string { return string(cfg.Links) + s.assets.path(name) },
		"token": uuid.NewString, // no other form has it
	}
	for name, f := range cfg.Funcs {
		funcs[name] = f
	}
	if err := s.render.parse(cfg.Files, funcs); err != nil {
		return nil, err
	}
	s.failures = &failures{cfg.Links, cfg.Cache, s.screens, s.render, cfg.Log}
	s.guard = guard{cfg.Access, cfg.Name, s.failures.show}
	s.streamer = &streamer{
		streams: streams{most: cfg.MaxStreams}, looks: s.looks, templates: s.render, log: cfg.Log,
	}
	s.changes = &changes{
		links: cfg.Links, access: cfg.Access, cache: cfg.Cache, screens: s.screens, templates: s.render,
		failures: s.failures,
	}
	s.mux = s.handler(cfg.Routes.with(forms{cfg.Routes.Forms, cfg.Patience, cfg.Log}, cfg.Frame), cfg.Elsewhere)
	return s, nil
}

// with returns the routes with the pages and the changes of forms, and the parts of the layout in all pages.
func (r Routes) with(fs forms, frame []Part) Routes {
	r.Pages, r.Changes = slices.Concat(r.Pages, fs.pages()), slices.Concat(fs.changes(), r.Changes)
	for i, p := range r.Pages {
		r.Pages[i] = p.framed(frame)
	}
	return r
}

// handler returns the handler of all routes, behind the check of where requests come from.
func (s *Site) handler(routes Routes, elsewhere Action) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{hash}/{file...}", s.assets.serve)
	for _, h := range routes.Handlers {
		h.on(mux, s.guard, s.failures.show)
	}
	for _, p := range routes.Pages {
		p.on(mux, s.guard, s.page)
	}
	for _, c := range routes.Changes {
		c.on(mux, s.guard, s.changes.serve)
	}
	mux.HandleFunc("/", s.guard.before(elsewhere, nil, s.failures.notFound))
	return sameSite(clean(string(s.links), mux), s.failures.show)
}

// page answers a GET with the page, or with its stream if a script asks for that.
func (s *Site) page(w http.ResponseWriter, r *http.Request, who Viewer, p Page) {
	q := QueryOf(r, r.URL.Query())
	screen := s.screens.of(r, who, q)
	if r.Method == http.MethodGet && slices.Contains(strings.Split(r.Header.Get("Accept"), ","), "text/event-stream") {
		s.streamer.serve(w, r, who, p, screen)
		return
	}
	if err := s.looks.fill(r.Context(), screen, p); err != nil {
		s.failures.show(w, r, who, err)
		return
	}
	_, wait := q.all("wait") // without a script there is no stream
	s.looks.parts(r.Context(), screen, p, wait)
	screen.says(said(w, r, string(s.links)))
	s.render.page(w, http.StatusOK, p.file(), screen)
}

// ServeHTTP sets the headers that every answer has, and hands the request to its route with the path behind the site's.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if len(r.URL.Path)+len(r.URL.RawQuery) > MaxAddress { // a page has hundreds of links that repeat its query
		http.Error(w, "This address is too long.", http.StatusRequestURITooLong)
		return
	}
	prefix := strings.TrimSuffix(string(s.links), "/")
	if prefix != "" && r.URL.Path == prefix {
		http.Redirect(w, r, string(s.links), http.StatusMovedPermanently)
		return
	}
	if strings.HasPrefix(r.URL.Path, string(s.links)) { // else it was removed on the way
		http.StripPrefix(prefix, s.mux).ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// MaxAddress bounds the path and the query of a request.
const MaxAddress = 8 << 10

// setHeaders sets the headers of every answer. Static files replace the Cache-Control.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
