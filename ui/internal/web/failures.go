package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// failures answer with pages that show errors.
type failures struct {
	links     Links
	cache     *Cache
	screens   screens
	templates *templates
	log       *slog.Logger
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

// show answers with a page that shows err.
func (f *failures) show(w http.ResponseWriter, r *http.Request, who Viewer, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // no browser reads the answer
	}
	v := failure{Code: StatusOf(err), Text: Sentence(err)}
	v.Title = titles[v.Code]
	v.Find = v.Code == http.StatusNotFound
	switch {
	case v.Code >= 500 && Away(err):
		v.Code, v.Away, v.Title = http.StatusServiceUnavailable, true, "Postgres gives no answer"
		v.Since = f.cache.Peek(QueryOf(r, r.URL.Query()).key()).away()
		w.Header().Set("Retry-After", "2")
	case v.Code >= 500:
		v.Title = "Something is wrong"
		f.log.ErrorContext(r.Context(), "kagzi: the dashboard cannot answer", "path", r.URL.Path, "err", err)
	case v.Title == "":
		v.Title = http.StatusText(v.Code)
	}
	s := f.screens.of(r, who, QueryOf(r, nil))
	s.shows(v, v.Away)
	f.templates.page(w, v.Code, "error", s)
}

// notFound answers for a path that no page has.
func (f *failures) notFound(w http.ResponseWriter, r *http.Request, who Viewer) {
	code, text := http.StatusNotFound, "There is no such page."
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		code, text = http.StatusMethodNotAllowed, "This page takes no such request."
	case !strings.HasPrefix(asked, string(f.links)):
		text = "There is no such page. If this should be the dashboard: its Config.Path is " + string(f.links) +
			", and the request came for " + asked + "."
	}
	f.show(w, r, who, Status(code, text))
}
