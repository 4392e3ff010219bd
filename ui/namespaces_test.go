package ui

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// serveSeveral serves the dashboards of two namespaces. cfg may have a path.
func serveSeveral(k *kit.Kit, cfg Config, wrap func(http.Handler) http.Handler) *site {
	clients := map[string]*kagzi.Client{
		"shop": kit.NewClientWith(k.T, k.Pool, kagzi.ClientConfig{Namespace: "shop"}),
		"mail": kit.NewClientWith(k.T, k.Pool, kagzi.ClientConfig{Namespace: "post"}),
	}
	for name, c := range clients {
		if _, err := kagzi.Start(k.Ctx, c, echo, "x", kagzi.ID("of-"+name)); err != nil {
			k.T.Fatal(err)
		}
	}
	server := httptest.NewServer(wrap(Namespaces(clients, cfg)))
	k.T.Cleanup(server.Close)
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &site{Kit: k, url: server.URL, http: client}
}

func asIs(h http.Handler) http.Handler { return h }

func TestSeveralNamespaces(t *testing.T) {
	k := kit.New(t)
	s := serveSeveral(k, Config{}, asIs)
	r := s.get("/kagzi/")
	if to := r.Header.Get("Location"); r.StatusCode != http.StatusSeeOther || to != "/kagzi/mail/namespaces" {
		t.Errorf("the path leads to %s, %s", r.Status, to)
	}
	if r := s.get("/kagzi/shop"); r.Header.Get("Location") != "/kagzi/shop/" {
		t.Errorf("a name leads to %s, %s", r.Status, r.Header.Get("Location"))
	}
	if r := s.get("/kagzi/other/"); r.StatusCode != http.StatusNotFound {
		t.Errorf("another name: %s", r.Status)
	}
	for name, other := range map[string]string{"shop": "mail", "mail": "shop"} {
		runs := s.mustGet("/kagzi/" + name + "/runs")
		if !strings.Contains(runs, "of-"+name) || strings.Contains(runs, "of-"+other) {
			t.Errorf("the runs of %s:\n%s", name, runs)
		}
		list := s.mustGet("/kagzi/" + name + "/namespaces?wait")
		for _, want := range []string{
			`<a href="/kagzi/` + name + `/" aria-current="true">`, `<a href="/kagzi/` + other + `/">`,
			`<a class="namespace" href="/kagzi/` + name + `/namespaces"`,
		} {
			if !strings.Contains(list, want) {
				t.Errorf("the list of %s has no %s:\n%s", name, want, list)
			}
		}
	}
}

// A viewer sees the namespaces that Authorize lets that viewer see, and no others.
func TestNamespacesOfAViewer(t *testing.T) {
	k := kit.New(t)
	s := serveSeveral(k, Config{Authorize: func(_ *http.Request, a Action) (string, error) {
		if a.Namespace != "shop" {
			return "", errors.New("not yours: " + a.Namespace)
		}
		return "mira", nil
	}}, asIs)
	if r := s.get("/kagzi/"); r.Header.Get("Location") != "/kagzi/shop/namespaces" {
		t.Errorf("the path leads to %s, %s", r.Status, r.Header.Get("Location"))
	}
	if list := s.mustGet("/kagzi/shop/namespaces?wait"); strings.Contains(list, "mail") {
		t.Errorf("the list has the other namespace:\n%s", list)
	}
	for _, path := range []string{"/kagzi/mail/", "/kagzi/mail/runs", "/kagzi/mail/namespaces"} {
		if r := s.get(path); r.StatusCode != http.StatusForbidden || !strings.Contains(r.body, "ot yours: mail") {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

// A proxy may remove the path.
func TestNamespacesBehindAProxy(t *testing.T) {
	k := kit.New(t)
	strip := func(h http.Handler) http.Handler { return http.StripPrefix("/ops", h) }
	s := serveSeveral(k, Config{Path: "/ops/"}, strip)
	if list := s.mustGet("/ops/shop/namespaces?wait"); !strings.Contains(list, `<a href="/ops/mail/">`) {
		t.Errorf("no link to the other:\n%s", list)
	}
	if runs := s.mustGet("/ops/mail/runs?status=active"); !strings.Contains(runs, "of-mail") {
		t.Errorf("the runs are\n%s", runs)
	}
}

// A dashboard of one namespace has no list.
func TestOneNamespaceHasNoList(t *testing.T) {
	s := newSite(kit.New(t), Config{})
	if r := s.get("/namespaces"); r.StatusCode != http.StatusNotFound {
		t.Errorf("the list: %s", r.Status)
	}
	if strings.Contains(s.mustGet("/"), "/namespaces") {
		t.Error("the overview links to the list")
	}
}

func TestNamesOfNamespaces(t *testing.T) {
	c := kit.New(t).Client
	for name, want := range map[string]string{
		"": "give letters", ".": "give letters", "..": "give letters", "a/b": "give letters", "ä": "give letters",
		"eu-1.shop_2~": "",
	} {
		_, err := newSeveral(map[string]*kagzi.Client{name: c}, Config{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, clients := range []map[string]*kagzi.Client{nil, {"a": c, "b": nil}} {
		if _, err := newSeveral(clients, Config{}); err == nil {
			t.Errorf("%v is no error", clients)
		}
	}
	if _, err := newSeveral(map[string]*kagzi.Client{"a": c}, Config{Path: "kagzi"}); err == nil {
		t.Error("a path without a slash is no error")
	}
}
