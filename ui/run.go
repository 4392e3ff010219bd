package ui

import (
	"context"
	"errors"
	"html/template"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// pages are that page.
func (p *runPage) pages() []web.Page {
	return []web.Page{{
		Path: "/runs/{id}", Action: asks(View, OnRun), Template: "run",
		Live: []string{"head", "why", "timeline", "steps", "data", "messages", "family", "log", "facts"}, Look: p.run,
	}}
}

func (p *runPage) run(ctx context.Context, q web.Query) (any, error) {
	ref := deeds.RefOf(q.Path("id"))
	run, err := p.client.Get(ctx, ref)
	if errors.Is(err, kagzi.ErrNotFound) {
		return nil, p.gone(ctx, ref)
	}
	if err != nil {
		return nil, err
	}
	v := &runView{Run: run}
	v.Run.Input, v.Run.Output = nil, nil
	v.Input = p.payloads.show(run.Input, v.Path()+"/raw?of=input")
	v.Output = p.payloads.show(run.Output, v.Path()+"/raw?of=output")
	h, err := p.history(ctx, v.Run)
	if err != nil {
		return nil, err
	}
	log, err := p.admin.Runs.Log(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	for _, e := range log {
		if e.Event == "ATTEMPT_FAILED" {
			v.Failed = append(v.Failed, e)
		} else {
			v.Log = append(v.Log, e)
		}
	}
	if v.Messages, v.More, err = p.messages(ctx, v.Run); err != nil {
		return nil, err
	}
	if err = p.names.learn(ctx, v.others(h.attempts)...); err != nil {
		return nil, err
	}
	text, err := explain.Run(ctx, p.client, v.Run, h.attempts, v.Log, p.words())
	if err != nil {
		return nil, err
	}
	for _, s := range text {
		v.Why = append(v.Why, template.HTML(s)) // words has escaped what others have written
	}
	v.Whole = wholeErrorOf(v.Run, h.attempts)
	v.Earlier = max(len(v.Log)-mostDrawn, 0)
	v.Log = v.Log[v.Earlier:]
	v.unsettled = h.unsettled
	chosen, err := choose(q, h.steps)
	if err != nil {
		return nil, err
	}
	now := roughly(v.Run, time.Now())
	if v.workers, err = p.workersLane(ctx, v.Run, h, now); err != nil {
		return nil, err
	}
	v.Timeline = chosen.timeline(lanes{v.Run, v.Log, v.Messages, v.workers}, now)
	if v.Steps, err = p.table(ctx, chosen, v.Run, v.workers, h); err != nil {
		return nil, err
	}
	v.Family, err = p.family(ctx, v.Run, v.Log, h)
	return v, err
}

// handlers are the search for a run and the files of its payloads.
func (p *runPage) handlers() []web.Handler {
	return []web.Handler{
		{Path: "/find", Action: asks(View, OnRun), Serve: p.find},
		{Path: "/runs/{id}/raw", Action: asks(View, OnRun), Serve: p.raw},
	}
}

// roughly returns now for the timeline of a run, rounded up to about a hundredth of its age: so the timeline of an old
// run is not new each second.
func roughly(run kagzi.RunInfo, now time.Time) time.Time {
	if !run.EndedAt.IsZero() {
		return run.EndedAt
	}
	return rounded(run.CreatedAt, now)
}

// rounded returns now, rounded up to about a hundredth of the time since then.
func rounded(since, now time.Time) time.Time {
	step := time.Second
	for step < now.Sub(since)/128 {
		step *= 2
	}
	return now.Add(step - 1).Truncate(step)
}
