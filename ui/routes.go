package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// How a page is made. Take schedules as an example:
//
//  1. schedules.go has a function schedulesPages() []page, which allPages calls. A page says its path, the Action that
//     Authorize is asked, its template, the names of its live regions, and its look: the function that asks the client
//     and returns the view model, a struct with all that the template shows. A look gets the path's and the query's
//     values, and nothing of who asks: its answer is shared by all browsers. It treats what it returned as constant.
//  2. templates/schedules.html defines "title" and "content". Its data is a *screen: {{.V}} is the view model, {{.May
//     "pause" "schedule" name}} whether to show a button, and functions of format.go write links, times, durations and
//     statuses. Partials are in templates/partials.html.
//  3. A live region is a template of its own, whose root element has its name as id: {{define "due"}}<section id="due"
//     data-live>…</section>{{end}}. The content shows it with {{template "due" .}}, and the page names it in live. The
//     browser gets it again whenever its HTML has changed. It must not say how long ago something is, or it would
//     change each second: {{ago}} and {{clock}} let the browser say that.
//  4. A part is a look that may be slow, such as a count: the page comes without it, and the stream brings it. Its live
//     region has its name, and {{.Part "name"}} is its view model, nil until it is there.
//  5. A change is a changeForm: see forms.go. The page that asks for its reason and the POST that makes it have the
//     same path and the same Action. do makes the change with f.options(), which have actor and reason, and returns
//     where to go, and what to say there. Buttons come from actions.go.
//  6. Payloads are shown only by d.payload, which obeys HidePayloads, and {{template "payload" …}}.
//
// Every route is registered here with its Action, so that none forgets to ask.

// allPages are the pages by GET.
func (d *dashboard) allPages() []page {
	return slices.Concat(d.overviewPages(), d.runsPages(), d.runPages(), d.readingPages(), d.formPages())
}

// allChanges are the changes by POST.
func (d *dashboard) allChanges() []change {
	return slices.Concat(d.formChanges(), d.bulkChanges())
}

// A page is a route of GET.
type page struct {
	path     string   // pattern of http.ServeMux, such as "/schedules/{name}"
	action   Action   // its ID is the path's {id} or {name}
	template string   // the file in templates, without .html
	live     []string // the names of its live regions
	look     look
	parts    []part
	about    func(q query) []Action // for what its query names, if its path does not: see guard
}

// A look asks the client for what a page shows.
type look func(ctx context.Context, q query) (any, error)

// A part is what a page shows besides its look, and does not wait for.
type part struct {
	name  string // of the live region
	every time.Duration
	look  look
}

// A settled view never changes again, so its page needs no stream.
type settled interface{ settled() bool }

// A change is a route of POST.
type change struct {
	path   string
	action Action
	do     func(ctx context.Context, f form) (answer, error)
	about  func(q query) []Action // for what its form names, if its path does not: see guard
}

// A query is what a page was asked for, without who asks.
type query struct {
	path   func(name string) string // the value of a wildcard of the path
	values url.Values
	url    string // path and query behind Config.Path: the key under which the answer is shared
}

// get returns a value of the query without the spaces around it.
func (q query) get(name string) string { return strings.TrimSpace(q.values.Get(name)) }

// A form is what a change was asked for.
type form struct {
	query
	actor string
	r     *http.Request
}

// reason is what the form says why.
func (f form) reason() string { return f.get("reason") }

// options are those of every change: who, and why.
func (f form) options(more ...kagzi.ChangeOption) []kagzi.ChangeOption {
	if f.actor != "" {
		more = append(more, kagzi.Actor(f.actor))
	}
	if f.reason() != "" {
		more = append(more, kagzi.Reason(f.reason()))
	}
	return more
}

// An answer is what a change leads to: another page, with a sentence about what was done, or a page of its own, such as
// a preview.
type answer struct {
	to       string // path behind Config.Path, as pathTo makes it
	said     string
	template string
	view     any
	code     int  // of the page of its own; zero means 200
	leads    bool // it leads there also from a dialog; else the page stays that the dialog was opened on
	again    bool // the form may be sent again: it has changed nothing, or not all
}

// maxBody bounds the body of a POST: a message may have 4 MiB, and more if escaped.
const maxBody = 16 << 20

// routes returns the handler of all routes, behind the check of where requests come from.
func (d *dashboard) routes(pages []page, changes []change) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{hash}/{file...}", d.files.serve)
	mux.HandleFunc("GET /find", d.guard(Action{Verb: View, Object: OnRun}, nil, d.find))
	mux.HandleFunc("GET /runs/{id}/raw", d.guard(Action{Verb: View, Object: OnRun}, nil, d.raw))
	for _, p := range pages {
		mux.HandleFunc("GET "+exact(p.path), d.guard(p.action, p.about, func(w http.ResponseWriter, r *http.Request,
			who viewer,
		) {
			d.page(w, r, who, p)
		}))
	}
	for _, c := range changes {
		mux.HandleFunc("POST "+exact(c.path), d.guard(c.action, c.about, func(w http.ResponseWriter, r *http.Request,
			who viewer,
		) {
			d.change(w, r, who, c)
		}))
	}
	mux.HandleFunc("/", d.guard(Action{Verb: View, Object: OnOverview}, nil, d.notFound))
	return d.sameSite(clean(d.cfg.Path, mux))
}

// sameSite refuses the changes that a page of another site has asked for. A browser of before 2020 does not say whose
// page that was: neither may be.
func (d *dashboard) sameSite(next http.Handler) http.Handler {
	csrf := http.NewCrossOriginProtection()
	csrf.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, viewer{}, status(http.StatusForbidden, "This change was asked for by a page of another site, so "+
			"it was refused."))
	}))
	checked := csrf.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		if !reads && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
			d.fail(w, r, viewer{}, status(http.StatusForbidden, "This change was refused, because the request does "+
				"not say which page has asked for it (Sec-Fetch-Site or Origin). Browsers since 2020 do."))
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// clean redirects requests for paths such as "/kagzi//runs" as the mux would, but to below base.
func clean(base string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.EscapedPath()
		cleaned := path.Clean("/" + asked)
		if strings.HasSuffix(asked, "/") && cleaned != "/" {
			cleaned += "/"
		}
		if cleaned == asked {
			next.ServeHTTP(w, r)
			return
		}
		if r.URL.RawQuery != "" {
			cleaned += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", strings.TrimSuffix(base, "/")+cleaned)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}

// exact returns the pattern that matches the path and nothing below it.
func exact(pattern string) string {
	if strings.HasSuffix(pattern, "/") {
		return pattern + "{$}"
	}
	return pattern
}

// query returns what the request asks for.
func (d *dashboard) query(r *http.Request, values url.Values) query {
	key := r.URL.EscapedPath()
	if len(values) > 0 {
		key += "?" + values.Encode()
	}
	return query{r.PathValue, values, key}
}

// change makes the change of a POST.
func (d *dashboard) change(w http.ResponseWriter, r *http.Request, who viewer, c change) {
	if err := readForm(w, r, maxBody); err != nil {
		d.fail(w, r, who, err)
		return
	}
	// A browser that goes away, as for a second click on the button, does not undo half of a change.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
	defer cancel()
	f := form{d.query(r, r.Form), who.actor, r}
	token := f.get(formToken)
	if len(token) > maxToken {
		d.fail(w, r, who, badRequest("The form cannot be read: its token is too long."))
		return
	}
	if token != "" { // nobody gets the answer of somebody else
		token = strings.Join([]string{r.URL.Path, who.actor, token}, "\n")
	}
	done, err := d.once.do(ctx, token, func() (answer, error) { return c.do(ctx, f) })
	if err == nil && !done.again {
		d.cache.expire()
	}
	switch {
	case err != nil:
		d.fail(w, r, who, err)
	case done.template != "":
		s := d.screen(r, who, d.query(r, r.Form))
		s.V = done.view
		d.render(w, cmp.Or(done.code, http.StatusOK), done.template, s)
	case r.Header.Get("HX-Request") != "": // a dialog asks, and the page under it is to change
		say(w, d.cfg.Path, done.said)
		to := d.link(done.to)
		if under, err := url.Parse(r.Header.Get("HX-Current-URL")); err == nil && !done.leads &&
			strings.HasPrefix(under.Path, d.cfg.Path) && !strings.HasPrefix(under.Path, "//") {
			to = under.RequestURI()
		}
		w.Header().Set("HX-Redirect", to)
	default:
		say(w, d.cfg.Path, done.said)
		http.Redirect(w, r, d.link(done.to), http.StatusSeeOther)
	}
}

// maxToken bounds the token of a form, which is kept.
const maxToken = 100

// changeTimeout bounds a change. Those of many runs take longer than a look.
const changeTimeout = time.Minute

// A statusError is an error with the status and the text of its page.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func status(code int, text string) error { return &statusError{code, text} }

// badRequest says what is wrong with a value that somebody typed.
func badRequest(format string, args ...any) error {
	return status(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// statusOf returns the status of the page that shows err.
func statusOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	return kagzi.HTTPStatus(err)
}
