package ui

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// deedForms are the forms of all deeds.
type deedForms struct {
	client   *kagzi.Client
	payloads payloads
}

// all are the forms.
func (p *deedForms) all() (forms []web.ChangeForm) {
	for _, d := range deeds.All() {
		where := placeOf(d)
		forms = append(forms, web.ChangeForm{
			Path: where.path, Action: where.action, About: where.about, Slow: d.Slow,
			Show: func(ctx context.Context, q web.Query) (*web.Dialog, error) { return p.show(ctx, d, where, q) },
			Do:   func(ctx context.Context, f web.Form) (web.Answer, error) { return p.do(ctx, d, where, f) },
		})
	}
	return forms
}

// A place is where the form of a deed is.
type place struct {
	path   string // with {id} or {name} for the thing, unless fields say what the form is about
	action web.Action
	about  func(web.Query) []web.Action
	list   string // of all such things
	of     string // where the page of one thing begins; empty: it has none
}

// placeOf returns the place of a deed. What a form about limits is about stands in its fields, so that a name may have
// any characters; Authorize is asked for it nevertheless.
func placeOf(d deeds.Deed) place {
	verb, object := Verb(d.Verb), Object(d.Object)
	named := func(path, list string, object Object, field string) place {
		return place{path: path, action: asks(verb, object), list: list, about: func(q web.Query) []web.Action {
			return onNamed(verb, object, q.Get(field))
		}}
	}
	switch d.Key() {
	case "set queue":
		return named("/limits/queue", "/limits", OnQueue, "queue")
	case "set key":
		return named("/limits/key", "/limits", OnQueue, "queue")
	case "set limit":
		return named("/limits/step", "/limits", OnLimit, "limit")
	case "reset queue":
		return named("/limits/queue/reset", "/limits", OnQueue, "queue")
	case "reset limit":
		return named("/limits/step/reset", "/limits", OnLimit, "limit")
	case "delete limit":
		return named("/limits/step/delete", "/limits", OnLimit, "limit")
	case "start workflow":
		return named("/start", "/runs", OnWorkflow, "workflow")
	case "drain queue":
		return named("/workers/drain", "/workers", OnQueue, "queue")
	case "pause runs", "unpause runs":
		return place{
			path: "/limits/" + d.Verb, action: asks(verb, OnLimit), list: "/limits",
			about: func(q web.Query) []web.Action { return onTarget(verb, deeds.TargetOf(deeds.Values(q.Values))) },
		}
	}
	list := "/" + string(object) + "s"
	where := place{path: list + "/{name}/" + d.Verb, action: asks(verb, object), list: list, of: list + "/"}
	switch d.Object {
	case deeds.Run, deeds.Worker:
		where.path = list + "/{id}/" + d.Verb
	case deeds.Consumer:
		where.list = "/topics"
	}
	return where
}

// page returns the page of what the form is about.
func (p place) page(q web.Query) string {
	if p.of == "" {
		return p.list
	}
	return at(p.of, thing(q))
}

// thing returns the name in the path.
func thing(q web.Query) string { return cmp.Or(q.Path("name"), q.Path("id")) }

// askedOf returns what a deed is asked for with.
func askedOf(client *kagzi.Client, q web.Query) deeds.Asked {
	return deeds.Asked{
		Client: client, Values: deeds.Values(q.Values), Zone: time.UTC, Took: duration,
		Moment: func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	}
}

// askedBy is askedOf for a form that was sent.
func askedBy(client *kagzi.Client, f web.Form) deeds.Asked {
	a := askedOf(client, f.Query)
	a.Actor, a.Reason, a.Token, a.Explained = f.Actor, f.Reason(), f.Get(web.FormToken), f.Reason() != ""
	return a
}

// about says what the deed is about, as the path does.
func about(d deeds.Deed, a deeds.Asked, q web.Query) deeds.Asked {
	if a.Name = thing(q); d.Object == deeds.Run {
		a.Ref, a.Name = kagzi.RunID(a.Name), "the run"
	}
	return a
}

// show returns the dialog of a deed.
func (p *deedForms) show(ctx context.Context, d deeds.Deed, where place, q web.Query) (*web.Dialog, error) {
	a := about(d, askedOf(p.client, q), q)
	a.Hide = p.payloads.hidden()
	v, err := d.View(ctx, a)
	if err != nil {
		return nil, err
	}
	name := v.Name
	why := web.Sentence
	switch d.Object {
	case deeds.Run:
		name, why = nameOf(*v.Run), func(err error) string { return web.WhyNot(err, v.Run.ID) }
	case deeds.Worker:
		name = short(kagzi.RunID(name))
	}
	out := &web.Dialog{
		Title: strings.TrimSpace(d.Name() + " " + name), Run: v.Run, Says: v.Says, Do: d.Does(), Danger: v.Danger,
		Back: where.page(q), Fields: inputs(d, v.Fields, q),
	}
	if d.Keeps && name == "" {
		out.Title = d.Short
	}
	if v.Refused != nil {
		out.Refused = strings.TrimSuffix(why(v.Refused), ".") + "."
	}
	if v.Warning != nil {
		out.Warning = why(v.Warning)
	}
	return out, nil
}

// do does a deed, or shows what it would start.
func (p *deedForms) do(ctx context.Context, d deeds.Deed, where place, f web.Form) (web.Answer, error) {
	a := about(d, askedBy(p.client, f), f.Query)
	if err := d.Check(a); err != nil {
		return web.Answer{}, wrong(d, err)
	}
	if d.Plan != nil && !f.Asked("sure") {
		return p.plan(ctx, d, where, a, f)
	}
	done, err := d.Run(ctx, a)
	if err != nil {
		return web.Answer{}, wrong(d, err)
	}
	said := strings.ToUpper(done.Said[:1]) + done.Said[1:]
	answer := web.Answer{To: where.page(f.Query), Said: said + "."}
	switch {
	case done.New != "":
		answer = web.Answer{Leads: true, To: "/runs/" + string(done.New), Said: said + ": this is the new run."}
	case d.Verb == "delete":
		answer.Leads, answer.To = where.of != "", where.list
	case d.Object == deeds.Key:
		answer.To = at("/queues/", f.Get("queue"))
	case done.Warning != "":
		answer.Said += " " + done.Warning
	}
	return answer, nil
}

// plan shows what a deed would start, with a form that does it.
func (p *deedForms) plan(ctx context.Context, d deeds.Deed, where place, a deeds.Asked,
	f web.Form,
) (web.Answer, error) {
	would, err := d.Plan(ctx, a)
	if err != nil {
		return web.Answer{}, wrong(d, err)
	}
	v := &web.Dialog{
		Title: d.Name() + " " + a.Name, Do: would.Button, Back: where.page(f.Query), Plan: would, Fields: []deeds.Field{
			{Name: "from", Kind: deeds.Hidden, Value: would.From.Format(time.RFC3339Nano)},
			{Name: "until", Kind: deeds.Hidden, Value: would.Until.Format(time.RFC3339Nano)},
			{Name: "sure", Kind: deeds.Hidden, Value: "1"},
		},
	}
	v.Finish(f.Query, true)
	return web.Answer{Template: "change", View: v, Again: true}, nil
}

// wrong returns the error for a form with a mistake, which names its fields as the form does.
func wrong(d deeds.Deed, err error) error {
	m, ok := errors.AsType[*deeds.Mistake](err)
	if !ok {
		return err
	}
	text := m.In(func(name string) string { return cmp.Or(d.Field(name).Label, name) })
	return web.BadRequest("%s.", strings.ToUpper(text[:1])+text[1:])
}

// inputs returns the inputs of a form. What a link has said is not asked for again: it is hidden.
func inputs(d deeds.Deed, fields []deeds.Field, q web.Query) (all []deeds.Field) {
	hidden := func(name, value string) deeds.Field {
		return deeds.Field{Name: name, Kind: deeds.Hidden, Value: value}
	}
	target := d.Object == deeds.Target
	known := deeds.TargetOf(deeds.Values(q.Values)) != (admin.Target{}) && !q.Asked("choose")
	for _, f := range fields {
		given := q.Get(f.Name)
		switch {
		case f.NoForm, f.About && target && known && given == "":
			continue
		case f.About && target && known, f.About && !target && given != "" && !q.Asked("new-"+f.Name):
			f = hidden(f.Name, given)
		case f.About && !target:
			all = append(all, hidden("new-"+f.Name, "1"))
		case f.About && f.Name == "all":
			all = append(all, hidden("choose", "1"))
		}
		if strings.TrimSuffix(f.Help, ".") == f.Label {
			f.Help = ""
		}
		all = append(all, f)
	}
	return all
}

// onNamed returns the action on what a field names, if it names something.
func onNamed(verb Verb, object Object, id string) []web.Action {
	if id == "" {
		return nil
	}
	return []web.Action{asks(verb, object, id)}
}

// onTarget returns the actions on what a pause stops: nothing for all runs. Who may pause a queue may pause its keys
// and workflows.
func onTarget(verb Verb, t admin.Target) (all []web.Action) {
	if t.All {
		return nil
	}
	all = onNamed(verb, OnQueue, t.Queue)
	if t.Queue == "" {
		all = onNamed(verb, OnWorkflow, t.Workflow)
	}
	if name, ok := strings.CutPrefix(t.Group, consumerGroup); ok {
		return append(all, asks(verb, OnConsumer, name))
	}
	return append(all, onNamed(verb, OnGroup, t.Group)...)
}

// pausePath returns the path of a form about a target.
func pausePath(verb Verb, t admin.Target) string {
	all := ""
	if t.All {
		all = "1"
	}
	return web.Query{URL: "/limits/" + string(verb)}.With("all", all, "queue", t.Queue, "workflow", t.Workflow,
		"key", t.Key, "group", t.Group)
}

// nameOf returns what people call a run.
func nameOf(r kagzi.RunInfo) string {
	if r.ExternalID != "" {
		return first(60, string(r.ExternalID))
	}
	return short(r.ID)
}
