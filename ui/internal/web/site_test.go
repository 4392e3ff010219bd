package web

import (
	"bufio"
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
)

// files are a site of two pages.
var files = fstest.MapFS{
	"static/a.css": {Data: []byte("p {}")},
	"templates/layout.html": {
		Data: []byte(`{{define "layout"}}{{asset "a.css"}} {{template "content" .}}{{end}}`),
	},
	"templates/partials.html":      {Data: []byte(`{{define "none"}}{{end}}`)},
	"templates/partials/more.html": {Data: []byte(`{{define "more"}}{{end}}`)},
	"templates/error.html":         {Data: []byte(`{{define "content"}}{{.V.Text}}{{end}}`)},
	"templates/thing.html": {
		Data: []byte(`{{define "content"}}{{template "state" .}}{{end}}{{define "state"}}it is {{.V}}{{end}}`),
	},
}

// newTestSite returns a site with a page and a change of it, which package ui does not know.
func newTestSite(t *testing.T) *Site {
	t.Helper()
	s, err := New(Config{
		Links: "/at/", MaxStreams: 10, Cache: NewCache(), Log: slog.New(slog.DiscardHandler), Files: files,
		Access: NewAccess(func(*http.Request, Action) (string, error) { return "mira", nil }),
		Funcs:  template.FuncMap{}, Data: func(s *Screen) any { return s },
		Name: func(r *http.Request, _ Action) (*http.Request, error) { return r, nil },
		Routes: Routes{
			Pages: []Page{{
				Path: "/things/{name}", Action: Action{Verb: View, Object: "thing"}, Template: "thing",
				Live: []string{"state"},
				Look: func(_ context.Context, q Query) (any, error) { return q.Path("name"), nil },
			}},
			Changes: []Change{{
				Path: "/things/{name}/break", Action: Action{Verb: "break", Object: "thing"},
				Do: func(context.Context, Form) (Answer, error) { return Answer{To: "/things/a"}, nil },
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// breaks sends the form of the change with a token.
func breaks(s *Site, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://x/at/things/a/break",
		strings.NewReader(url.Values{"form": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestLongTokensAreNotKept(t *testing.T) {
	s := newTestSite(t)
	if w := breaks(s, strings.Repeat("x", maxToken+1)); w.Code != http.StatusBadRequest ||
		!strings.Contains(w.Body.String(), "too long") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	if n := len(s.changes.once.sent); n != 0 {
		t.Errorf("%d forms are kept", n)
	}
	if w := breaks(s, strings.Repeat("x", maxToken)); w.Code != http.StatusSeeOther ||
		w.Header().Get("Location") != "/at/things/a" || len(s.changes.once.sent) != 1 {
		t.Errorf("%d: %s, and %d forms are kept", w.Code, w.Body, len(s.changes.once.sent))
	}
}

func TestStreamsOfOnePageShareItsRegions(t *testing.T) {
	s := newTestSite(t)
	server := httptest.NewServer(s)
	defer server.Close()
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/at/things/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		w, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		for lines := bufio.NewScanner(w.Body); lines.Scan() && lines.Text() != "data: it is a"; {
		}
	}
	s.streamer.rendered.mu.Lock()
	defer s.streamer.rendered.mu.Unlock()
	if n := len(s.streamer.rendered.by); n != 1 {
		t.Errorf("the regions of %d pages are kept", n)
	}
}
