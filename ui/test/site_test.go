package test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// A site is a dashboard on a port of this machine.
type site struct {
	client  *kagzi.Client
	url     string // with Config.Path, without a slash at its end
	host    string
	streams atomic.Int64 // that are open
}

// serve serves a dashboard until stop.
func serve(c *kagzi.Client, pool *pgxpool.Pool, cfg ui.Config) (s *site, stop func()) {
	s = &site{client: c}
	cfg.Pool = pool
	dashboard := ui.Handler(c, cfg)
	mux := http.NewServeMux()
	mux.HandleFunc("/kagzi/", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			s.streams.Add(1)
			defer s.streams.Add(-1)
		}
		dashboard.ServeHTTP(w, r)
	})
	// the service's own
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := httptest.NewServer(mux)
	s.url = server.URL + "/kagzi"
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s, func() {
		server.CloseClientConnections()
		server.Close()
	}
}

const actor = "mira@example.com"

// Every request may do everything.
func everybody(*http.Request, ui.Action) (string, error) { return actor, nil }

// begin marks the test as parallel, and returns a kit, and a tab on a dashboard of its database.
func begin(t *testing.T, cfg ui.Config) (*kit.Kit, *tab) {
	t.Helper()
	browser.reserve(t)
	k := kit.New(t)
	s, stop := serve(k.Client, k.Pool, cfg)
	t.Cleanup(stop)
	return k, newTab(t, s)
}

// path returns the path of a thing with a name.
func path(parts ...string) string {
	var out strings.Builder
	for _, p := range parts {
		out.WriteString("/" + url.PathEscape(p))
	}
	return out.String()
}

// logged fails the test unless the newest entry of a run's log says who made a change, and why.
func logged(k *kit.Kit, ref kagzi.Ref, event string) {
	k.T.Helper()
	entries, err := admin.New(k.Client).Runs.Log(k.Ctx, ref)
	if err != nil {
		k.T.Fatal(err)
	}
	if len(entries) == 0 {
		k.T.Errorf("the log of %v is empty", ref)
		return
	}
	if e := entries[len(entries)-1]; e.Event != event || e.Actor != actor || e.Reason != reason {
		k.T.Errorf("the newest entry of the log of %v is %+v, not %s by %s because of %q", ref, e, event, actor, reason)
	}
}

// reason is why the tests change things.
const reason = "ticket 4711"
