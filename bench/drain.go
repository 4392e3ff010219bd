package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// roundTime is how long the measured part of a round is meant to take.
const roundTime = 2200 * time.Millisecond

// A drainage is a kind of drain.
type drainage struct {
	state       state
	steps       int
	concurrency int
	processes   int            // that work, each with the concurrency; zero: this one does
	result      int            // bytes of what each step returns; zero: a number
	long        time.Duration  // of the measured part of a round; zero: roundTime
	runs        map[engine]int // of a round, from the rate of a short one
}

// once drains a new database.
func (d *drainage) once(ctx context.Context, l *lab, e engine, runs int) (sample, error) {
	conns := drainConnections(e)
	if d.processes > 1 {
		conns = 8 // of each
	}
	t, err := l.newTrial(ctx, e, d.state, conns)
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	return d.in(ctx, t, runs)
}

// in drains the trial's database.
func (d *drainage) in(ctx context.Context, t *trial, runs int) (sample, error) {
	if err := t.preload(ctx, runs); err != nil {
		return sample{}, err
	}
	// A vacuum of the other databases would undo what is special about them, or take long.
	if d.state == used && !t.lab.quick {
		if err := t.settle(ctx); err != nil {
			return sample{}, err
		}
	} else if _, err := t.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return sample{}, err
	}
	var took time.Duration
	cost, err := t.measured(ctx, func() (_ int, err error) {
		work := task{Steps: d.steps, Result: d.result, document: documentOf(d.result)}
		if d.processes > 0 {
			took, err = t.executeApart(ctx, runs, d.processes, d.concurrency, work)
		} else {
			took, err = t.execute(ctx, runs, d.concurrency, work)
		}
		return runs, err
	})
	if err != nil {
		return sample{}, err
	}
	s := sample{values: []float64{float64(runs) * d.perRun() / took.Seconds()}, cost: cost}
	if d.result > 0 {
		ms := 1000 / (d.perRun() * float64(runs))
		s.values = append(s.values, cost.Server*ms, cost.Client*ms)
	}
	return s, t.check(ctx, runs, d.steps)
}

// perRun returns how much a run counts: its steps, or the MB that it writes.
func (d *drainage) perRun() float64 {
	if d.result > 0 {
		return float64(d.steps) * megabytes(d.result)
	}
	return float64(max(d.steps, 1))
}

// calibrated returns how many runs of an engine take as long as a round, from what do measures with a few.
func (d *drainage) calibrated(l *lab, e engine, do func(runs int) (sample, error)) (int, error) {
	few := min(200+20*d.concurrency*max(d.processes, 1), 5000)
	if oneByOne(e) {
		few = max(2*d.concurrency, 50)
	}
	if d.state == empty && d.concurrency == 1 {
		few = 200 // more would fill the tables so far that their plans are kept
		d.runs[e] = few
	}
	if l.quick {
		d.runs[e] = 40
	}
	if d.runs[e] == 0 {
		s, err := do(few)
		if err != nil {
			return 0, err
		}
		d.runs[e] = max(few, int(s.values[0]/d.perRun()*cmp.Or(d.long, roundTime).Seconds()))
	}
	return d.runs[e], nil
}

func (d *drainage) figure(l *lab, group, name string, engines ...engine) figure {
	d.runs = map[engine]int{}
	f := figure{group: group, name: name}
	switch {
	case d.state == empty:
		f.columns = []string{"steps/s, or runs/s without steps"}
	case d.steps > 0:
		f.columns = []string{"steps/s"}
	}
	for _, e := range engines {
		f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
			runs, err := d.calibrated(l, e, func(runs int) (sample, error) { return d.once(ctx, l, e, runs) })
			if err != nil {
				return sample{}, err
			}
			return d.once(ctx, l, e, runs)
		}})
	}
	return f
}

func drainFigures(l *lab) (all []figure) {
	add := func(group string, st state, steps, concurrency int, engines ...engine) {
		d := &drainage{state: st, steps: steps, concurrency: concurrency}
		all = append(all, d.figure(l, group, fmt.Sprintf("%s, concurrency %d", plural(steps, "step"), concurrency),
			engines...))
	}
	for _, c := range []int{100, 1000} {
		engines := []engine{
			ours, oursKeyed, riverTuned, riverDefault, dbosTuned, dbosDefault, goWorkflowsTuned, goWorkflowsDefault,
			temporal, floor,
		}
		if c > 100 {
			engines = slices.DeleteFunc(engines, oneByOne)
		}
		add("Drain, no steps", used, 0, c, engines...)
	}
	stepped := func(add func(steps, concurrency int)) {
		for _, steps := range []int{1, 5} {
			for _, c := range []int{1, 16, 100, 1000} {
				add(steps, c)
			}
		}
	}
	stepped(func(steps, c int) {
		engines := []engine{ours, riverTuned, dbosTuned, goWorkflowsTuned, temporal, temporalLocal, floor}
		if c == 100 {
			engines = []engine{
				ours, riverTuned, riverDefault, dbosTuned, dbosDefault, goWorkflowsTuned, goWorkflowsDefault, temporal,
				temporalLocal, floor,
			}
		}
		if c > 100 {
			engines = slices.DeleteFunc(engines, oneByOne)
		}
		add("Drain, with steps", used, steps, c, engines...)
	})
	const virgin = "Drain of a new database"
	for _, c := range []int{100, 1000} {
		add(virgin, empty, 0, c, ours, riverTuned)
	}
	stepped(func(steps, c int) { add(virgin, empty, steps, c, ours, riverTuned) })
	return all
}

// fullFigure drains databases that hold many other runs. A round leaves its runs behind.
func fullFigure(l *lab) figure {
	d := &drainage{state: full, concurrency: 100, runs: map[engine]int{}}
	trials := map[engine]*trial{}
	f := figure{
		group: "Drain of a full database",
		name:  fmt.Sprintf("beside %g million ended and as many sleeping runs, concurrency 100", float64(l.rows)/1e6),
		close: func() {
			for _, t := range trials {
				t.close()
			}
		},
	}
	for _, e := range []engine{ours, riverTuned, dbosTuned} {
		f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (_ sample, err error) {
			t := trials[e]
			if t == nil {
				if t, err = l.newTrial(ctx, e, full, drainConnections(e)); err != nil {
					return sample{}, err
				}
				trials[e] = t
			}
			runs, err := d.calibrated(l, e, func(runs int) (sample, error) { return d.in(ctx, t, runs) })
			if err != nil {
				return sample{}, err
			}
			return d.in(ctx, t, runs)
		}})
	}
	return f
}

func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
