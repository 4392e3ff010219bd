package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// find leads to the run that the search box names, by its run ID or its own ID, or else to the list that is searched
// for it: an ID may have had several runs.
func (p *runPage) find(w http.ResponseWriter, r *http.Request) error {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	to := "/runs?" + url.Values{"id": {text}}.Encode()
	if text == "" {
		to = "/runs"
	} else if deeds.IsRunID(text) {
		to = "/runs/" + strings.ToLower(text)
	} else if id := p.onlyRun(r.Context(), text); id != "" {
		to = "/runs/" + string(id)
	}
	http.Redirect(w, r, p.links.To(to), http.StatusSeeOther)
	return nil
}

// onlyRun returns the run whose own ID that is, empty if there are none, several, or no answer.
func (p *runPage) onlyRun(ctx context.Context, id string) kagzi.RunID {
	found := p.cache.Get(ctx, "find "+id, p.cache.Every, func(ctx context.Context) (any, error) {
		return p.client.List(ctx, kagzi.RunFilter{ID: kagzi.ID(id), Limit: 2})
	})
	if runs, _ := found.View.([]kagzi.RunInfo); found.Err == nil && len(runs) == 1 {
		return runs[0].ID
	}
	return ""
}

// named returns the request with the run ID in its path. A page may be asked for by the run's own ID, but Authorize is
// always asked for the run ID. Who may not search runs cannot try their IDs. The error is who deleted the run, for
// example.
func (p *runPage) named(r *http.Request, a web.Action) (*http.Request, error) {
	if a.Object != string(OnRun) || r.PathValue("id") == "" {
		return r, nil
	}
	text := r.PathValue("id")
	id := web.Canonical(text)
	if !deeds.IsRunID(text) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return r, web.Status(http.StatusNotFound, "There is no such run.") // a change is of the run that was seen
		}
		if err := p.access.Allow(r, asks(View, OnRun)); err != nil {
			return r, err
		}
		f := p.cache.Get(r.Context(), "id "+text, p.cache.Every, func(ctx context.Context) (any, error) {
			run, err := p.client.Get(ctx, kagzi.ID(text))
			if errors.Is(err, kagzi.ErrNotFound) {
				err = p.gone(ctx, kagzi.ID(text))
			}
			return string(run.ID), err
		})
		found, ok := f.View.(string)
		if !ok || f.Err != nil && !web.Away(f.Err) {
			return r, f.Err
		}
		id = found
	}
	if id == text {
		return r, nil
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/runs/"), text)
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = "/runs/"+id+rest, ""
	r.SetPathValue("id", id)
	return r, nil
}
