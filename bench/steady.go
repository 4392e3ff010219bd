package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A crew is a worker in this process or in one of its own.
type crew interface{ stop() error }

// work starts a worker that reports to the journal.
func (t *trial) work(ctx context.Context, apart bool, concurrency int, work task, j *journal) (crew, error) {
	if apart {
		return t.hire(concurrency, work, j)
	}
	work.report = j.report
	return t.queue.work(ctx, defaultQueue, concurrency, work)
}

func where(apart bool) string {
	if apart {
		return "two processes"
	}
	return "one process"
}

// steadyFigures start and execute runs at the same time. At the light rate of the soak hardly anything shares a commit:
// its costs are those of a run alone.
func steadyFigures(l *lab) (all []figure) {
	const rate = 1000
	soaked := task{Steps: 2}
	for _, apart := range []bool{false, true} {
		light := figure{name: fmt.Sprintf("%d runs/s of %d steps, %s", soakRate, soaked.Steps, where(apart))}
		slow := figure{name: fmt.Sprintf("%d runs/s, %s", rate, where(apart))}
		fast := figure{name: "as fast as it goes, " + where(apart)}
		for _, e := range []engine{ours, riverTuned, dbosTuned, goWorkflowsTuned, temporal} {
			light.subjects = append(light.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return steady(ctx, l, e, apart, soaked, func(ctx context.Context, t *trial, j *journal) ([]float64,
					int, error,
				) {
					// so long that the worker's start and stop hardly count
					return atRate(ctx, t, j, soakRate, l.long(3*roundTime))
				})
			}})
			slow.subjects = append(slow.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return steady(ctx, l, e, apart, task{}, func(ctx context.Context, t *trial, j *journal) ([]float64,
					int, error,
				) {
					return atRate(ctx, t, j, rate, l.long(roundTime))
				})
			}})
			fast.subjects = append(fast.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return steady(ctx, l, e, apart, task{}, func(ctx context.Context, t *trial, j *journal) ([]float64,
					int, error,
				) {
					return atWill(ctx, t, j, l.long(roundTime))
				})
			}})
		}
		for _, f := range []figure{light, slow, fast} {
			f.group, f.columns = "Start and execute at once", []string{
				"runs/s", "start → first line, p50 ms",
				"p95", "p99",
			}
			all = append(all, f)
		}
	}
	return all
}

// steady measures while runs are started by produce, which returns the values and the number of runs.
func steady(ctx context.Context, l *lab, e engine, apart bool, work task,
	produce func(context.Context, *trial, *journal) ([]float64, int, error),
) (sample, error) {
	t, err := l.newTrial(ctx, e, used, drainConnections(e))
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	var values []float64
	var runs int
	cost, err := t.measured(ctx, func() (int, error) {
		j := newJournal(1_000_000)
		c, err := t.work(ctx, apart, 100, work, j)
		if err != nil {
			return 0, err
		}
		values, runs, err = produce(ctx, t, j)
		if err == nil {
			err = j.wait(ctx, &j.nEnded, runs)
		}
		if stopped := c.stop(); err == nil {
			err = stopped
		}
		return runs, err
	})
	if err != nil {
		return sample{}, err
	}
	return sample{values: values, cost: cost}, t.check(ctx, runs, work.Steps)
}

func atRate(ctx context.Context, t *trial, j *journal, perSecond int, long time.Duration) ([]float64, int, error) {
	starts := make([]atomic.Int64, int(long.Seconds()*float64(perSecond)))
	begun := time.Now()
	if err := paced(ctx, t.queue, starts, perSecond); err != nil {
		return nil, 0, err
	}
	if err := j.wait(ctx, &j.nBegan, len(starts)); err != nil {
		return nil, 0, err
	}
	rate := float64(len(starts)) / time.Since(begun).Seconds()
	var late []time.Duration
	for n := range starts[len(starts)/10:] { // the first ones find a worker that is not ready
		n += len(starts) / 10
		late = append(late, time.Duration(j.began[n].Load()-starts[n].Load()))
	}
	return append([]float64{rate}, quantiles(late)...), len(starts), nil
}

// atWill starts batches of 100 whenever fewer than 5,000 runs wait. It counts the ends in the last three quarters of
// the time.
func atWill(ctx context.Context, t *trial, j *journal, long time.Duration) ([]float64, int, error) {
	const batch, backlog = 100, 5000
	var started atomic.Int64
	begun := time.Now()
	measured := make(chan float64, 1)
	go func() {
		time.Sleep(long / 4)
		before, at := j.nEnded.Load(), time.Now()
		time.Sleep(long * 3 / 4)
		measured <- float64(j.nEnded.Load()-before) / time.Since(at).Seconds()
	}()
	err := together(4, func() error {
		for time.Since(begun) < long && ctx.Err() == nil {
			if started.Load()-j.nEnded.Load() >= backlog {
				time.Sleep(time.Millisecond)
				continue
			}
			if err := t.queue.startMany(ctx, int(started.Add(batch))-batch, batch); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	return []float64{<-measured, nan, nan, nan}, int(started.Load()), err
}
