package ui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/ui/internal/web"
)

func TestAStreamSaysThatARunHasEnded(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	kit.Begin(k, echo, "x", kagzi.ID("one"))
	next := s.stream("/runs")
	rows := func(status string) func(sse) bool {
		return func(e sse) bool {
			return e.name == "region" && strings.Contains(e.data, `id="rows"`) && strings.Contains(e.data, ">one<") &&
				strings.Contains(e.data, status)
		}
	}
	until(next, rows("Pending"))
	kit.Serve(k, echo, func(_ kagzi.Context, text string) (string, error) { return text, nil })
	until(next, rows("Completed"))
}

func TestAPartComesByTheStream(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	kit.Begin(k, echo, "x")
	if page := s.mustGet("/"); strings.Contains(page, `id="throughput-table"`) {
		t.Error("the page has waited for its part")
	}
	until(s.stream("/"), func(e sse) bool { return strings.Contains(e.data, "1 run started") })
	if page := s.mustGet("/?wait=1"); !strings.Contains(page, "1 run started") {
		t.Error("without a stream there is no chart")
	}
}

func TestStreamsAreLimited(t *testing.T) {
	s := newSite(kit.New(t), Config{MaxStreams: 1})
	s.stream("/")()
	if r := s.do(http.MethodGet, "/", "", "Accept",
		"text/event-stream"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second stream: %s", r.Status)
	}
}

func TestAStreamEndsWithItsServer(t *testing.T) {
	k := kit.New(t)
	server := httptest.NewServer(Handler(k.Client, Config{}))
	defer server.Close()
	r, err := http.NewRequestWithContext(k.Ctx, http.MethodGet, server.URL+"/kagzi/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	w, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if err := server.Config.Shutdown(k.Ctx); err != nil { // waits for all requests
		t.Errorf("Shutdown: %v", err)
	}
}

// A statementCount counts the batches and queries of a pool.
type statementCount struct{ n atomic.Int64 }

func (c *statementCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *statementCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *statementCount) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *statementCount) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *statementCount) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestFiftyViewersCostWhatOneCosts(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cost := func(path string, viewers int) int64 {
		var count statementCount
		pool := dbtest.OpenPool(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &count })
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClient(t, pool)}
		s := newSite(k, Config{})
		s.web.Cache.Every = kit.NotifiedOnly.PollInterval // as though all came within a second
		var all sync.WaitGroup
		for range viewers {
			all.Go(func() {
				if r := s.get(path); r.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", path, r.Status)
				}
			})
		}
		all.Wait()
		return count.n.Load()
	}
	for _, path := range []string{"/", "/runs"} {
		if one, fifty := cost(path, 1), cost(path, 50); one == 0 || fifty != one {
			t.Errorf("%s costs one viewer %d statements, and fifty %d", path, one, fifty)
		}
	}
}

// behindProxy returns a kit whose database the proxy can freeze.
func behindProxy(t *testing.T) (*kit.Kit, *pgproxy.Proxy) {
	t.Helper()
	proxy := pgproxy.Start(t, dbtest.Database(t).DSN)
	pool := dbtest.OpenPool(t, proxy.DSN())
	return &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClient(t, pool)}, proxy
}

// If the database goes away between the look of a page and that of its counts, these are not taken for too many: the
// counts before the outage stay.
func TestCountsInAnOutageAreNotTooMany(t *testing.T) {
	t.Parallel()
	k, proxy := behindProxy(t)
	s := newSite(k, Config{})
	if _, err := s.all.runs.runCounts(k.Ctx, web.Query{URL: "/runs"}); err != nil {
		t.Fatal(err)
	}
	proxy.Freeze()
	ctx, cancel := context.WithTimeout(k.Ctx, 100*time.Millisecond)
	defer cancel()
	if view, err := s.all.runs.runCounts(ctx, web.Query{URL: "/runs"}); err == nil {
		t.Errorf("counted %+v without a database, want an error", view)
	}
	proxy.Unfreeze()
}

func TestAPageOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	k, proxy := behindProxy(t)
	s := newSite(k, Config{})
	s.web.Cache.Timeout = web.LookTimeout
	kit.Begin(k, echo, "x", kagzi.ID("one"))
	s.mustGet("/runs")
	next := s.stream("/runs")
	counted := func(e sse) bool { return strings.Contains(e.data, `Pending <span class="n">1</span>`) }
	until(next, counted)

	proxy.Freeze()
	out := until(next, func(e sse) bool { return e.name == "outage" })
	if !strings.Contains(out.data, `"since":"20`) {
		t.Errorf("the stream says %s", out.data)
	}
	if page := s.mustGet("/runs"); !strings.Contains(page, "Postgres gives no answer</strong> since") ||
		!strings.Contains(page, ">one<") {
		t.Error("the page does not show what was known before the outage")
	}
	until(s.stream("/runs"), counted) // also what the page did not wait for
	if r := s.get("/runs?queue=other"); r.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(r.body, "Postgres gives no answer") || r.Header.Get("Retry-After") == "" {
		t.Errorf("a page that nobody has seen: %s", r.Status)
	}

	proxy.Unfreeze()
	until(next, func(e sse) bool { return e.name == "back" })
	if page := s.mustGet("/runs"); strings.Contains(page, "gives no answer</strong> since") {
		t.Error("after the outage the page says that there is one")
	}
}
