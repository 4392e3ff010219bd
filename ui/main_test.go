package ui

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

func TestMain(m *testing.M) {
	countTimeout, tallyTimeout = time.Minute, time.Minute
	dbtest.Main(m)
}

// A site is a dashboard behind a server.
type site struct {
	*kit.Kit
	web  web.Config
	all  pages
	url  string // with Config.Path and no slash at its end
	http *http.Client
}

// newSite serves a dashboard of the kit's client, with changes of what it is made of.
func newSite(k *kit.Kit, cfg Config, changes ...func(*web.Config)) *site {
	k.T.Helper()
	made, all, err := configure(k.Client, cfg)
	if err != nil {
		k.T.Fatal(err)
	}
	made.Cache.Timeout = time.Minute // some pages ask for much, and a busy machine needs longer than LookTimeout
	for _, change := range changes {
		change(&made)
	}
	d, err := web.New(made)
	if err != nil {
		k.T.Fatal(err)
	}
	server := httptest.NewServer(d)
	k.T.Cleanup(server.Close)
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &site{k, made, all, server.URL + strings.TrimSuffix(string(made.Links), "/"), client}
}

// A reply is an answer with its body.
type reply struct {
	*http.Response
	body string
}

// do sends a request with headers, given as pairs.
func (s *site) do(method, path, body string, headers ...string) reply {
	s.T.Helper()
	r, err := http.NewRequestWithContext(s.Ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://"+r.Host) // as a page of the dashboard
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w, err := s.http.Do(r)
	if err != nil {
		s.T.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	return reply{w, string(data)}
}

func (s *site) get(path string) reply {
	s.T.Helper()
	return s.do(http.MethodGet, path, "")
}

// mustGet returns the body of a page, which must exist.
func (s *site) mustGet(path string) string {
	s.T.Helper()
	r := s.get(path)
	if r.StatusCode != http.StatusOK {
		s.T.Fatalf("GET %s: %s\n%s", path, r.Status, r.body)
	}
	return r.body
}

// An sse is an event of a stream.
type sse struct{ name, data string }

// stream opens the stream of a page, with headers, given as pairs. next returns its next event.
func (s *site) stream(path string, headers ...string) (next func() sse) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.Ctx, await.Patience)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w, err := s.http.Do(r)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { cancel(); w.Body.Close() })
	if w.StatusCode != http.StatusOK {
		s.T.Fatalf("the stream of %s: %s", path, w.Status)
	}
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 1<<20)
	return func() (e sse) {
		s.T.Helper()
		for lines.Scan() {
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "event: "):
				e.name = strings.TrimPrefix(line, "event: ")
			case strings.HasPrefix(line, "data:"):
				e.data += strings.TrimPrefix(line, "data:") + "\n"
			case line == "" && e.name != "":
				return e
			}
		}
		s.T.Fatalf("the stream of %s has ended: %v", path, lines.Err())
		return e
	}
}

// until returns the first event for which ok is true.
func until(next func() sse, ok func(sse) bool) sse {
	for {
		if e := next(); ok(e) {
			return e
		}
	}
}

// Every request may do everything.
func everybody(*http.Request, Action) (string, error) { return "mira", nil }

var echo = kagzi.Define[string, string]("echo")

// pages returns the pages of the site, also those of forms.
func (s *site) pages() []web.Page {
	all := slices.Clone(s.web.Routes.Pages)
	for _, f := range s.web.Routes.Forms {
		all = append(all, web.Page{Path: f.Path, Action: f.Action})
	}
	return all
}

// changes returns the changes of the site, also those of forms.
func (s *site) changes() []web.Change {
	all := slices.Clone(s.web.Routes.Changes)
	for _, f := range s.web.Routes.Forms {
		all = append(all, web.Change{Path: f.Path, Action: f.Action})
	}
	return all
}

// asset returns the path of a static file.
func (s *site) asset(name string) string {
	s.T.Helper()
	link := regexp.MustCompile(`"` + string(s.web.Links) + `(static/[0-9a-f]+/` + name + `)"`)
	found := link.FindStringSubmatch(s.mustGet("/"))
	if found == nil {
		s.T.Fatalf("no page has %s", name)
	}
	return "/" + found[1]
}

// ofUI returns an action as Authorize is asked for it.
func ofUI(a web.Action) Action { return Action{Verb(a.Verb), Object(a.Object), a.ID, "default"} }
