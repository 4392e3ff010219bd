package ui

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
)

// A viewer is who sends a request.
type viewer struct {
	actor string
	may   func(Action) bool
	still func() error // asks again for what the request was allowed to do
}

var errReadOnly = status(http.StatusForbidden, "This dashboard only reads: its Config has no Authorize, which says "+
	"who may change something.")

// guard asks Authorize before do. It is the only way to a page or a change. about returns the Actions of what the
// fields of a form name; without it the path says what the request is about.
func (d *dashboard) guard(a Action, about func(query) []Action, do func(http.ResponseWriter, *http.Request,
	viewer),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var err error
		if a.Object == OnRun && r.PathValue("id") != "" {
			if r, err = d.named(r); err != nil {
				d.fail(w, r, viewer{}, err)
				return
			}
		}
		asked, err := d.asked(w, r, a, about)
		if err != nil {
			d.fail(w, r, viewer{}, err)
			return
		}
		who := viewer{may: func(a Action) bool { return d.allow(r, a) == nil }, still: func() error {
			return d.allow(r, asked...)
		}}
		if who.actor, err = d.authorize(r, asked[0]); err == nil {
			err = d.allow(r, asked[1:]...)
		}
		if err != nil {
			d.fail(w, r, viewer{}, err)
			return
		}
		do(w, r, who)
	}
}

// asked returns the Actions that Authorize must allow. Who changes something may also see it, as the form shows it.
func (d *dashboard) asked(w http.ResponseWriter, r *http.Request, a Action,
	about func(query) []Action,
) (all []Action, err error) {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if a.ID = r.PathValue("name"); a.ID == "" {
		a.ID = canonical(r.PathValue("id"))
	}
	if !read && !a.Changes() {
		a.Verb = Update // nothing answers it, but nobody who only reads should learn that
	}
	if about != nil && d.cfg.Authorize != nil {
		values := r.URL.Query()
		if !read {
			if err := readForm(w, r, maxNamed); err != nil {
				return nil, err
			}
			values = r.Form
		}
		all = about(d.query(r, values))
	}
	if len(all) == 0 {
		all = []Action{a}
	}
	for _, a := range slices.Clone(all) {
		if a.Changes() {
			a.Verb = View
			all = append(all, a)
		}
	}
	return all, nil
}

// maxNamed bounds a form that is read before Authorize is asked: those whose fields say what they are about are small.
const maxNamed = 64 << 10

// readForm reads the form of a POST, once.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if err := r.ParseForm(); err != nil {
		return status(http.StatusBadRequest, "The form cannot be read: "+err.Error())
	}
	return nil
}

// canonical returns an ID as Authorize is asked for it, and as the database writes it: a UUID can be written in several
// ways.
func canonical(id string) string {
	if u, err := uuid.Parse(id); err == nil {
		return u.String()
	}
	return id
}

// named returns the request with the run ID in its path. A page may be asked for by the run's own ID, but Authorize is
// always asked for the run ID. Who may not search runs cannot try their IDs. The error is who deleted the run, for
// example.
func (d *dashboard) named(r *http.Request) (*http.Request, error) {
	text := r.PathValue("id")
	id := canonical(text)
	if !isRunID(text) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return r, status(http.StatusNotFound, "There is no such run.") // a change is of the run that was seen
		}
		if err := d.allow(r, Action{Verb: View, Object: OnRun}); err != nil {
			return r, err
		}
		f := d.cache.get(r.Context(), "id "+text, d.every, func(ctx context.Context) (any, error) {
			run, err := d.client.Get(ctx, kagzi.ID(text))
			if errors.Is(err, kagzi.ErrNotFound) {
				err = d.gone(ctx, kagzi.ID(text))
			}
			return string(run.ID), err
		})
		found, ok := f.view.(string)
		if !ok || f.err != nil && !away(f.err) {
			return r, f.err
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

// allow returns the error of the first Action that is refused.
func (d *dashboard) allow(r *http.Request, actions ...Action) error {
	for _, a := range actions {
		if _, err := d.authorize(r, a); err != nil {
			return err
		}
	}
	return nil
}

// authorize returns who may do the action.
func (d *dashboard) authorize(r *http.Request, a Action) (actor string, err error) {
	if d.cfg.Authorize == nil {
		if a.Changes() {
			return "", errReadOnly
		}
		return "", nil
	}
	if actor, err = d.cfg.Authorize(r, a); err != nil {
		return "", status(http.StatusForbidden, err.Error())
	}
	return actor, nil
}
