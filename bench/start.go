package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A starter starts runs, which no worker executes.
type starter struct {
	goroutines int
	each       int // runs of a call; 1: one by one
}

func startFigures(l *lab) (all []figure) {
	for _, s := range []starter{{1, 1}, {16, 1}, {4, 5000}} {
		if l.quick {
			s.each = l.size(s.each)
		}
		name := plural(s.goroutines, "goroutine") + ", one by one"
		if s.each > 1 {
			name = fmt.Sprintf("%s, %d in a call", plural(s.goroutines, "goroutine"), s.each)
		}
		f := figure{group: "Start", name: name}
		for _, e := range []engine{ours, riverTuned, dbosTuned, goWorkflowsTuned, temporal, floor} {
			if s.each > 1 && oneByOne(e) {
				continue
			}
			f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return s.round(ctx, l, e)
			}})
		}
		all = append(all, f)
	}
	return all
}

func (s starter) round(ctx context.Context, l *lab, e engine) (sample, error) {
	t, err := l.newTrial(ctx, e, used, 16)
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	var rate float64
	var runs atomic.Int64
	cost, err := t.measured(ctx, func() (int, error) {
		begun := time.Now()
		err := together(s.goroutines, func() error {
			for time.Since(begun) < l.long(roundTime) {
				first := int(runs.Add(int64(s.each))) - s.each
				if err := s.call(ctx, t.queue, first); err != nil {
					return err
				}
			}
			return nil
		})
		rate = float64(runs.Load()) / time.Since(begun).Seconds()
		return int(runs.Load()), err
	})
	if err != nil {
		return sample{}, err
	}
	if l.quick { // that a run which was started is executed is tested once, not in every round
		if _, err := t.execute(ctx, int(runs.Load()), 100, task{}); err != nil {
			return sample{}, err
		}
		err = t.check(ctx, int(runs.Load()), 0)
	}
	return sample{values: []float64{rate}, cost: cost}, err
}

func (s starter) call(ctx context.Context, q queue, first int) error {
	if s.each > 1 {
		return q.startMany(ctx, first, s.each)
	}
	_, err := q.start(ctx, first, 0)
	return err
}

// paced starts runs one by one, so many a second, and stores when each start was called. A start that takes long does
// not delay others.
func paced(ctx context.Context, q queue, starts []atomic.Int64, perSecond int) error {
	begun := time.Now()
	var next atomic.Int64
	return together(8, func() error {
		for {
			n := int(next.Add(1)) - 1
			if n >= len(starts) || ctx.Err() != nil {
				return ctx.Err()
			}
			time.Sleep(time.Until(begun.Add(time.Duration(n) * time.Second / time.Duration(perSecond))))
			starts[n].Store(time.Now().UnixNano())
			if _, err := q.start(ctx, n, 0); err != nil {
				return err
			}
		}
	})
}
