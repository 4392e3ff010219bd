package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
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
	once      once
	rates     throughput
	every     time.Duration // how old a shared answer may be
	tails     tails
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
	d := &dashboard{client: c, cfg: cfg, namespace: namespaceOf(c), log: cmp.Or(cfg.Logger, slog.Default()), files: newFiles(), every: lookEvery}
	d.streams.most = cfg.MaxStreams
	var err error
	if d.templates, err = d.parseTemplates(); err != nil {
		return nil, err
	}
	d.mux = d.routes(d.allPages(), d.allChanges())
	return d, nil
}

// ServeHTTP sets the headers that every answer has, and hands the request to its route with the path behind Config.Path.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
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

// setHeaders sets the headers of every answer. Static files replace the Cache-Control.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// namespaceOf returns the client's namespace. The client says it in the report of its liveness, for which it asks no database.
func namespaceOf(c *kagzi.Client) string {
	var body answerBody
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	if err != nil {
		return ""
	}
	c.Liveness().ServeHTTP(&body, r)
	var report struct{ Namespace string }
	if json.Unmarshal(body.data, &report) != nil {
		return ""
	}
	return report.Namespace
}

// An answerBody is a ResponseWriter that keeps the body.
type answerBody struct {
	header http.Header
	data   []byte
}

func (b *answerBody) Header() http.Header {
	if b.header == nil {
		b.header = http.Header{}
	}
	return b.header
}

func (b *answerBody) WriteHeader(int) {}

func (b *answerBody) Write(p []byte) (int, error) {
	b.data = append(b.data, p...)
	return len(p), nil
}
