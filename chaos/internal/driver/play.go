package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// Play makes a plan, carries it out and judges it. It prints the plan and the judgement to w. With planOnly it prints
// the plan alone. An error means that the round could not be played: nothing is known then.
func Play(ctx context.Context, w io.Writer, o Options, planOnly bool) (_ Record, err error) {
	g, err := o.server()
	if err != nil {
		return Record{}, err
	}
	o.Server = g.Name
	site, err := g.Open(ctx, fault.Options{MaxConnections: 200, Dir: o.Dir})
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	if site.Both && o.Soak {
		return Record{}, badOption("-soak needs a server with one database")
	}
	plan, err := Make(o, site.Faults)
	if err != nil {
		return Record{}, err
	}
	fmt.Fprint(w, plan)
	if planOnly {
		return Record{Verdict: Pass}, nil
	}
	result, err := run(ctx, plan, site)
	if err != nil {
		return Record{}, err
	}
	return judge(w, plan, result), nil
}

// run carries out a plan.
func run(ctx context.Context, plan Plan, site *fault.Site) (_ *Result, err error) {
	r, begun := &round{plan: plan, site: site}, time.Now()
	if r.bases, err = openBases(ctx, site.Admin, plan.Options.Dir, site.Both); err != nil {
		return nil, err
	}
	defer r.bases.close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	reading, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	result, err := r.result(reading)
	if err == nil {
		result.Took = time.Since(begun)
	}
	return result, err
}
