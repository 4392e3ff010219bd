package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// Namespaces returns the dashboards of several namespaces, which may be in several databases. Each is that of
// [Handler], at cfg.Path with its name and a slash. A page of each lists them all, with their health.
//
// A name is a part of the path: it consists of letters, digits, '-', '_', '.' and '~', and does not begin with '.'. The
// client's namespace may have another one. Authorize gets the name as Action.Namespace, and a viewer sees those whose
// overview it allows. Leave cfg.Pool nil if there are several databases. The map is read once.
//
// It panics as Handler does, and if there are no clients or if a name is not valid.
func Namespaces(clients map[string]*kagzi.Client, cfg Config) http.Handler {
	s, err := newSeveral(clients, cfg)
	if err != nil {
		panic(err)
	}
	return s
}

// neighbours are all namespaces of a handler, and which of them a dashboard is about. The zero value has none.
type neighbours struct {
	own string
	all []neighbour
}

// any reports whether there are several namespaces.
func (n neighbours) any() bool { return len(n.all) > 0 }

// name returns the name of the dashboard's namespace.
func (n neighbours) name(c *kagzi.Client) string { return cmp.Or(n.own, c.Namespace()) }

// A neighbour is a namespace of a handler.
type neighbour struct {
	name  string
	links web.Links
	admin *admin.Client
}

// several is the handler of several namespaces.
type several struct {
	cfg        Config
	names      []string
	dashboards map[string]http.Handler
}

var segment = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9._~-]*$`) // "." and ".." are no names

func newSeveral(clients map[string]*kagzi.Client, cfg Config) (*several, error) {
	s := &several{
		cfg: cfg, names: slices.Sorted(maps.Keys(clients)), dashboards: map[string]http.Handler{},
	}
	if len(clients) == 0 {
		return nil, errors.New("ui: Namespaces has no clients: give at least one, by its name")
	}
	links := string(cfg.links())
	if err := validPath(links); err != nil {
		return nil, err
	}
	var all []neighbour
	for _, name := range s.names {
		if !segment.MatchString(name) {
			return nil, fmt.Errorf("ui: the name %q of a namespace is a part of its path: give letters, digits, "+
				"'-', '_', '.' and '~', and no '.' at the beginning", name)
		}
		all = append(all, neighbour{name, web.Links(links + name + "/"), admin.New(clients[name])})
	}
	for _, n := range all {
		dashboard, err := newDashboardAmong(clients[n.name], cfg.at(n.links), neighbours{n.name, all})
		if err != nil {
			return nil, fmt.Errorf("%w (namespace %q)", err, n.name)
		}
		s.dashboards[n.name] = dashboard
	}
	return s, nil
}

// ServeHTTP hands the request to the dashboard that its path names. The path itself leads to the list of namespaces.
func (s *several) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	links := string(s.cfg.links())
	prefix := strings.TrimSuffix(links, "/")
	rest, found := strings.CutPrefix(r.URL.Path, prefix)
	if !found {
		rest = r.URL.Path // the prefix was removed on the way
	}
	name, _, more := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	switch dashboard := s.dashboards[name]; {
	case name == "":
		http.Redirect(w, r, links+s.first(r)+"/namespaces", http.StatusSeeOther)
	case dashboard == nil:
		http.NotFound(w, r)
	case !more:
		http.Redirect(w, r, links+name+"/", http.StatusSeeOther)
	case found:
		dashboard.ServeHTTP(w, r)
	default:
		r = r.Clone(r.Context())
		r.URL = &url.URL{Path: prefix + r.URL.Path, RawQuery: r.URL.RawQuery}
		dashboard.ServeHTTP(w, r)
	}
}

// first returns the first name that the viewer may see; the first one if there is none.
func (s *several) first(r *http.Request) string {
	for _, name := range s.names {
		if s.cfg.allows(r, Action{Verb: View, Object: OnOverview, Namespace: name}) {
			return name
		}
	}
	return s.names[0]
}

// pages are the list of namespaces, if there are several.
func (n neighbours) pages() []web.Page {
	if !n.any() {
		return nil
	}
	return []web.Page{{
		Path: "/namespaces", Action: asks(View, OnOverview), Template: "namespaces", Live: []string{"namespaces"},
		Look:  func(context.Context, web.Query) (any, error) { return n.own, nil },
		Parts: []web.Part{{Name: "namespaces", Every: 10 * time.Second, Look: n.look}},
	}}
}

// A namespaceRow is a row of the list of namespaces.
type namespaceRow struct {
	Name, Path string
	Status     health.Status
	Trouble    string // the first bad check; empty: all is well
	Due        int
	DueMore    bool
	Failed     int // within the last hour
	Workers    int
}

// look asks some namespaces at a time how they are.
func (n neighbours) look(ctx context.Context, _ web.Query) (any, error) {
	const together = 8
	rows := make([]namespaceRow, len(n.all))
	var asked sync.WaitGroup
	turns := make(chan struct{}, together)
	for i, one := range n.all {
		turns <- struct{}{}
		asked.Go(func() {
			defer func() { <-turns }()
			rows[i] = one.row(ctx)
		})
	}
	asked.Wait()
	return rows, nil
}

func (n neighbour) row(ctx context.Context) namespaceRow {
	row := namespaceRow{Name: n.name, Path: string(n.links)}
	report, err := n.admin.Health(ctx)
	if err != nil {
		row.Status, row.Trouble = health.Unhealthy, web.Sentence(err)
		return row
	}
	row.Status, row.Workers = report.Status, report.Workers.Live
	for _, c := range report.Checks {
		if row.Trouble == "" && c.Status == report.Status && c.Status != health.Healthy {
			row.Trouble = c.Detail
		}
	}
	for _, q := range report.Queues {
		row.Due, row.DueMore = row.Due+q.Due, row.DueMore || q.More
	}
	for _, f := range report.Failed {
		row.Failed += f.Runs
	}
	return row
}

// Visible returns the rows of the namespaces whose overview the viewer may see.
func (s *screen) Visible(rows []namespaceRow) (visible []namespaceRow) {
	for _, row := range rows {
		a := asks(View, OnOverview)
		a.Namespace = row.Name
		if s.Sees(a) {
			visible = append(visible, row)
		}
	}
	return visible
}
