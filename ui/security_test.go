package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// somePath returns a path that a route's pattern matches.
func somePath(pattern string) string {
	return strings.NewReplacer("{id}", "01987654-0000-7000-8000-000000000000", "{name}", "some").Replace(pattern)
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	s := newSite(kit.New(t), Config{})
	paths := []string{"/nothing", s.asset("app.css"), "/find?q=x"}
	for _, p := range s.pages() {
		paths = append(paths, somePath(p.Path))
	}
	for _, path := range paths {
		r := s.get("/" + strings.TrimPrefix(path, "/"))
		for _, want := range []string{
			"default-src 'none'", "script-src 'self';", "style-src 'self';",
			"frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'",
		} {
			if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, want) {
				t.Errorf("%s: the policy %q lacks %q", path, csp, want)
			}
		}
		if r.Header.Get("X-Content-Type-Options") != "nosniff" || r.Header.Get("Referrer-Policy") == "" {
			t.Errorf("%s: %v", path, r.Header)
		}
		static := strings.Contains(path, "static/")
		if cached := strings.Contains(r.Header.Get("Cache-Control"), "immutable"); cached != static {
			t.Errorf("%s: Cache-Control is %q", path, r.Header.Get("Cache-Control"))
		}
		for _, bad := range []string{" style=", " onclick=", "<style", "javascript:"} {
			if !static && strings.Contains(r.body, bad) {
				t.Errorf("%s contains %q", path, bad)
			}
		}
	}
}

func TestAuthorizeIsAskedForEveryRoute(t *testing.T) {
	k := kit.New(t)
	var mu sync.Mutex
	var asked []Action
	s := newSite(k, Config{Authorize: func(_ *http.Request, a Action) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, a)
		return "", errors.New("only <b>Mira</b> may")
	}})
	refused := func(method, path string, want Action) {
		t.Helper()
		asked = nil
		r := s.do(method, path, "")
		if r.StatusCode != http.StatusForbidden || !strings.Contains(r.body, "Only &lt;b&gt;Mira&lt;/b&gt; may") {
			t.Errorf("%s %s: %s", method, path, r.Status)
		}
		if !slices.Contains(asked, want) {
			t.Errorf("%s %s: Authorize was asked %v, not %v", method, path, asked, want)
		}
	}
	for _, p := range s.pages() {
		want := ofUI(p.Action)
		if strings.Contains(p.Path, "{id}") {
			want.ID = "01987654-0000-7000-8000-000000000000"
		} else if strings.Contains(p.Path, "{name}") {
			want.ID = "some"
		}
		refused(http.MethodGet, somePath(p.Path), want)
	}
	for _, c := range s.changes() {
		if !c.Action.Changes() {
			t.Errorf("the action of POST %s changes nothing", c.Path)
		}
		want := ofUI(c.Action)
		if strings.Contains(c.Path, "{id}") {
			want.ID = "01987654-0000-7000-8000-000000000000"
		} else if strings.Contains(c.Path, "{name}") {
			want.ID = "some"
		}
		refused(http.MethodPost, somePath(c.Path), want)
	}
	refused(http.MethodGet, "/find?q=x", Action{Verb: View, Object: OnRun, Namespace: "default"})
	refused(http.MethodGet, "/nothing", Action{Verb: View, Object: OnOverview, Namespace: "default"})
}

// changing returns a site with a change whose actor and reason it records.
func changing(k *kit.Kit, cfg Config) (s *site, made *[]string) {
	made = new([]string)
	ask := web.Page{
		Path: "/things/{name}/change", Action: asks(Set, OnLimit), Template: "change",
		Look: func(_ context.Context, q web.Query) (any, error) {
			v := &web.Dialog{
				Title: "Change it", To: "/things/" + url.PathEscape(q.Path("name")) + "/change", Back: "/",
				Do: "Change",
				Fields: []deeds.Field{
					{Name: "all", Label: "All", Kind: deeds.Check},
					{Name: "json", Kind: deeds.JSON, Value: "</textarea><script>"},
				},
			}
			v.Finish(q, false)
			return v, nil
		},
	}
	change := web.Change{
		Path: "/things/{name}/change", Action: asks(Set, OnLimit),
		Do: func(_ context.Context, f web.Form) (web.Answer, error) {
			*made = append(*made, fmt.Sprint(f.Actor, " ", f.Reason(), " ", f.Path("name")))
			return web.Answer{To: "/runs", Said: "It was <changed>."}, nil
		},
	}
	return newSite(k, cfg, func(c *web.Config) {
		c.Routes.Pages, c.Routes.Changes = append(c.Routes.Pages, ask), []web.Change{change}
		c.Routes.Forms = nil
	}), made
}

func TestChangesNeedAuthorizeAndTheSameOrigin(t *testing.T) {
	k := kit.New(t)
	s, made := changing(k, Config{})
	for _, path := range []string{"/things/a/change", "/runs", "/nothing"} {
		if r := s.do(http.MethodPost, path, "reason=x"); r.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s without Authorize: %s", path, r.Status)
		}
	}
	s, made2 := changing(k, Config{Authorize: everybody})
	for _, h := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Origin", ""},
		{"Origin", "", "Sec-Fetch-Site", ""},
	} {
		if r := s.do(http.MethodPost, "/things/a/change", "reason=x", h...); r.StatusCode != http.StatusForbidden {
			t.Errorf("POST with %v: %s", h, r.Status)
		}
	}
	if len(*made)+len(*made2) != 0 {
		t.Fatalf("changes were made: %v %v", *made, *made2)
	}
	r := s.do(http.MethodPost, "/things/a/change", "reason=because", "Sec-Fetch-Site", "same-origin")
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/kagzi/runs" ||
		!slices.Equal(*made2, []string{"mira because a"}) {
		t.Fatalf("%s to %q, %v", r.Status, r.Header.Get("Location"), *made2)
	}
	cookie := r.Cookies()[0]
	if page := s.do(http.MethodGet, "/runs", "", "Cookie", cookie.Name+"="+cookie.Value); !strings.Contains(page.body,
		"It was &lt;changed&gt;.") {
		t.Error("the next page does not say what was done")
	}
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/kagzi/" {
		t.Errorf("the cookie is %v", cookie)
	}
}

func TestUncleanPathsStayBelowThePath(t *testing.T) {
	k := kit.New(t)
	for _, at := range []string{"/kagzi/", "/a/b/", "/"} {
		h, base := Handler(k.Client, Config{Path: at}), strings.TrimSuffix(at, "/")
		for asked, want := range map[string]string{
			"//runs?status=failed": "/runs?status=failed", "//evil.example/x": "/evil.example/x", "/./runs": "/runs",
			"/x/../runs/":           "/runs/",
			"//evil.example/%2e%2e": "/evil.example/%2e%2e", "///": "/", "/runs//a%2F%2Fb": "/runs/a%2F%2Fb",
		} {
			r := httptest.NewRequest(http.MethodGet, "http://dashboard.example"+base+asked, nil)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if to := w.Header().Get("Location"); w.Code != http.StatusTemporaryRedirect || to != base+want {
				t.Errorf("%s: %d to %q, not %q", base+asked, w.Code, to, base+want)
			}
		}
	}
}

func TestFormOfAChange(t *testing.T) {
	k := kit.New(t)
	s, _ := changing(k, Config{Authorize: everybody})
	form := s.mustGet("/things/a%2Fb%22/change")
	for _, want := range []string{
		`method="post" action="/kagzi/things/a%2Fb%22/change"`, `name="reason"`,
		`type="checkbox" name="all"`, "&lt;/textarea&gt;",
	} {
		if !strings.Contains(form, want) {
			t.Errorf("the form lacks %s:\n%s", want, form)
		}
	}
	s, _ = changing(k, Config{})
	if r := s.get("/things/a/change"); r.StatusCode != http.StatusForbidden {
		t.Errorf("the form of a change without Authorize: %s", r.Status)
	}
}

func TestReadOnlySaysSo(t *testing.T) {
	k := kit.New(t)
	if page := newSite(k, Config{}).mustGet("/"); !strings.Contains(page, "Read-only") {
		t.Error("the page does not say that it is read-only")
	}
	if page := newSite(k, Config{Authorize: everybody}).mustGet("/"); strings.Contains(page, "Read-only") ||
		!strings.Contains(page, "You are mira") {
		t.Error("the page does not say who somebody is")
	}
}

func TestPaths(t *testing.T) {
	k := kit.New(t)
	ask := func(h http.Handler, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	mux := http.NewServeMux()
	mux.Handle("/kagzi/", Handler(k.Client, Config{}))
	mux.Handle("/admin/jobs/", Handler(k.Client, Config{Path: "/admin/jobs/"}))
	mux.Handle("/stripped/", http.StripPrefix("/stripped", Handler(k.Client, Config{Path: "/stripped/"})))
	mux.Handle("/wrong/", Handler(k.Client, Config{}))
	for _, base := range []string{"/kagzi", "/admin/jobs", "/stripped"} {
		for _, path := range []string{"/", "/runs", "/runs?status=failed"} {
			w := ask(mux, base+path)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d", base+path, w.Code)
			}
			for part := range strings.SplitSeq(w.Body.String(), `href="/`) {
				if link, _, _ := strings.Cut(part, `"`); !strings.HasPrefix(part, "<!doctype") &&
					!strings.HasPrefix("/"+link, base+"/") {
					t.Errorf("%s links to /%s", base+path, link)
				}
			}
		}
	}
	if w := ask(mux, "/wrong/runs"); w.Code != http.StatusNotFound ||
		!strings.Contains(w.Body.String(), "its Config.Path is /kagzi/, and the request came for /wrong/runs") {
		t.Errorf("a wrong Path: %d", w.Code)
	}
	if w := ask(Handler(k.Client, Config{Path: "/"}), "/runs"); w.Code != http.StatusOK {
		t.Errorf("at the root: %d", w.Code)
	}
	for _, path := range []string{"kagzi/", "/kagzi", "//", "/a/../b/", "/a b/"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Path %q was accepted", path)
				}
			}()
			Handler(k.Client, Config{Path: path})
		}()
	}
}
