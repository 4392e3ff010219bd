package ui

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// How a page is made. Take schedules as an example:
//
//  1. schedules.go has a type with what its pages need, such as the client, and a method that returns the pages. A page
//     says its path, the Action that Authorize is asked, its template, the names of its live regions, and its look: the
//     function that asks the client and returns the view model, a struct with all that the template shows. A look gets
//     the path's and the query's values, and nothing of who asks: its answer is shared by all browsers. It treats what
//     it returned as constant.
//  2. templates/schedules.html defines "title" and "content". Its data is a *screen: {{.V}} is the view model, {{.May
//     "pause" "schedule" name}} whether to show a button, and functions of format.go write links, times, durations and
//     statuses. Partials are in templates/partials.html.
//  3. A live region is a template of its own, whose root element has its name as id: {{define "due"}}<section id="due"
//     data-live>…</section>{{end}}. The content shows it with {{template "due" .}}, and the page names it in live. The
//     browser gets it again whenever its HTML has changed. It must not say how long ago something is, or it would
//     change each second: {{ago}} and {{clock}} let the browser say that.
//  4. A part is a look that may be slow, such as a count: the page comes without it, and the stream brings it. Its live
//     region has its name, and {{.Part "name"}} is its view model, nil until it is there. One that is Framing is
//     in the layout of all pages.
//  5. A change is a web.ChangeForm, which deeds.go makes of an entry in the table of package deeds. The page that asks
//     for its reason and the POST that makes it have the same path and the same Action. Buttons come from buttons.go.
//  6. Payloads are shown only by payloads, which obey HidePayloads, and {{template "payload" …}}.
//
// Every route has its Action, so that none forgets to ask.

// pages are all pages and changes, by noun.
type pages struct {
	overview  *overviewPage
	runs      *runsPage
	run       *runPage
	schedules *schedulePages
	topics    *topicPages
	limits    *limitPages
	workers   *workerPages
	stranded  *strandedPage
	failures  *failuresPage
	audit     *auditPage
	doctor    *doctorPage
	forms     []web.ChangeForm
	bulk      *bulkForms
}

// needs are what the pages are made of.
type needs struct {
	client   *kagzi.Client
	admin    *admin.Client
	pool     *pgxpool.Pool
	cache    *web.Cache
	links    web.Links
	access   web.Access
	payloads payloads
	names    *runNames
	log      *slog.Logger
}

// stats are the statistics that pages share.
func (n needs) stats() sharedStats { return sharedStats{n.admin, n.cache} }

func newPages(n needs) pages {
	return pages{
		overview:  &overviewPage{n.admin, &throughput{admin: n.admin}, n.names, n.stats(), n.links},
		runs:      &runsPage{n.client, n.admin, n.names, n.cache},
		run:       &runPage{n.client, n.admin, n.access, n.cache, n.links, n.payloads, n.names},
		schedules: &schedulePages{n.client, n.admin, n.payloads},
		topics:    &topicPages{client: n.client, admin: n.admin, payloads: n.payloads},
		limits:    &limitPages{n.admin},
		workers:   &workerPages{n.client, n.admin},
		stranded:  &strandedPage{n.admin},
		failures:  &failuresPage{n.admin, n.names},
		audit:     &auditPage{n.admin, n.names},
		doctor:    &doctorPage{n.pool, n.cache},
		forms:     (&deedForms{n.client, n.payloads}).all(),
		bulk:      &bulkForms{n.client, n.admin, n.log},
	}
}

// named returns the request with the name of its object as Authorize is asked for it.
func (p pages) named(r *http.Request, a web.Action) (*http.Request, error) { return p.run.named(r, a) }

// routes are those of all pages.
func (p pages) routes() web.Routes {
	return web.Routes{
		Pages: slices.Concat(p.overview.pages(), p.runs.pages(), p.run.pages(), p.schedules.pages(),
			p.topics.pages(), p.limits.pages(), p.workers.pages(), p.stranded.pages(), p.failures.pages(),
			p.audit.pages(), p.doctor.pages()),
		Handlers: p.run.handlers(),
		Forms:    p.forms,
		Changes:  p.bulk.changes(),
	}
}
