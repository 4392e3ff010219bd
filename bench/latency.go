package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// latencyFigures start one run after the other on an idle worker.
func latencyFigures(l *lab) (all []figure) {
	for _, apart := range []bool{false, true} {
		f := figure{group: "Latency", name: where(apart), columns: []string{
			"start → first line, p50 ms", "p95", "p99", "start → result, p50 ms", "p95", "p99",
		}}
		engines := []engine{
			ours, riverTuned, riverDefault, dbosTuned, dbosDefault, goWorkflowsTuned, goWorkflowsDefault, temporal,
		}
		if !apart {
			engines = append(engines, dbosDirect) // its runs execute in the process that starts them
		}
		for _, e := range engines {
			f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return latency(ctx, l, e, apart)
			}})
		}
		all = append(all, f)
	}
	return all
}

func latency(ctx context.Context, l *lab, e engine, apart bool) (sample, error) {
	t, err := l.newTrial(ctx, e, used, 8)
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	var firsts, results []time.Duration
	cost, err := t.measured(ctx, func() (int, error) {
		starts := make([]time.Time, l.size(2000))
		j := newJournal(len(starts))
		c, err := t.work(ctx, apart, 100, task{Results: !apart}, j)
		if err != nil {
			return 0, err
		}
		const unready = 5 // the first runs find a worker that is not ready
		n := 0
		for begun := time.Now(); n < len(starts) && (n < 2*unready || time.Since(begun) < l.long(2*roundTime)); n++ {
			starts[n] = time.Now()
			took, err := startAndWait(ctx, t.queue, j, n)
			if err != nil {
				return 0, errors.Join(err, c.stop())
			}
			if took > 0 && n >= unready {
				results = append(results, took)
			}
			time.Sleep(l.long(20 * time.Millisecond)) // until the worker is idle
		}
		err = j.wait(ctx, &j.nEnded, n)
		for i := unready; i < n; i++ {
			firsts = append(firsts, time.Unix(0, j.began[i].Load()).Sub(starts[i]))
		}
		return n, errors.Join(err, c.stop())
	})
	if err != nil {
		return sample{}, err
	}
	return sample{values: append(quantiles(firsts), quantiles(results)...), cost: cost}, t.check(ctx, cost.Runs, 0)
}

// startAndWait returns how long the result took, or zero if the engine does not deliver it; then it waits for the first
// line.
func startAndWait(ctx context.Context, q queue, j *journal, n int) (time.Duration, error) {
	begun := time.Now()
	result, err := q.start(ctx, n, 0)
	if err != nil {
		return 0, err
	}
	err = result(ctx)
	if errors.Is(err, errNoResult) {
		return 0, j.wait(ctx, &j.nBegan, n+1)
	}
	return time.Since(begun), err
}

// timerFigures measure how late a run continues or begins.
func timerFigures(l *lab) []figure {
	const nap = time.Second // longer than the waits that Kagzi keeps in memory
	sleep := figure{name: "a sleep that frees its slot", close: nil}
	delay := figure{name: "a delayed start"}
	herd := figure{
		group: "10,000 runs that sleep until the same moment", name: "concurrency 1000",
		columns: []string{"s until all ended", "late, p50 ms", "p95", "p99"},
	}
	for _, e := range []engine{ours, riverTuned, dbosTuned, goWorkflowsTuned, temporal} {
		sleep.subjects = append(sleep.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
			return timers(ctx, l, e, task{Nap: l.timer(nap)}, 0)
		}})
		if e != goWorkflowsTuned { // it has no delayed start
			delay.subjects = append(delay.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return timers(ctx, l, e, task{}, l.timer(nap))
			}})
		}
		if !oneByOne(e) { // its runs do not all fall asleep in time
			herd.subjects = append(herd.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return sleepers(ctx, l, e)
			}})
		}
	}
	all := []figure{sleep, delay}
	for i := range all {
		all[i].group, all[i].columns = "Timers", []string{"late, p50 ms", "p95", "p99"}
	}
	return append(all, herd)
}

// timer returns d, or the shortest sleep that is not kept in memory if the benchmark is only tried.
func (l *lab) timer(d time.Duration) time.Duration {
	if l.quick {
		return 250 * time.Millisecond
	}
	return d
}

// timers starts 200 runs a second. Either the runs sleep, or their start is delayed. The lateness of the first half is
// not counted: their worker prepares its statements.
func timers(ctx context.Context, l *lab, e engine, work task, delay time.Duration) (sample, error) {
	t, err := l.newTrial(ctx, e, used, 8)
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	starts := make([]atomic.Int64, l.size(800))
	j := newJournal(len(starts))
	cost, err := t.measured(ctx, func() (int, error) {
		c, err := t.work(ctx, false, 100, work, j)
		if err != nil {
			return 0, err
		}
		err = paced(ctx, delayed{t.queue, delay}, starts, 200)
		if err == nil {
			err = j.wait(ctx, &j.nEnded, len(starts))
		}
		return len(starts), errors.Join(err, c.stop())
	})
	if err != nil {
		return sample{}, err
	}
	var late []time.Duration
	for n := len(starts) / 2; n < len(starts); n++ {
		if delay > 0 {
			late = append(late, time.Duration(j.began[n].Load()-starts[n].Load())-delay)
		} else {
			late = append(late, time.Duration(j.woke[n].Load()-j.began[n].Load())-work.Nap)
		}
	}
	return sample{values: quantiles(late), cost: cost}, t.check(ctx, len(starts), 0)
}

// delayed is a queue all of whose starts are delayed.
type delayed struct {
	queue
	delay time.Duration
}

func (d delayed) start(ctx context.Context, n int, _ time.Duration) (func(context.Context) error, error) {
	return d.queue.start(ctx, n, d.delay)
}

func sleepers(ctx context.Context, l *lab, e engine) (sample, error) {
	t, err := l.newTrial(ctx, e, used, drainConnections(e))
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	runs := l.size(10_000)
	if err := t.preload(ctx, runs); err != nil {
		return sample{}, err
	}
	if err := t.settle(ctx); err != nil {
		return sample{}, err
	}
	asleep := 5 * time.Second // long enough for all to fall asleep
	if l.quick {
		asleep = time.Second
	}
	until := time.Now().Add(asleep)
	j := newJournal(runs)
	var took time.Duration
	cost, err := t.measured(ctx, func() (int, error) {
		c, err := t.work(ctx, false, 1000, task{Until: until}, j)
		if err != nil {
			return 0, err
		}
		err = j.wait(ctx, &j.nBegan, runs)
		if err == nil && time.Until(until) < asleep/20 {
			err = fmt.Errorf("not all runs were asleep in time")
		}
		if err == nil {
			err = j.wait(ctx, &j.nEnded, runs)
		}
		took = time.Since(until)
		return runs, errors.Join(err, c.stop())
	})
	if err != nil {
		return sample{}, err
	}
	late := make([]time.Duration, runs)
	for n := range late {
		late[n] = time.Unix(0, j.woke[n].Load()).Sub(until)
	}
	return sample{values: append([]float64{took.Seconds()}, quantiles(late)...), cost: cost}, t.check(ctx, runs, 0)
}
