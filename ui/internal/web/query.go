package web

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/deeds"
)

// A Query is what a page was asked for, without who asks.
type Query struct {
	Path   func(name string) string // the value of a wildcard of the path
	Values url.Values
	URL    string // path and query behind the dashboard's path: the key under which the answer is shared
}

// QueryOf returns what the request asks for.
func QueryOf(r *http.Request, values url.Values) Query {
	key := r.URL.EscapedPath()
	if len(values) > 0 {
		key += "?" + values.Encode()
	}
	return Query{r.PathValue, values, key}
}

// Get returns a value of the query without the spaces around it.
func (q Query) Get(name string) string { return strings.TrimSpace(q.Values.Get(name)) }

// Has reports whether one of the fields has a value.
func (q Query) Has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return q.Get(name) != "" })
}

// Asked reports whether a box was ticked.
func (q Query) Asked(name string) bool { return q.Get(name) != "" }

// key returns the key under which the answer is shared, with what else it is about.
func (q Query) key(more ...string) string { return strings.Join(append([]string{q.URL}, more...), " ") }

// page returns the path of the page.
func (q Query) page() string {
	path, _, _ := strings.Cut(q.URL, "?")
	return path
}

// all returns all values of a field, and reports whether it is there.
func (q Query) all(name string) (given []string, there bool) {
	return q.Values[name], q.Values.Has(name)
}

// object returns the name in the path.
func (q Query) object() string {
	if id := q.Path("id"); id != "" {
		return id
	}
	return q.Path("name")
}

// empty returns the query without its values.
func (q Query) empty() Query { return Query{q.Path, nil, q.URL} }

// With returns the path of the same page with other values: pairs of a name and its value, which is removed if it is
// empty. The page begins anew, so "after" is removed unless it is given.
func (q Query) With(pairs ...string) string {
	values := maps.Clone(q.Values)
	if values == nil {
		values = url.Values{}
	}
	values.Del("after")
	for i := 0; i+1 < len(pairs); i += 2 {
		if values.Del(pairs[i]); pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	for name := range values {
		if values.Get(name) == "" {
			values.Del(name)
		}
	}
	return strings.TrimSuffix(q.page()+"?"+values.Encode(), "?")
}

// A Form is what a change was asked for.
type Form struct {
	Query
	Actor  string
	r      *http.Request
	access Access
}

// formOf returns the form of a POST that was read.
func formOf(r *http.Request, who Viewer, access Access) Form {
	return Form{QueryOf(r, r.Form), who.name(), r, access}
}

// Allow returns the error of the first Action that is refused to the sender of the form.
func (f Form) Allow(actions ...Action) error { return f.access.Allow(f.r, actions...) }

// path returns the path that the form was sent to.
func (f Form) path() string { return f.r.URL.Path }

// query returns the fields and the path of the form.
func (f Form) query() Query { return f.Query }

// note logs that the form has made the change.
func (f Form) note(ctx context.Context, log *slog.Logger, change string) {
	log.InfoContext(ctx, "kagzi: a change by the dashboard", "actor", f.Actor, "change", change, "reason", f.Reason())
}

// Reason is what the form says why.
func (f Form) Reason() string { return f.Get("reason") }

// hidden returns the typed values as fields that are out of sight.
func (f Form) hidden() (fields []deeds.Field) {
	for name, values := range f.r.PostForm {
		for _, value := range values {
			if name != FormToken {
				fields = append(fields, deeds.Field{Name: name, Kind: deeds.Hidden, Value: value})
			}
		}
	}
	return fields
}

// FormToken is the name of the field that tells one form that was shown from another.
const FormToken = "form"

// token returns a text that no other form has; empty if the form has none. Two actors have different ones:
// none gets the answer of the other.
func (f Form) token() (string, error) {
	token := f.Get(FormToken)
	if len(token) > maxToken {
		return "", BadRequest("The form cannot be read: its token is too long.")
	}
	if token == "" {
		return "", nil
	}
	return strings.Join([]string{f.path(), f.Actor, token}, "\n"), nil
}

// maxToken bounds the token of a form, which is kept.
const maxToken = 100
