package ui

import (
	"cmp"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kagzi/kagzi"
	failures "github.com/kagzi/kagzi/internal/failure"
)

// A dashboard is the handler. Nothing in it changes after newDashboard but what has a lock of its own.
type dashboard struct {
	client    *kagzi.Client
	cfg       Config
	namespace string
	log       *slog.Logger
	files     *files
	templates map[string]*template.Template // by page, each with the layout and the partials
	cache     cache
	streams   streams
	rendered  renderings
	once      once
	rates     throughput
	every     time.Duration // how old a shared answer may be
	tails     tails
	out       atomic.Bool   // the last look got no answer from the database
	patience  time.Duration // how long the change of one thing may take
	mux       http.Handler
}

func newDashboard(c *kagzi.Client, cfg Config) (*dashboard, error) {
	if c == nil {
		return nil, errNoClient
	}
	cfg.Path = cmp.Or(cfg.Path, defaultPath)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 500)
	if err := validPath(cfg.Path); err != nil {
		return nil, err
	}
	d := &dashboard{
		client: c, cfg: cfg, namespace: c.Namespace(),
		log: failures.SafeLogger(cmp.Or(cfg.Logger, slog.Default())), files: newFiles(), every: lookEvery,
		patience: formTimeout,
	}
	d.streams.most = cfg.MaxStreams
	var err error
	if d.templates, err = d.parseTemplates(); err != nil {
		return nil, err
	}
	d.mux = d.routes(d.allPages(), d.allChanges())
	return d, nil
}

// ServeHTTP sets the headers that every answer has, and hands the request to its route with the path behind
// Config.Path.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if len(r.URL.Path)+len(r.URL.RawQuery) > maxAddress { // a page has hundreds of links that repeat its query
		http.Error(w, "This address is too long.", http.StatusRequestURITooLong)
		return
	}
	prefix := strings.TrimSuffix(d.cfg.Path, "/")
	if prefix != "" && r.URL.Path == prefix {
		http.Redirect(w, r, d.cfg.Path, http.StatusMovedPermanently)
		return
	}
	if strings.HasPrefix(r.URL.Path, d.cfg.Path) { // else somebody has removed it
		http.StripPrefix(prefix, d.mux).ServeHTTP(w, r)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// maxAddress bounds the path and the query of a request.
const maxAddress = 8 << 10

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
