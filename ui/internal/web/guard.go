package web

import (
	"net/http"
	"slices"

	"github.com/google/uuid"
)

// A guard asks Access before a page or a change is made. It is the only way to them.
type guard struct {
	access Access
	// name returns the request with the name of its object as Access is asked for it.
	name func(*http.Request, Action) (*http.Request, error)
	fail func(http.ResponseWriter, *http.Request, Viewer, error)
}

// before returns a handler that does what it is for if that is allowed. about returns the Actions of what the fields of
// a form name; without it the path says what the request is about.
func (g guard) before(a Action, about func(Query) []Action,
	do func(http.ResponseWriter, *http.Request, Viewer),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r, err := g.name(r, a)
		if err != nil {
			g.fail(w, r, Viewer{}, err)
			return
		}
		asked, err := g.asked(w, r, a, about)
		if err != nil {
			g.fail(w, r, Viewer{}, err)
			return
		}
		who, err := g.access.viewer(r, asked)
		if err != nil {
			g.fail(w, r, Viewer{}, err)
			return
		}
		do(w, r, who)
	}
}

// asked returns the Actions that must be allowed. Who changes something may also see it, as the form shows it.
func (g guard) asked(w http.ResponseWriter, r *http.Request, a Action,
	about func(Query) []Action,
) (all []Action, err error) {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	id := r.PathValue("name")
	if id == "" {
		id = Canonical(r.PathValue("id"))
	}
	if a = a.of(id); !read {
		a = a.unknown()
	}
	if about != nil && !g.access.ReadOnly() {
		values := r.URL.Query()
		if !read {
			if err := readForm(w, r, maxNamed); err != nil {
				return nil, err
			}
			values = r.Form
		}
		all = about(QueryOf(r, values))
	}
	if len(all) == 0 {
		all = []Action{a}
	}
	for _, a := range slices.Clone(all) {
		if a.Changes() {
			all = append(all, a.looks())
		}
	}
	return all, nil
}

// maxNamed bounds a form that is read before Access is asked: those whose fields say what they are about are small.
const maxNamed = 64 << 10

// readForm reads the form of a POST, once.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if err := r.ParseForm(); err != nil {
		return Status(http.StatusBadRequest, "The form cannot be read: "+err.Error())
	}
	return nil
}

// Canonical returns an ID as Access is asked for it, and as the database writes it: a UUID can be written in several
// ways.
func Canonical(id string) string {
	if u, err := uuid.Parse(id); err == nil {
		return u.String()
	}
	return id
}
