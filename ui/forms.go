package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
)

// How a change is made. A changeForm is a page that asks for what a change needs, and the change itself, at the same
// path. Links to it have data-dialog, so that it opens over the page that the reader is on. What it shows is a dialog:
// sentences that say what will happen, fields, and a button. If the change fails, the same page comes again with the
// error and all that was typed.

// A changeForm is a page with a form, and what it changes.
type changeForm struct {
	path   string
	action Action
	// show returns what the page asks. The dashboard adds the reason, and what was typed.
	show func(ctx context.Context, q query) (*dialog, error)
	do   func(ctx context.Context, f form) (answer, error)
	// about returns what Authorize is asked if the form's fields say what the change is about, not its path. It may
	// return nothing, for a form that is empty or about all: then Authorize is asked for action, without an ID.
	about func(q query) []Action
}

// A dialog is the view model of a form. One that was shown is constant.
type dialog struct {
	Title   string
	Run     *kagzi.RunInfo // the run that it is about; nil if it is about something else
	Says    []string       // what will happen
	Ticks   *ticks         // what a backfill would start
	Warning string         // what the database says would go wrong
	Refused string         // why it cannot be done at all; there is no form then
	Fields  []field
	Unasked bool   // it asks for no reason
	Do      string // the text of the button
	Danger  bool   // what it does cannot be undone
	To      string // where the form goes, as a path behind Config.Path
	Back    string // the page of what it is about
	Error   string // of the last try
	Token   string // of the form that failed; empty for a new one
}

// A field is an input of a form.
type field struct {
	Name, Label string
	Sort        string // "text", "number", "lines", "json", "check", "select", "several" or "hidden"
	Value       string
	On          bool   // of a check
	Hint        string // an example
	Help        string
	Options     []option // of select and several; suggestions of text
	Required    bool
	Rare        bool // it is folded, unless it has a value
}

// Rows is how many lines an editor shows.
func (f field) Rows() int { return min(max(strings.Count(f.Value, "\n")+1, 3), 16) }

// An option is a value that a field may have.
type option struct {
	Value, Label string
	On           bool
}

// Usual are the fields that are not folded.
func (v *dialog) Usual() []field {
	return slices.DeleteFunc(slices.Clone(v.Fields), func(f field) bool { return f.Rare })
}

// Rare are the fields that are folded.
func (v *dialog) Rare() []field {
	return slices.DeleteFunc(slices.Clone(v.Fields), func(f field) bool { return !f.Rare })
}

// RareSet reports whether one of these has a value.
func (v *dialog) RareSet() bool {
	return slices.ContainsFunc(v.Fields, func(f field) bool { return f.Rare && f.Value != "" })
}

const (
	// formTimeout bounds the change of one thing, so that somebody who waits for it is told of an outage.
	formTimeout = 10 * time.Second
	// againTimeout bounds the look that shows a form again.
	againTimeout = 2 * time.Second
)

// formToken is the name of the field that tells one form that was shown from another.
const formToken = "form"

// formPages returns the pages of forms.
func (d *dashboard) formPages() (pages []page) {
	for _, c := range d.forms() {
		pages = append(pages, page{
			path: c.path, action: c.action, template: "change", about: c.about,
			look: func(ctx context.Context, q query) (any, error) {
				v, err := c.show(ctx, q)
				if err != nil {
					return nil, err
				}
				v.finish(q, false)
				return v, nil
			},
		})
	}
	return pages
}

// formChanges returns the changes of forms.
func (d *dashboard) formChanges() (changes []change) {
	for _, c := range d.forms() {
		changes = append(changes, change{
			path: c.path, action: c.action, about: c.about,
			do: func(ctx context.Context, f form) (answer, error) {
				about := c.action
				about.ID = cmp.Or(f.path("id"), f.path("name"))
				if c.about != nil {
					for _, about = range c.about(f.query) {
						break
					}
				}
				if c.action.Verb != Delete { // which may take long for large runs
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, d.patience)
					defer cancel()
				}
				done, err := c.do(ctx, f)
				if err == nil {
					if done.template == "" {
						d.log.InfoContext(ctx, "kagzi: a change by the dashboard", "actor", f.actor, "change",
							about.String(), "reason", f.reason())
					}
					return done, nil
				}
				return d.again(ctx, c, f, err)
			},
		})
	}
	return changes
}

// again returns the form with an error and what was typed.
func (d *dashboard) again(ctx context.Context, c changeForm, f form, wrong error) (answer, error) {
	code := statusOf(wrong)
	switch {
	case code == http.StatusForbidden:
		return answer{}, wrong
	case code >= 500 && !away(wrong):
		d.log.ErrorContext(ctx, "kagzi: a change of the dashboard failed", "change", c.action.String(), "path",
			f.r.URL.Path, "err", wrong)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), againTimeout)
	defer cancel()
	v, err := c.show(ctx, f.query)
	if err != nil && !away(err) { // such as a run that was deleted meanwhile
		return answer{}, wrong
	}
	if err != nil { // the database is away, so the form cannot be made: what was typed is kept out of sight
		v = &dialog{Title: "Not done yet", Do: "Try again", Back: "/", Unasked: true}
		for name, values := range f.r.PostForm {
			for _, value := range values {
				if name != formToken {
					v.Fields = append(v.Fields, field{Name: name, Sort: "hidden", Value: value})
				}
			}
		}
		v.finish(query{f.path, nil, f.url}, false)
	} else {
		v.finish(f.query, true)
	}
	v.Refused, v.Token = "", f.get(formToken) // what was done nevertheless is not done again
	v.Error = sentence(wrong)
	if v.Run != nil {
		v.Error = whyNot(wrong, v.Run.ID)
	}
	if away(wrong) {
		code = http.StatusServiceUnavailable
		v.Error = "Postgres gave no answer, so it may have been done or not. " + v.Error
	}
	return answer{template: "change", view: v, code: code, again: true}, nil
}

// finish adds the reason to the dialog, and what was typed or asked for: the values of a link fill the fields, too.
func (v *dialog) finish(q query, typed bool) {
	if v.To == "" {
		v.To, _, _ = strings.Cut(q.url, "?")
	}
	v.Fields = slices.Clone(v.Fields) // a look may have shared them
	if !v.Unasked {
		v.Fields = append(v.Fields, field{
			Name: "reason", Label: "Reason", Sort: "text",
			Hint: "why, for those who read the log",
		})
	}
	for i := range v.Fields {
		if v.Fields[i].Sort != "hidden" {
			v.Fields[i].fill(q.values, typed)
		}
	}
}

// fill gives the field the value that was typed, or that a link proposes.
func (f *field) fill(values url.Values, typed bool) {
	given := values[f.Name]
	if !typed && !values.Has(f.Name) {
		return
	}
	switch f.Sort {
	case "check":
		f.On = len(given) > 0 && given[0] != "" && given[0] != "0"
	case "several", "select":
		f.Options = slices.Clone(f.Options)
		known := false
		for i, o := range f.Options {
			f.Options[i].On = slices.Contains(given, o.Value)
			known = known || f.Options[i].On
		}
		// the link of a step beyond those that are listed
		if f.Sort == "select" && !known && len(given) > 0 && given[0] != "" {
			f.Options = append(f.Options, option{Value: given[0], Label: given[0], On: true})
		}
	default:
		if len(given) > 0 {
			f.Value = given[0]
		}
	}
}

// asked reports whether a box was ticked.
func (q query) asked(name string) bool { return q.get(name) != "" }

// newToken returns a text that no other form has.
func newToken() string { return uuid.NewString() }

// at returns a path behind Config.Path whose last segment is a name of the application.
func at(path, name string) string { return path + url.PathEscape(name) }
