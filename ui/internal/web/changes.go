package web

import (
	"context"
	"net/http"
	"time"
)

// changes serve the POSTs of forms.
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
	done, err := cs.once.do(ctx, token, func() (Answer, error) { return c.make(ctx, f) })
	if err == nil && !done.again() {
		cs.cache.Expire()
	}
	switch {
	case err != nil:
		cs.failures.show(w, r, who, err)
	case done.isPage():
		s := cs.screens.of(r, who, f.query())
		code, template := done.onScreen(s)
		cs.templates.page(w, code, template, s)
	default:
		done.lead(w, r, cs.links)
	}
}

// changeTimeout bounds a change. Those of many runs take longer than a look.
const changeTimeout = time.Minute
