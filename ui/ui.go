// Package ui is Kagzi's dashboard: an http.Handler that a service puts in its own mux.
//
//	mux.Handle("/kagzi/", ui.Handler(client, ui.Config{}))
//
// It shows the client's namespace: whether the work goes on, the runs with their timelines and why they wait,
// schedules, topics, limits and workers. Pages update themselves while they are open. With [Config.Authorize] the
// dashboard also changes runs, schedules, limits and workers, and records who did it and why. [Namespaces] shows
// several namespaces.
//
// Everything is served from the program itself: there is no build step, and no request to any other host. The handler
// has no login: the service must authenticate in front of it. The README in this folder describes the pages, what they
// cost and what a service must do.
package ui

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/kagzi/kagzi/admin"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	failures "github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A Config configures a [Handler]. Its zero value shows everything to every visitor who reaches the handler, and
// changes nothing.
type Config struct {
	// Path is where a browser finds the dashboard: every link begins with it. It begins and ends with a slash. Zero
	// means "/kagzi/". If http.StripPrefix or a proxy stands in front, Path is what the browser asks for nevertheless.
	// The handler must get all of it or, if it is removed on the way, nothing of it.
	Path string

	// Authorize says who sends a request, and whether that person may do what it asks. The handler asks before each
	// page, stream and change. For a change it asks twice: whether it is allowed, and whether its object may be viewed.
	// It also asks for each button of a page, and hides those refused. Open pages ask again each second, and end if
	// they are refused. So it must be quick: only for a POST should it ask a database. It must be safe for concurrent
	// use.
	//
	// The actor goes into the audit log; it may be empty. An error refuses the request with status 403, and its text is
	// shown. Nil lets all requests read, and none change anything.
	Authorize func(r *http.Request, a Action) (actor string, err error)

	// HidePayloads hides inputs, results, and the payloads of messages and events: pages show only their sizes, and
	// they cannot be downloaded. Errors, names, IDs, tags, headers and progress are shown.
	HidePayloads bool

	// Pool is the client's pool. The page Doctor needs it to examine the database; with nil that page says so, and all
	// others work.
	Pool *pgxpool.Pool

	// TraceURL is the address of a trace in your tracing system, with {trace} in place of the trace's ID, as in
	// "https://traces.example.com/trace/{trace}". The page of a run that was started within a trace has a link to it:
	// the run's headers say which one, as W3C's traceparent. Zero means no link.
	TraceURL string

	// MaxStreams is how many pages may update themselves at the same time. Others stay as they were loaded. Zero means
	// 500; a negative number means none.
	MaxStreams int

	// Logger receives the changes that were made, with their actors, and the errors that a page cannot show. A panic in
	// its handler is caught. Nil means slog.Default().
	Logger *slog.Logger
}

// Handler returns the dashboard of the client's namespace. Any goroutine may use it, and nothing has to be closed. It
// does no I/O and starts no goroutine: its pages report a database that is away, or that was not migrated. It panics if
// c is nil, or if a field of cfg is not as its comment says.
//
// A hundred browsers on a page cost the database what one of them costs: what a page shows is looked up at most once a
// second, and less often if that takes long. Each look ends after 5 seconds. Pages that update themselves hold a
// request open for up to 5 minutes, and then send another one; http.Server.Shutdown ends them.
func Handler(c *kagzi.Client, cfg Config) http.Handler {
	d, err := newDashboard(c, cfg)
	if err != nil {
		panic(err)
	}
	return d
}

//go:embed static templates
var files embed.FS

// newDashboard returns the handler.
func newDashboard(c *kagzi.Client, cfg Config) (*web.Site, error) {
	return newDashboardAmong(c, cfg, neighbours{})
}

// newDashboardAmong returns the handler of one of several namespaces.
func newDashboardAmong(c *kagzi.Client, cfg Config, others neighbours) (*web.Site, error) {
	site, _, err := configureAmong(c, cfg, others)
	if err != nil {
		return nil, err
	}
	return web.New(site)
}

// configure returns what the handler is made of, and the pages apart.
func configure(c *kagzi.Client, cfg Config) (site web.Config, all pages, err error) {
	return configureAmong(c, cfg, neighbours{})
}

// configureAmong is configure for one of several namespaces.
func configureAmong(c *kagzi.Client, cfg Config, others neighbours) (site web.Config, all pages, err error) {
	if c == nil {
		return site, all, errNoClient
	}
	links := cfg.links()
	if err := validPath(string(links)); err != nil {
		return site, all, err
	}
	traces := traceLinks(cfg.TraceURL)
	if err := traces.valid(); err != nil {
		return site, all, err
	}
	names := &runNames{client: c}
	namespace := others.name(c)
	site = web.Config{
		Links: links, Namespace: namespace, Access: accessOf(namespace, cfg.Authorize), Usual: usualChanges,
		MaxStreams: cmp.Or(cfg.MaxStreams, 500), Patience: formTimeout, Cache: web.NewCache(),
		Log:   failures.SafeLogger(cmp.Or(cfg.Logger, slog.Default())),
		Files: files, Funcs: funcs(links, names), Data: onScreen, Elsewhere: asks(View, OnOverview),
	}
	maps.Copy(site.Funcs, runFuncs())
	site.Funcs["trace"] = traces.of
	site.Funcs["several"] = others.any
	all = newPages(needs{
		c, admin.New(c), cfg.Pool, site.Cache, links, site.Access,
		payloads{cfg.HidePayloads},
		names,
		site.Log,
	})
	site.Name, site.Routes = all.named, all.routes()
	site.Routes.Pages = append(site.Routes.Pages, others.pages()...)
	counts := &tallies{c, admin.New(c), sharedStats{admin.New(c), site.Cache}}
	site.Frame = []web.Part{{Name: "nav", Every: tallyEvery, Look: counts.look, Framing: true}}
	return site, all, nil
}

// links returns where a browser finds the dashboard.
func (c Config) links() web.Links { return web.Links(cmp.Or(c.Path, defaultPath)) }

// at returns the configuration of a dashboard that is elsewhere.
func (c Config) at(links web.Links) Config {
	c.Path = string(links)
	return c
}

// allows reports whether the sender of the request may do what it asks.
func (c Config) allows(r *http.Request, a Action) bool {
	if c.Authorize == nil {
		return !a.Changes()
	}
	_, err := c.Authorize(r, a)
	return err == nil
}

// formTimeout bounds the change of one thing, so that people who wait for it are told of an outage.
const formTimeout = 10 * time.Second

const defaultPath = "/kagzi/"

// validPath returns the error of a Config's Path.
func validPath(p string) error {
	if !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || p != "/" && (path.Clean(p)+"/" != p || p == "//") ||
		strings.ContainsAny(p, "?#%\\\"<> ") {
		return fmt.Errorf(`ui: Config.Path is %q: give a path that begins and ends with a slash, such as "/kagzi/"`, p)
	}
	return nil
}

var errNoClient = errors.New("ui: the client is nil: make one with kagzi.NewClient")
