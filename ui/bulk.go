package ui

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// How many runs are changed at once. The list of runs is a form of chosen runs, or of all that its filter selects. A
// first POST shows the plan, which a dry run makes: how many runs would be changed, and which not. If these are at most
// mostNamed, the plan's form has their IDs, and exactly these are changed. Otherwise it has the filter, and the runs
// are changed that match at that time, from new to old. Either way each POST changes some runs, for about a second, and
// answers with a form that has the rest, which the page sends by itself. So a closed tab stops the change, nothing
// is kept in this program, and what was done is known at each time.

const (
	// mostNamed is how many runs a form has the IDs of.
	mostNamed = 1000
	// planTimeout bounds a dry run. What it has not looked at by then is treated as more than mostNamed.
	planTimeout = 15 * time.Second
	shownRuns   = 20
)

// bulkForms change many runs at once.
type bulkForms struct {
	client *kagzi.Client
	admin  *admin.Client
	log    *slog.Logger
}

// changes are those of all verbs, each with an Action of its own.
func (b *bulkForms) changes() (changes []web.Change) {
	for _, d := range bulkVerbs() {
		changes = append(changes, web.Change{
			Path: "/runs/bulk/" + d.Verb, Action: asks(Verb(d.Verb), OnRun),
			Do: func(ctx context.Context, f web.Form) (web.Answer, error) { return b.bulk(ctx, d, f) },
		})
	}
	return changes
}

// A bulkPage is the view model of a change of many runs.
type bulkPage struct {
	Verb   deeds.Deed
	Title  string
	Stage  string // "ask" for what it needs, "plan", "going", "stopped" or "done"
	Says   string
	Danger bool
	Do     string // the text of the button
	To     string
	From   string // the filter of the list that it comes from
	Error  string
	Fields []deeds.Field

	bulkPlan
	State bulkState
}

// A bulkPlan is which runs would be changed.
type bulkPlan struct {
	Filter   string   // of all that match; empty if the runs are named
	Criteria []string // of the filter, in words; empty if the runs were chosen one by one
	Runs     []kagzi.RunID
	Matched  int
	More     bool // there are more than Matched
	Would    int
	Skipped  []because
	Sample   []planned
}

// A because is a reason with the number of runs that it concerns.
type because struct {
	Runs   int
	Reason string
}

// A planned is a run of the plan.
type planned struct {
	kagzi.RunInfo
	Skip string // why it is left out; empty if it is not
}

// Past is the change of the runs, in the past tense.
func (p *bulkPage) Past() string { return p.Verb.Past }

// LeftOut is how many of the runs would not be changed.
func (p *bulkPage) LeftOut() int { return p.Matched - p.Would }

// Back is the list that the runs were chosen from.
func (p *bulkPage) Back() string { return strings.TrimSuffix("/runs?"+p.From, "?") }

// bulk answers a step of a change of many runs.
func (b *bulkForms) bulk(ctx context.Context, d deeds.Deed, f web.Form) (web.Answer, error) {
	p := &bulkPage{Verb: d, Danger: d.Danger, Says: strings.Join(d.Says, " ")}
	p.To, p.Filter = "/runs/bulk/"+d.Verb, f.Get("filter")
	p.From = cmp.Or(f.Get("from"), p.Filter)
	calls := b.permitted(d, f)
	asks := len(d.Many.Ask) > 0 && !f.Has(d.Many.Ask...)
	err := d.Check(askedBy(b.client, f))
	if err != nil && !asks {
		p.Error = web.Sentence(wrong(d, err))
	}
	if f.Get("stage") == "apply" && err == nil {
		return b.applyBulk(ctx, p, calls, f)
	}
	runs, err := chosen(f)
	if err != nil {
		return web.Answer{}, err
	}
	p.Runs = runs
	if f.Asked("all") {
		p.Criteria = criteria(p.Filter)
	} else {
		p.Filter = ""
	}
	if len(p.Runs) == 0 && !f.Asked("all") {
		return web.Answer{}, web.BadRequest("No run is selected. Tick some in the list, or all that match the filter.")
	}
	if p.Error != "" || asks {
		return p.asking(f), nil
	}
	if err := b.plan(ctx, p, calls, f); err != nil {
		return web.Answer{}, err
	}
	return web.Answer{Template: "bulk", View: p, Again: true}, nil
}

// chosen returns the runs that the form names, the newest first.
func chosen(f web.Form) (runs []kagzi.RunID, err error) {
	for _, id := range f.Values["run"] {
		if !deeds.IsRunID(id) {
			return nil, web.BadRequest("%q is no run ID.", first(60, id))
		}
		runs = append(runs, kagzi.RunID(web.Canonical(id)))
	}
	slices.Sort(runs)
	runs = slices.Compact(runs)
	slices.Reverse(runs)
	if len(runs) > mostNamed {
		return nil, web.BadRequest("At most %s runs can be named: select them by a filter.", count(mostNamed))
	}
	return runs, nil
}

// asking is the page that asks for what the plan needs.
func (p *bulkPage) asking(f web.Form) web.Answer {
	p.Stage, p.Title, p.Do = "ask", title(Verb(p.Verb.Verb))+" runs", "Show what would change"
	p.Fields = bulkFields(p.Verb)
	for i := range p.Fields {
		p.Fields[i] = web.Fill(p.Fields[i], f.Query, true)
	}
	code := 0
	if p.Error != "" {
		code = 400
	}
	return web.Answer{Template: "bulk", View: p, Code: code, Again: true}
}

// plan makes the plan by a dry run.
func (b *bulkForms) plan(ctx context.Context, p *bulkPage, calls bulkCalls, f web.Form) error {
	p.Stage = "plan"
	var err error
	if f.Asked("all") {
		err = b.planAll(ctx, p, calls, f)
	} else {
		err = b.planChosen(ctx, p, calls)
	}
	if err != nil {
		return err
	}
	number := plural(len(p.Runs), "run")
	if p.Filter != "" {
		number = "all that match"
		p.Runs = nil
	}
	p.Title = title(Verb(p.Verb.Verb)) + " " + number + "?"
	p.Do = title(Verb(p.Verb.Verb)) + " " + number
	for _, a := range append(bulkFields(p.Verb), web.Why) {
		if slices.Contains(p.Verb.Many.Ask, a.Name) {
			a = deeds.Field{Name: a.Name, Kind: deeds.Hidden}
		}
		p.Fields = append(p.Fields, web.Fill(a, f.Query, true))
	}
	return nil
}

// planAll tries the change of all runs that the filter selects. If there are few, their IDs take the filter's place.
func (b *bulkForms) planAll(ctx context.Context, p *bulkPage, calls bulkCalls, f web.Form) error {
	values, err := url.ParseQuery(p.Filter)
	if err != nil {
		return web.BadRequest("The filter cannot be read.")
	}
	q := web.Query{Path: f.Path, Values: values}
	if id := q.Get("id"); deeds.IsRunID(id) { // RunFilter has only the application's own ID
		p.Runs, p.Filter = []kagzi.RunID{kagzi.RunID(id)}, ""
		return b.planChosen(ctx, p, calls)
	}
	rf, err := runFilter(q, time.Now())
	if err != nil {
		return err
	}
	if len(rf.Status) == 0 {
		rf.Status = p.Verb.Many.To
	}
	if p.Verb.Many.Stops {
		rf.Status = slices.DeleteFunc(rf.Status, func(s kagzi.Status) bool { return s == kagzi.StatusCancelled })
		if len(rf.Status) == 0 {
			return web.BadRequest("Runs that are cancelled already cannot be cancelled again.")
		}
	}
	rf.Limit = mostNamed + 1
	dryCtx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	would, err := calls.dry(dryCtx, rf)
	if err != nil && (!late(dryCtx, err) || would.Matched == 0) {
		return err
	}
	p.More = err != nil || would.Matched > mostNamed
	if err := b.sampleOf(ctx, p, rf, would); err != nil {
		return err
	}
	p.summarize(would)
	if !p.More {
		p.Runs, p.Filter = would.Changed, ""
		return nil
	}
	p.Filter = fixed(q, rf)
	p.State.Total = b.total(ctx, rf)
	return nil
}

// sampleOf shows the first runs of a plan.
func (b *bulkForms) sampleOf(ctx context.Context, p *bulkPage, rf kagzi.RunFilter, would admin.BulkResult) error {
	rf.Limit = shownRuns
	list, err := b.client.List(ctx, rf)
	for _, r := range list {
		skip, left := would.Skipped[r.ID]
		if !left && !slices.Contains(would.Changed, r.ID) {
			continue // it has come since
		}
		row := planned{RunInfo: r}
		if left {
			row.Skip = web.WhyNot(skip, r.ID)
		}
		p.Sample = append(p.Sample, row)
	}
	return err
}

// total counts the runs of a filter; zero if that takes too long.
func (b *bulkForms) total(ctx context.Context, rf kagzi.RunFilter) (n int) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	rf.Limit = 0
	counts, err := b.admin.Runs.Count(ctx, rf, admin.ByStatus)
	if err != nil {
		return 0
	}
	for _, c := range counts {
		n += c.Runs
	}
	return n
}

// fixed returns the filter with its times as moments, so that it selects the same runs until the end.
func fixed(q web.Query, rf kagzi.RunFilter) string {
	values := url.Values{}
	for _, name := range runFields {
		if q.Get(name) != "" {
			values[name] = q.Values[name]
		}
	}
	for name, t := range map[string]time.Time{
		"since": rf.Since, "until": rf.Until, "ended-since": rf.EndedSince,
		"ended-until": rf.EndedUntil,
	} {
		if !t.IsZero() {
			values.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	values.Del("status")
	for _, s := range rf.Status {
		values.Add("status", strings.ToLower(string(s)))
	}
	return values.Encode()
}

// planChosen tries the change of the runs that are named.
func (b *bulkForms) planChosen(ctx context.Context, p *bulkPage, calls bulkCalls) error {
	list, err := b.client.List(ctx, kagzi.RunFilter{IDs: p.Runs, Limit: len(p.Runs)})
	if err != nil {
		return err
	}
	rf := kagzi.RunFilter{IDs: p.Runs, Status: deeds.EveryStatus}
	if p.Verb.Many.Stops || p.Verb.Verb == string(Unpause) { // of these the library says nothing, or too much
		rf.Status = slices.Concat(p.Verb.Many.To, []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed})
		if p.Verb.Verb == string(Unpause) {
			rf.Status = p.Verb.Many.To
		}
	}
	would, err := calls.dry(ctx, rf)
	if err != nil {
		return err
	}
	if would.Skipped == nil {
		would.Skipped = map[kagzi.RunID]error{}
	}
	for _, id := range p.Runs {
		if would.Skipped[id] == nil && !slices.Contains(would.Changed, id) {
			would.Skipped[id] = notTried(list, id)
		}
	}
	would.Matched = len(p.Runs)
	for _, r := range list[:min(len(list), shownRuns)] {
		row := planned{RunInfo: r}
		if err := would.Skipped[r.ID]; err != nil {
			row.Skip = web.WhyNot(err, r.ID)
		}
		p.Sample = append(p.Sample, row)
	}
	p.Runs = would.Changed
	p.summarize(would)
	return nil
}

// notTried returns why a run was not among those that a dry run tried.
func notTried(list []kagzi.RunInfo, id kagzi.RunID) error {
	i := slices.IndexFunc(list, func(r kagzi.RunInfo) bool { return r.ID == id })
	switch {
	case i < 0:
		return kagzi.ErrNotFound
	case list[i].Status == kagzi.StatusCancelled:
		return deeds.ErrCancelled
	}
	return kagzi.ErrRunFinished
}

func (p *bulkPage) summarize(would admin.BulkResult) {
	p.Matched, p.Would = would.Matched, len(would.Changed)
	var counts counts
	for id, err := range would.Skipped {
		counts.add(web.WhyNot(err, id))
	}
	p.Skipped = counts
}

// did logs how many runs a request has changed.
func (b *bulkForms) did(ctx context.Context, f web.Form, d deeds.Deed, n int) {
	b.log.InfoContext(ctx, "kagzi: a change by the dashboard", "actor", f.Actor, "change", d.Verb+" runs",
		"runs", n, "reason", f.Reason())
}
