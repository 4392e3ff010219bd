package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// idleFigures count what 50 workers do when there is nothing to do: with connections of their own, as in 50 processes,
// or with one pool.
func idleFigures(l *lab) (all []figure) {
	for _, shared := range []bool{false, true} {
		f := figure{
			group: "Idle", name: "50 workers on 10 queues, as in 50 processes", rounds: 3,
			columns: []string{"statements/s", "commits/s", "connections", "server, ms of CPU/s"},
		}
		if shared {
			f.name = "50 workers on 10 queues with one pool"
		}
		engines := []engine{ours, riverTuned, riverDefault, goWorkflowsDefault, temporal}
		if !shared { // a worker of DBOS has a pool of its own
			engines = append(engines, dbosTuned, dbosDefault)
		}
		for _, e := range engines {
			f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
				return idle(ctx, l, e, shared)
			}})
		}
		all = append(all, f)
	}
	return all
}

func idle(ctx context.Context, l *lab, e engine, shared bool) (_ sample, err error) {
	t, err := l.newTrial(ctx, e, used, 16)
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	var stops []func() error
	defer func() {
		for _, stop := range slices.Backward(stops) {
			err = errors.Join(err, stop())
		}
	}()
	for i := range l.size(50) {
		q := t.queue
		if !shared {
			pool, err := l.connect(ctx, t.name, 4)
			if err != nil {
				return sample{}, err
			}
			stops = append(stops, func() error { pool.Close(); return nil })
			if q, err = t.engine.open(pool); err != nil {
				return sample{}, err
			}
			stops = append(stops, func() error { return closeQueue(q) })
		}
		w, err := q.work(ctx, fmt.Sprintf("queue-%d", i%10), 100, task{report: func(event, int) {}})
		if err != nil {
			return sample{}, err
		}
		stops = append(stops, w.stop)
	}
	time.Sleep(l.long(4 * time.Second)) // registrations and first looks
	before, err := l.read(ctx, t.name)
	if err != nil {
		return sample{}, err
	}
	time.Sleep(l.long(10 * time.Second)) // a whole number of heartbeats
	after, err := l.read(ctx, t.name)
	if err != nil {
		return sample{}, err
	}
	var connections float64
	err = l.admin.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, t.name).Scan(&connections)
	c := after.since(before, 0)
	seconds := c.Wall.Seconds()
	return sample{
		values: []float64{
			float64(c.Statements) / seconds, float64(c.Commits) / seconds, connections,
			c.Server / seconds * 1000,
		},
		cost: c,
	}, err
}
