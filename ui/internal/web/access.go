package web

import (
	"net/http"
)

// An Access says who may do what. Its zero value lets all viewers look, and change nothing.
type Access struct {
	// authorize returns who sends the request, or why it is refused. Nil: the service has said nothing about it.
	authorize func(*http.Request, Action) (actor string, err error)
}

// NewAccess returns the Access that asks authorize, unless that is nil.
func NewAccess(authorize func(*http.Request, Action) (actor string, err error)) Access {
	return Access{authorize}
}

// A Viewer is who sends a request.
type Viewer struct {
	Actor string
	may   func(Action) bool
	still func() error // asks again for what the request was allowed to do
}

var errReadOnly = Status(http.StatusForbidden, "This dashboard only reads: its Config has no Authorize, which says "+
	"who may change something.")

// ReadOnly reports whether all changes are refused.
func (a Access) ReadOnly() bool { return a.authorize == nil }

// viewer returns who sends the request, if all of the actions are allowed. The first of them says the actor.
func (a Access) viewer(r *http.Request, asked []Action) (who Viewer, err error) {
	who = Viewer{may: func(one Action) bool { return a.Allow(r, one) == nil }, still: func() error {
		return a.Allow(r, asked...)
	}}
	if who.Actor, err = a.actor(r, asked[0]); err == nil {
		err = a.Allow(r, asked[1:]...)
	}
	return who, err
}

// name returns who that is, as Access has said; empty if it said nothing.
func (v Viewer) name() string { return v.Actor }

// rights returns what the viewer may do; nil before that is known.
func (v Viewer) rights() func(Action) bool { return v.may }

// stays returns why the viewer may see the page no longer.
func (v Viewer) stays() error { return v.still() }

// Allow returns the error of the first Action that is refused.
func (a Access) Allow(r *http.Request, actions ...Action) error {
	for _, one := range actions {
		if _, err := a.actor(r, one); err != nil {
			return err
		}
	}
	return nil
}

// actor returns who may do the action.
func (a Access) actor(r *http.Request, one Action) (actor string, err error) {
	if a.authorize == nil {
		if one.Changes() {
			return "", errReadOnly
		}
		return "", nil
	}
	if actor, err = a.authorize(r, one); err != nil {
		return "", Status(http.StatusForbidden, err.Error())
	}
	return actor, nil
}
