package web

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// How a change is made. A ChangeForm is a page that asks for what a change needs, and the change itself, at the same
// path. Links to it have data-dialog, so that it opens over the page that the reader is on. What it shows is a dialog:
// sentences that say what will happen, fields, and a button. If the change fails, the same page comes again with the
// error and all that was typed.

// A ChangeForm is a page with a form, and what it changes.
type ChangeForm struct {
	Path   string
	Action Action
	// show returns what the page asks. The dashboard adds the reason, and the values typed.
	Show func(ctx context.Context, q Query) (*Dialog, error)
	Do   func(ctx context.Context, f Form) (Answer, error)
	// about returns what Authorize is asked if the form's fields say what the change is about, not its path. It may
	// return nothing, for a form that is empty or about all: then Authorize is asked for action, without an ID.
	About func(q Query) []Action
	Slow  bool // it may take longer than people wait
}

// againTimeout bounds the look that shows a form again.
const againTimeout = 2 * time.Second

// forms make pages and changes of ChangeForms.
type forms struct {
	all      []ChangeForm
	patience time.Duration // how long the change of one thing may take
	log      *slog.Logger
}

// pages returns the pages of forms.
func (fs forms) pages() (pages []Page) {
	for _, c := range fs.all {
		pages = append(pages, Page{
			Path: c.Path, Action: c.Action, Template: "change", About: c.About,
			Look: func(ctx context.Context, q Query) (any, error) {
				v, err := c.Show(ctx, q)
				if err != nil {
					return nil, err
				}
				v.Finish(q, false)
				return v, nil
			},
		})
	}
	return pages
}

// changes returns the changes of forms.
func (fs forms) changes() (changes []Change) {
	for _, c := range fs.all {
		changes = append(changes, Change{
			Path: c.Path, Action: c.Action, About: c.About,
			Do: func(ctx context.Context, f Form) (Answer, error) {
				about := c.Action.of(f.object())
				if c.About != nil {
					for _, about = range c.About(f.query()) {
						break
					}
				}
				if !c.Slow {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, fs.patience)
					defer cancel()
				}
				done, err := c.Do(ctx, f)
				if err != nil {
					return fs.again(ctx, c, f, err)
				}
				if !done.isPage() {
					f.note(ctx, fs.log, about.String())
				}
				return done, nil
			},
		})
	}
	return changes
}

// again returns the form with an error and the values typed.
func (fs forms) again(ctx context.Context, c ChangeForm, f Form, wrong error) (Answer, error) {
	code := StatusOf(wrong)
	switch {
	case code == http.StatusForbidden:
		return Answer{}, wrong
	case code >= 500 && !Away(wrong):
		fs.log.ErrorContext(ctx, "kagzi: a change of the dashboard failed", "change", c.Action.String(), "path",
			f.path(), "err", wrong)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), againTimeout)
	defer cancel()
	v, err := c.Show(ctx, f.query())
	if err != nil && !Away(err) { // such as a run that was deleted meanwhile
		return Answer{}, wrong
	}
	if err != nil { // the database is away, so the form cannot be made: the values typed are kept out of sight
		v = &Dialog{Title: "Not done yet", Do: "Try again", Back: "/", Unasked: true, Fields: f.hidden()}
		v.Finish(f.empty(), false)
	} else {
		v.Finish(f.query(), true)
	}
	v.failed(wrong, f.Get(FormToken))
	if Away(wrong) {
		code = http.StatusServiceUnavailable
	}
	return Answer{Template: "change", View: v, Code: code, Again: true}, nil
}
