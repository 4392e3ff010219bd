package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
)

// away reports whether the database gives no answer, so that the same request may succeed later.
func away(err error) bool {
	if unconnected(err) { // also with a wrong password, which somebody mends
		return true
	}
	switch kagzi.HTTPStatus(err) {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusBadGateway:
		return true
	}
	return false
}

// unconnected reports whether there is no connection to the database.
func unconnected(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// sentence returns the text of an error for people.
func sentence(err error) string {
	if unconnected(err) { // its text has the host, the user and the database
		return "The program cannot connect to Postgres. Its log says why."
	}
	text := inTerms(strings.TrimPrefix(err.Error(), "kagzi: "))
	if text == "" {
		return "unknown error"
	}
	begin, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(begin)) + text[size:]
}

// heard logs the beginning of an outage: pages say little about why there is no connection.
func (d *dashboard) heard(ctx context.Context, err error) {
	if err == nil {
		d.out.Store(false)
	} else if away(err) && !d.out.Swap(true) {
		d.log.WarnContext(ctx, "kagzi: the dashboard gets no answer from the database", "err", err)
	}
}

// A failure is the view model of the page that shows an error.
type failure struct {
	Code  int
	Title string
	Text  string
	Away  bool
	Since time.Time // since when the database is away
	Find  bool      // the page offers a search
}

var titles = map[int]string{
	http.StatusBadRequest:            "That cannot be done",
	http.StatusForbidden:             "Not allowed",
	http.StatusNotFound:              "Not found",
	http.StatusMethodNotAllowed:      "Not possible here",
	http.StatusConflict:              "The run is in another state",
	http.StatusRequestEntityTooLarge: "Too large",
	http.StatusTooManyRequests:       "Too many",
	http.StatusUnprocessableEntity:   "That is not valid",
}

// fail answers with a page that shows err.
func (d *dashboard) fail(w http.ResponseWriter, r *http.Request, who viewer, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // nobody reads the answer
	}
	v := failure{Code: statusOf(err), Text: sentence(err)}
	v.Title = titles[v.Code]
	v.Find = v.Code == http.StatusNotFound
	switch {
	case v.Code >= 500 && away(err):
		v.Code, v.Away, v.Title = http.StatusServiceUnavailable, true, "Postgres gives no answer"
		v.Since = d.cache.peek(d.query(r, r.URL.Query()).url).since
		w.Header().Set("Retry-After", "2")
	case v.Code >= 500:
		v.Title = "Something is wrong"
		d.log.ErrorContext(r.Context(), "kagzi: the dashboard cannot answer", "path", r.URL.Path, "err", err)
	case v.Title == "":
		v.Title = http.StatusText(v.Code)
	}
	s := d.screen(r, who, d.query(r, nil))
	s.V, s.Live = v, v.Away
	d.render(w, v.Code, "error", s)
}

// notFound answers for a path that no page has.
func (d *dashboard) notFound(w http.ResponseWriter, r *http.Request, who viewer) {
	code, text := http.StatusNotFound, "There is no such page."
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		code, text = http.StatusMethodNotAllowed, "This page takes no such request."
	case !strings.HasPrefix(asked, d.cfg.Path):
		text = "There is no such page. If this should be the dashboard: its Config.Path is " + d.cfg.Path +
			", and the request came for " + asked + "."
	}
	d.fail(w, r, who, status(code, text))
}

// find leads to the run that the search box names, by its run ID or its own ID, or else to the list that is searched
// for it: an ID may have had several runs.
func (d *dashboard) find(w http.ResponseWriter, r *http.Request, _ viewer) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	to := "/runs?" + url.Values{"id": {text}}.Encode()
	if text == "" {
		to = "/runs"
	} else if isRunID(text) {
		to = "/runs/" + strings.ToLower(text)
	} else if id := d.onlyRun(r.Context(), text); id != "" {
		to = "/runs/" + string(id)
	}
	http.Redirect(w, r, d.link(to), http.StatusSeeOther)
}

// onlyRun returns the run whose own ID that is, empty if there are none, several, or no answer.
func (d *dashboard) onlyRun(ctx context.Context, id string) kagzi.RunID {
	found := d.cache.get(ctx, "find "+id, d.every, func(ctx context.Context) (any, error) {
		return d.client.List(ctx, kagzi.RunFilter{ID: kagzi.ID(id), Limit: 2})
	})
	if runs, _ := found.view.([]kagzi.RunInfo); found.err == nil && len(runs) == 1 {
		return runs[0].ID
	}
	return ""
}

// isRunID reports whether a text is a run ID, not an ID of the application.
func isRunID(s string) bool {
	_, err := uuid.Parse(s)
	return err == nil && len(s) == len(uuid.Nil.String())
}

// terms are calls of the library that its texts advise, and what stands for them here.
var terms = strings.NewReplacer(
	"call kagzi.Migrate", "run kagzi migrate up",
	"kagzi.Migrate", "kagzi migrate up",
	"Client.BackfillSchedule", "backfill",
	"Client.CancelAll", "cancel",
	"Client.Cancel", "cancel",
	"Client.Consumers", "the page Topics",
	"Client.DrainQueue", "drain",
	"Client.Drain", "drain",
	"Client.ForceOffline", "force offline",
	"Client.Fork", "fork",
	"Client.Get", "the run's page",
	"Client.Health", "the overview",
	"Client.List", "the list of runs",
	"Client.DropMessage", "Drop",
	"Client.Messages", "the run's messages",
	"Client.Pauses", "the page Limits",
	"Client.RestartAll", "restart",
	"Client.Restart", "restart",
	"Client.ResumeAll", "resume",
	"Client.ResumeSchedule", "resume",
	"Client.Resume", "resume",
	"Client.RunLog", "the run's log",
	"Client.SetKey", "the page Limits",
	"Client.SetLimit", "the page Limits",
	"Client.SetQueue", "the page Limits",
	"Client.Steps", "the run's page",
	"Client.Stranded", "the page Stranded",
	"Client.Terminate", "terminate",
	"Client.UnpauseRuns", "unpause",
	"Client.UnpauseRun", "unpause",
	"Client.Unpause", "unpause",
	"Client.WorkerLog", "the worker's log",
	"kagzi: ", "",
)

// inTerms returns a text of the library with what a reader of the dashboard knows in place of calls. Calls that have no
// such thing stay.
func inTerms(s string) string { return terms.Replace(s) }
