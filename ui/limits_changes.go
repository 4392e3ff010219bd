package ui

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	durations "github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// limitForms set limits. What a form is about stands in its fields, so that a name may have any characters; Authorize
// is asked for it nevertheless.
type limitForms struct {
	admin *admin.Client
}

// all are the forms.
func (p *limitForms) all() []web.ChangeForm {
	onQueue := func(q web.Query) []web.Action { return onNamed(Set, OnQueue, q.Get("queue")) }
	onLimit := func(verb Verb) func(web.Query) []web.Action {
		return func(q web.Query) []web.Action { return onNamed(verb, OnLimit, q.Get("limit")) }
	}
	return []web.ChangeForm{
		{
			Path: "/limits/queue", Action: asks(Set, OnQueue), Show: p.showQueue, Do: p.setQueue,
			About: onQueue,
		},
		{
			Path: "/limits/key", Action: asks(Set, OnQueue), Show: p.showKey, Do: p.setKey,
			About: onQueue,
		},
		{
			Path: "/limits/step", Action: asks(Set, OnLimit), Show: p.showStep, Do: p.setStep,
			About: onLimit(Set),
		},
		{
			Path: "/limits/step/delete", Action: asks(Delete, OnLimit), About: onLimit(Delete), Slow: true,
			Show: func(_ context.Context, q web.Query) (*web.Dialog, error) {
				return &web.Dialog{
					Title: "Delete limit " + q.Get("limit"), Back: "/limits", Do: "Delete the limit", Danger: true,
					Says: []string{
						"A step that names a limit which does not exist fails. Delete it once no code names it.",
						"While steps wait for it or are under way, it is not deleted: to lift it then, set it " +
							"without a rate and a number.",
					},
					Fields: []web.Field{{Name: "limit", Sort: "hidden", Value: q.Get("limit")}},
				}, nil
			}, Do: func(ctx context.Context, f web.Form) (web.Answer, error) {
				return web.Answer{To: "/limits", Said: "Deleted the limit " + f.Get("limit") + "."},
					p.admin.DeleteLimit(ctx, f.Get("limit"), f.Options()...)
			},
		},
	}
}

// onNamed returns the action on what a field names, if it names something.
func onNamed(verb Verb, object Object, id string) []web.Action {
	if id == "" {
		return nil
	}
	return []web.Action{asks(verb, object, id)}
}

// namedField adds the field of what a form is about: hidden if a link says it, else to be typed.
func namedField(v *web.Dialog, q web.Query, name, label string) (given bool) {
	if q.Get(name) != "" && !q.Asked("new-"+name) {
		v.Fields = append(v.Fields, web.Field{Name: name, Sort: "hidden", Value: q.Get(name)})
		return true
	}
	v.Fields = append(v.Fields, web.Field{Name: name, Label: label, Sort: "text", Required: true},
		web.Field{Name: "new-" + name, Sort: "hidden", Value: "1"})
	return false
}

const limitsHelp = "They replace those that were set. A field left empty is no limit. Runs under way go on."

func (p *limitForms) showQueue(ctx context.Context, q web.Query) (*web.Dialog, error) {
	v := &web.Dialog{Title: "Limits of a queue", Back: "/limits", Do: "Set the limits", Says: []string{limitsHelp}}
	var l admin.QueueLimits
	if namedField(v, q, "queue", "Queue") {
		v.Title = "Limits of queue " + q.Get("queue")
		var err error
		if l, _, err = p.queueLimits(ctx, q.Get("queue")); err != nil {
			return nil, err
		}
	}
	v.Fields = append(v.Fields, numberField("most", "Runs at once", l.MaxRunning, "How many runs of the queue may "+
		"have a slot, in all workers together."))
	v.Fields = append(v.Fields, rateFields("", "Rate", l.Rate)...)
	v.Fields = append(v.Fields, numberField("key-most", "Runs at once of each key", l.EachKey.MaxRunning, ""))
	v.Fields = append(v.Fields, rateFields("key-", "Rate of each key", l.EachKey.Rate)...)
	v.Fields = append(v.Fields, web.Field{
		Name: "hold", Label: "Runs keep their slots while they sleep or wait",
		Sort: "check", On: l.Hold,
	})
	return v, nil
}

// queueLimits returns the limits of a queue, if it has some.
func (p *limitForms) queueLimits(ctx context.Context, queue string) (l admin.QueueLimits, found bool, err error) {
	all, err := p.admin.Queues(ctx)
	if err != nil {
		return l, false, err
	}
	if i := slices.IndexFunc(all, func(q admin.QueueInfo) bool { return q.Queue == queue }); i >= 0 {
		return all[i].QueueLimits, true, nil
	}
	return l, false, nil
}

func (p *limitForms) setQueue(ctx context.Context, f web.Form) (web.Answer, error) {
	l := admin.QueueLimits{Queue: f.Get("queue"), Hold: f.Asked("hold")}
	if f.Asked("new-queue") {
		if _, found, err := p.queueLimits(ctx, l.Queue); err != nil || found {
			return web.Answer{}, orExists(err, "Queue "+l.Queue)
		}
	}
	in := numbers{Query: f.Query}
	l.MaxRunning, l.EachKey.MaxRunning = in.number("most"), in.number("key-most")
	l.Rate, l.EachKey.Rate = in.rate(""), in.rate("key-")
	if in.err != nil {
		return web.Answer{}, in.err
	}
	return web.Answer{To: "/limits", Said: "Set the limits of queue " + l.Queue + "."},
		p.admin.SetQueue(ctx, l, f.Options()...)
}

// orExists refuses a form for something new, as it would replace the limits of something that exists.
func orExists(err error, what string) error {
	if err != nil {
		return err
	}
	return web.BadRequest("%s has limits already, which this would replace: change those from the list.", what)
}

func (p *limitForms) showKey(ctx context.Context, q web.Query) (*web.Dialog, error) {
	v := &web.Dialog{
		Title: "Limits of a key", Back: "/limits", Do: "Set the limits",
		Says: []string{"They apply in place of those of each key of the queue. A field left empty means what the " +
			"queue says for each key. Runs under way go on."},
	}
	hasQueue, hasKey := namedField(v, q, "queue", "Queue"), namedField(v, q, "key", "Key")
	var l admin.KeyLimits
	if hasQueue && hasKey {
		v.Title = "Limits of key " + q.Get("key") + " of queue " + q.Get("queue")
		var err error
		if l, err = p.keyLimits(ctx, q.Get("queue"), q.Get("key")); err != nil {
			return nil, err
		}
	}
	v.Fields = append(v.Fields, numberField("most", "Runs at once", l.MaxRunning, ""))
	v.Fields = append(v.Fields, rateFields("", "Rate", l.Rate)...)
	v.Fields = append(v.Fields, numberField("weight", "Weight", l.Weight, "How many runs the key starts when it is "+
		"its turn. Empty: one."))
	return v, nil
}

func (p *limitForms) keyLimits(ctx context.Context, queue, key string) (admin.KeyLimits, error) {
	// the key itself is the first with its prefix
	found, err := p.admin.Keys(ctx, admin.KeyFilter{Queue: queue, Prefix: key, Limit: 1})
	if err != nil || len(found) == 0 || found[0].Key != key {
		return admin.KeyLimits{}, err
	}
	return found[0].Limits, nil
}

func (p *limitForms) setKey(ctx context.Context, f web.Form) (web.Answer, error) {
	queue, key := f.Get("queue"), f.Get("key")
	if f.Asked("new-key") || f.Asked("new-queue") {
		if old, err := p.keyLimits(ctx, queue, key); err != nil || old != (admin.KeyLimits{}) {
			return web.Answer{}, orExists(err, "Key "+key)
		}
	}
	in := numbers{Query: f.Query}
	l := admin.KeyLimits{MaxRunning: in.number("most"), Weight: in.number("weight"), Rate: in.rate("")}
	if in.err != nil {
		return web.Answer{}, in.err
	}
	return web.Answer{To: at("/queues/", queue), Said: "Set the limits of key " + key + "."},
		p.admin.SetKey(ctx, queue, kagzi.Key(key), l, f.Options()...)
}

func (p *limitForms) showStep(ctx context.Context, q web.Query) (*web.Dialog, error) {
	v := &web.Dialog{
		Title: "Limit on steps", Back: "/limits", Do: "Set the limit",
		Says: []string{"All steps that name the limit share it, in all workers together. It replaces what was set. " +
			"Without a rate and a number every step may begin. Steps under way go on."},
	}
	var l admin.LimitInfo
	if namedField(v, q, "limit", "Name") {
		v.Title = "Limit " + q.Get("limit")
		var err error
		if l, _, err = p.stepLimit(ctx, q.Get("limit")); err != nil {
			return nil, err
		}
	}
	rate := admin.Rate{}
	if l.Every > 0 {
		rate = admin.Rate{Starts: 1, Per: l.Every, Burst: l.Burst}
	}
	v.Fields = append(v.Fields, numberField("most", "Steps at once", l.MaxRunning, ""))
	v.Fields = append(v.Fields, rateFields("", "Rate", rate)...)
	v.Fields = append(v.Fields, web.Field{
		Name: "honor", Label: "Honor Retry-After", Sort: "check", On: l.HonorRetryAfter,
		Help: "A step that fails with RetryAfter stops all others for that time.",
	})
	return v, nil
}

// stepLimit returns the limit of that name, if there is one.
func (p *limitForms) stepLimit(ctx context.Context, name string) (l admin.LimitInfo, found bool, err error) {
	after := ""
	for {
		page, err := p.admin.Limits(ctx, after, 0)
		if err != nil || len(page) == 0 {
			return l, false, err
		}
		for _, l := range page {
			if l.Name == name {
				return l, true, nil
			}
		}
		after = page[len(page)-1].Name
	}
}

func (p *limitForms) setStep(ctx context.Context, f web.Form) (web.Answer, error) {
	l := admin.StepLimit{Name: f.Get("limit"), HonorRetryAfter: f.Asked("honor")}
	if f.Asked("new-limit") {
		if _, found, err := p.stepLimit(ctx, l.Name); err != nil || found {
			return web.Answer{}, orExists(err, "Limit "+l.Name)
		}
	}
	in := numbers{Query: f.Query}
	l.MaxRunning, l.Rate = in.number("most"), in.rate("")
	if in.err != nil {
		return web.Answer{}, in.err
	}
	return web.Answer{To: "/limits", Said: "Set the limit " + l.Name + "."},
		p.admin.SetLimit(ctx, l, f.Options()...)
}

func numberField(name, label string, n int, help string) web.Field {
	f := web.Field{Name: name, Label: label, Sort: "number", Hint: "any number", Help: help}
	if n > 0 {
		f.Value = strconv.Itoa(n)
	}
	return f
}

// rateFields are a rate and its burst.
func rateFields(prefix, label string, r admin.Rate) []web.Field {
	rate := web.Field{
		Name: prefix + "rate", Label: label, Sort: "text", Hint: "10/s, 600/m or 5/10s",
		Value: typedRate(r),
	}
	burst := web.Field{
		Name: prefix + "burst", Label: label + ": burst", Sort: "number", Hint: "1",
		Help: "How many may start at once after a time with fewer.",
	}
	if r.Burst > 1 {
		burst.Value = strconv.Itoa(r.Burst)
	}
	return []web.Field{rate, burst}
}

// typedRate writes a rate without its burst in the form that a field reads; empty for none.
func typedRate(r admin.Rate) string {
	if r.Starts == 0 {
		return ""
	}
	per := r.Per
	if per == 0 {
		per = time.Second
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Minute, "m"}, {time.Hour, "h"}, {day, "d"}} {
		// The time between two starts is stored, rounded up to a microsecond.
		n := float64(r.Starts) * float64(u.unit) / float64(per)
		if whole := math.Round(n); whole >= 1 && math.Abs(n-whole) < whole/1000 {
			return strconv.FormatFloat(whole, 'f', -1, 64) + "/" + u.name
		}
	}
	return fmt.Sprintf("%d/%s", r.Starts, strings.ReplaceAll(durations.Format(per), " ", ""))
}

// numbers reads the fields of limits, and keeps the first error.
type numbers struct {
	web.Query
	err error
}

func (in *numbers) number(name string) int {
	s := in.Get(name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if (err != nil || n < 0) && in.err == nil {
		in.err = web.BadRequest("%q is no number: give 1 or more, or leave the field empty.", s)
	}
	return n
}

func (in *numbers) rate(prefix string) admin.Rate {
	s, burst := in.Get(prefix+"rate"), in.number(prefix+"burst")
	if s == "" || s == "0" {
		if burst > 0 && in.err == nil {
			in.err = web.BadRequest("A burst needs a rate: fill in both, or neither.")
		}
		return admin.Rate{}
	}
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if per = strings.TrimSpace(per); per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, wrong := durations.Parse(per)
	if (!ok || err != nil || n < 1 || wrong != nil || d <= 0) && in.err == nil {
		in.err = web.BadRequest("%q is no rate: write it as 10/s, 600/m or 5/10s.", s)
	}
	return admin.Rate{Starts: n, Per: d, Burst: burst}
}
