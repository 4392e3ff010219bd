package main

import (
	"context"
	"time"
)

// memoryFigure measures a worker in a process of its own: how much its resident memory grows with runs that are
// executing, and with runs that sleep. The process has given unused memory back before each look.
func memoryFigure(l *lab) figure {
	f := figure{
		group: "Memory of the worker", name: "10,000 executing, 100,000 sleeping", rounds: 3,
		columns: []string{"kB for an executing run", "kB for a sleeping run"},
	}
	for _, e := range []engine{ours, riverTuned, dbosTuned} {
		f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
			executing, err := memory(ctx, l, e, l.size(10_000), 10_000, task{Hold: true})
			if err != nil {
				return sample{}, err
			}
			sleeping, err := memory(ctx, l, e, l.size(100_000), 1000, task{Nap: time.Hour})
			return sample{values: []float64{executing, sleeping}}, err
		}})
	}
	return f
}

// memory returns how many kB each of these runs takes.
func memory(ctx context.Context, l *lab, e engine, runs, concurrency int, work task) (float64, error) {
	t, err := l.newTrial(ctx, e, used, 8)
	if err != nil {
		return 0, err
	}
	defer t.close()
	j := newJournal(runs)
	c, err := t.hire(concurrency, work, j)
	if err != nil {
		return 0, err
	}
	defer c.kill() // the runs never end
	time.Sleep(l.long(time.Second))
	before, err := c.trim()
	if err != nil {
		return 0, err
	}
	if err := t.preload(ctx, runs); err != nil {
		return 0, err
	}
	if err := j.wait(ctx, &j.nBegan, runs); err != nil {
		return 0, err
	}
	time.Sleep(l.long(3 * time.Second)) // until the last ones are asleep
	after, err := c.trim()
	return (after - before) / float64(runs) / 1000, err
}
