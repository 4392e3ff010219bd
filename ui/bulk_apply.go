package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

const (
	// stepTime is how long one request changes runs.
	stepTime = time.Second
	// stepRuns is how many runs it changes before it looks at the time, and stepAtOnce how many of these at once.
	stepRuns   = 20
	stepAtOnce = 4
	// mostReasons bounds the different reasons, and mostNew the new runs, that a form carries along.
	mostReasons = 30
	mostNew     = 50
)

// A bulkState is how far a change of many runs is. The form carries it along.
type bulkState struct {
	Total   int // of runs to be changed; zero if it is not known
	Changed int
	Skipped counts
	Failed  counts
	New     []madeRun
	NewMore int           // how many more new runs there are
	After   kagzi.RunID   // with a filter: the last run that was dealt with
	Ended   bool          // with a filter: none is left
	Again   []kagzi.RunID // children that could not be deleted before their parents
	Last    bool          // these are being deleted
}

// A madeRun is a new run and the one that it comes from.
type madeRun struct{ Old, New kagzi.RunID }

// Done is how many runs have been dealt with.
func (s bulkState) Done() int { return s.Changed + s.Skipped.Sum() + s.Failed.Sum() }

// NewAll is how many new runs there are.
func (s bulkState) NewAll() int { return len(s.New) + s.NewMore }

// counts are reasons with the number of runs that they concern, the most frequent first.
type counts []because

func (c *counts) add(reason string) { c.addN(1, reason) }

func (c *counts) addN(n int, reason string) {
	reason = named.ReplaceAllString(reason, "…") // so that reasons which name runs are counted together
	i := slices.IndexFunc(*c, func(b because) bool { return b.Reason == reason })
	switch {
	case i >= 0:
		(*c)[i].Runs += n
	case len(*c) < mostReasons:
		*c = append(*c, because{n, reason})
	default:
		(*c)[len(*c)-1].Runs += n
		(*c)[len(*c)-1].Reason = "Other reasons."
	}
	slices.SortStableFunc(*c, func(a, b because) int {
		return cmp.Or(b.Runs-a.Runs, strings.Compare(a.Reason, b.Reason))
	})
}

// Sum is how many runs they concern.
func (c counts) Sum() (n int) {
	for _, b := range c {
		n += b.Runs
	}
	return n
}

// bulkStateOf reads the state that a form carries.
func bulkStateOf(f web.Form) (s bulkState) {
	// zero if the browser changed it
	number := func(name string) int { n, _ := strconv.Atoi(f.Get(name)); return max(n, 0) }
	s.Total, s.Changed, s.NewMore = number("total"), number("changed"), number("new-more")
	for name, to := range map[string]*counts{"skipped": &s.Skipped, "failed": &s.Failed} {
		for _, text := range f.Values[name] {
			n, reason, _ := strings.Cut(text, " ")
			if runs, err := strconv.Atoi(n); err == nil {
				to.addN(runs, reason)
			}
		}
	}
	for _, text := range f.Values["new"] {
		if old, as, ok := strings.Cut(text, " "); ok && deeds.IsRunID(old) && deeds.IsRunID(as) {
			s.New = append(s.New, madeRun{kagzi.RunID(old), kagzi.RunID(as)})
		}
	}
	for _, id := range f.Values["again"] {
		if deeds.IsRunID(id) {
			s.Again = append(s.Again, kagzi.RunID(id))
		}
	}
	if id := f.Get("after"); deeds.IsRunID(id) {
		s.After = kagzi.RunID(id)
	}
	s.Ended, s.Last = f.Asked("ended"), f.Asked("last")
	return s
}

// applyBulk changes some of the runs, and answers with a form for the rest, or with the result.
func (b *bulkForms) applyBulk(ctx context.Context, p *bulkPage, calls bulkCalls, f web.Form) (web.Answer, error) {
	var err error
	if p.Runs, err = chosen(f); err != nil {
		return web.Answer{}, err
	}
	p.State = bulkStateOf(f)
	if p.State.Total == 0 && p.Filter == "" {
		p.State.Total = len(p.Runs)
	}
	p.Stage, p.Title = "going", title(Verb(p.Verb.Verb))+" runs"
	for _, a := range append(bulkFields(p.Verb), web.Why) {
		p.Fields = append(p.Fields, deeds.Field{Name: a.Name, Kind: deeds.Hidden, Value: f.Get(a.Name)})
	}
	before := p.State.Done()
	if !f.Asked("stop") {
		err = b.someOf(ctx, p, calls, f)
	}
	left := len(p.Runs) > 0 || p.Filter != "" && !p.State.Ended || len(p.State.Again) > 0
	switch {
	case err != nil && web.StatusOf(err) < 500:
		return web.Answer{}, err
	case err != nil:
		p.Stage, p.Error = "stopped", web.Sentence(err)
	case !left:
		p.Stage = "done"
	case f.Asked("stop"):
		p.Stage = "stopped"
	}
	if n := p.State.Done() - before; n > 0 {
		b.did(ctx, f, p.Verb, n)
	}
	return web.Answer{Template: "bulk", View: p}, nil
}

// someOf changes runs for about stepTime.
func (b *bulkForms) someOf(ctx context.Context, p *bulkPage, calls bulkCalls, f web.Form) error {
	for until := time.Now().Add(stepTime); time.Now().Before(until); {
		if len(p.Runs) == 0 && p.Filter != "" && !p.State.Ended {
			if err := b.nextOf(ctx, p, f); err != nil {
				return err
			}
			continue
		}
		if len(p.Runs) == 0 && len(p.State.Again) > 0 {
			p.Runs, p.State.Again, p.State.Last = p.State.Again, nil, true
		}
		n := min(stepRuns, len(p.Runs))
		if n == 0 {
			return nil
		}
		left, err := p.change(ctx, calls, p.Runs[:n])
		p.Runs = slices.Concat(left, p.Runs[n:])
		if err != nil {
			return err
		}
	}
	return nil
}

// nextOf takes the next runs that match the filter.
func (b *bulkForms) nextOf(ctx context.Context, p *bulkPage, f web.Form) error {
	values, err := url.ParseQuery(p.Filter)
	if err != nil {
		return web.BadRequest("The filter cannot be read.")
	}
	rf, err := runFilter(web.Query{Path: f.Path, Values: values}, time.Now())
	if err != nil {
		return err
	}
	rf.After, rf.Limit = p.State.After, 5*stepRuns
	if len(rf.Status) == 0 {
		rf.Status = p.Verb.Many.To
	}
	page, err := b.client.List(ctx, rf)
	if err != nil {
		return err
	}
	for _, r := range page {
		p.Runs, p.State.After = append(p.Runs, r.ID), r.ID
	}
	p.State.Ended = len(page) < rf.Limit
	return nil
}

// change changes the runs, some at once, and returns those that are left because of an error that is not about one run.
func (p *bulkPage) change(ctx context.Context, calls bulkCalls, runs []kagzi.RunID) (left []kagzi.RunID, err error) {
	type outcome struct {
		as  kagzi.RunID
		err error
	}
	outcomes := make([]outcome, len(runs))
	var working sync.WaitGroup
	slots := make(chan struct{}, stepAtOnce)
	for i, id := range runs {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			outcomes[i].as, outcomes[i].err = calls.one(ctx, id)
		})
	}
	working.Wait()
	for i, o := range outcomes {
		if o.err != nil && web.StatusOf(o.err) >= 500 && !deeds.Inapplicable(o.err) {
			left, err = append(left, runs[i]), o.err
			continue
		}
		p.note(runs[i], o.as, o.err)
	}
	return left, err
}

// note records the result for a run.
func (p *bulkPage) note(id, as kagzi.RunID, err error) {
	s := &p.State
	gone, later := p.Verb.Many.Final(err)
	switch {
	case err == nil, gone:
		s.Changed++
	case later && !s.Last && len(s.Again) < mostNamed:
		s.Again = append(s.Again, id)
	case deeds.Inapplicable(err), web.StatusOf(err) == http.StatusForbidden:
		s.Skipped.add(web.WhyNot(err, id))
	default:
		s.Failed.add(web.WhyNot(err, id))
	}
	if as == "" {
		return
	}
	if len(s.New) < mostNew {
		s.New = append(s.New, madeRun{id, as})
	} else {
		s.NewMore++
	}
}
