package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// changes make what forms ask for.
type changes struct {
	links     Links
	access    Access
	cache     *Cache
	once      once
	screens   screens
	templates *templates
	failures  *failures
}

// maxBody bounds the body of a POST: a message may have 4 MiB, and more if escaped.
const maxBody = 16 << 20

// serve makes the change of a POST.
func (cs *changes) serve(w http.ResponseWriter, r *http.Request, who Viewer, c Change) {
	if err := readForm(w, r, maxBody); err != nil {
		cs.failures.show(w, r, who, err)
		return
	}
	// A browser that goes away, as for a second click on the button, does not undo half of a change.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
	defer cancel()
	f := formOf(r, who, cs.access)
	token, err := f.token()
	if err != nil {
		cs.failures.show(w, r, who, err)
		return
	}
	done, err := cs.once.do(ctx, token, func() (Answer, error) { return c.Do(ctx, f) })
	if err == nil && !done.Again {
		cs.cache.Expire()
	}
	switch {
	case err != nil:
		cs.failures.show(w, r, who, err)
	case done.isPage():
		s := cs.screens.of(r, who, f.Query)
		s.shows(done.View, false)
		cs.templates.page(w, cmp.Or(done.Code, http.StatusOK), done.Template, s)
	case r.Header.Get("HX-Request") != "": // a dialog asks, and the page under it is to change
		say(w, string(cs.links), done.Said)
		to := cs.links.To(done.To)
		if under, err := url.Parse(r.Header.Get("HX-Current-URL")); err == nil && !done.Leads &&
			strings.HasPrefix(under.Path, string(cs.links)) && !strings.HasPrefix(under.Path, "//") {
			to = under.RequestURI()
		}
		w.Header().Set("HX-Redirect", to)
	default:
		say(w, string(cs.links), done.Said)
		http.Redirect(w, r, cs.links.To(done.To), http.StatusSeeOther)
	}
}

// changeTimeout bounds a change. Those of many runs take longer than a look.
const changeTimeout = time.Minute
