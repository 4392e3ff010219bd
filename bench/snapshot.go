package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// snapshotFigure measures claims while another session keeps an old snapshot, so that no dead row can be removed: two
// minutes at a constant rate, then a drain.
func snapshotFigure(l *lab) figure {
	f := figure{
		group: "An old snapshot", name: "1,000 runs/s for two minutes, then a drain at concurrency 100", rounds: 1,
		columns: []string{
			"claim at first, ms", "claim at last, ms", "backlog after two minutes",
			"drain under the snapshot, runs/s",
		},
	}
	for _, e := range []engine{ours, oursKeyed, riverTuned, dbosTuned} {
		f.subjects = append(f.subjects, subject{e.name(), func(ctx context.Context) (sample, error) {
			return underSnapshot(ctx, l, e)
		}})
	}
	return f
}

func underSnapshot(ctx context.Context, l *lab, e engine) (sample, error) {
	t, err := l.newTrial(ctx, e, used, drainConnections(e))
	if err != nil {
		return sample{}, err
	}
	defer t.close()
	s := &snapshotted{trial: t, started: make([]atomic.Int64, l.size(120_000)), drained: l.size(60_000)}
	s.journal = newJournal(len(s.started) + s.drained)
	var values []float64
	cost, err := t.measured(ctx, func() (_ int, err error) {
		release, err := holdSnapshot(ctx, t)
		if err != nil {
			return 0, err
		}
		defer release()
		backlog, err := s.load(ctx)
		if err != nil {
			return 0, err
		}
		rate, err := s.drain(ctx)
		if len(s.curve) == 0 {
			return 0, errors.Join(err, errors.New("no claim was seen"))
		}
		values = []float64{s.curve[0].y, s.curve[len(s.curve)-1].y, backlog, rate}
		return len(s.started) + s.drained, err
	})
	if err != nil {
		return sample{}, err
	}
	return sample{values: values, cost: cost, curve: s.curve}, t.check(ctx, cost.Runs, 0)
}

// holdSnapshot keeps a snapshot of now until release is called.
func holdSnapshot(ctx context.Context, t *trial) (release func(), err error) {
	conn, err := pgx.Connect(ctx, t.lab.dsn(t.name))
	if err != nil {
		return nil, err
	}
	if _, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err == nil {
		_, err = conn.Exec(ctx, "SELECT count(*) FROM pg_class")
	}
	return func() { _ = conn.Close(context.Background()) }, err
}

type snapshotted struct {
	*trial
	journal *journal
	started []atomic.Int64 // runs of the load
	drained int            // runs of the drain
	curve   []point        // seconds, and milliseconds of a claim
}

// load starts and executes 1,000 runs a second, and returns how many waited at the end. It returns when none does.
func (s *snapshotted) load(ctx context.Context) (backlog float64, err error) {
	c, err := s.work(ctx, false, 100, task{}, s.journal)
	if err != nil {
		return 0, err
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- s.watch(watching) }()
	err = paced(ctx, s.queue, s.started, 1000)
	backlog = float64(int64(len(s.started)) - s.journal.nBegan.Load())
	stop()
	if werr := <-watched; err == nil {
		err = werr
	}
	if err == nil {
		err = s.journal.wait(ctx, &s.journal.nEnded, len(s.started))
	}
	return backlog, errors.Join(err, c.stop())
}

const readClaims = `
	SELECT coalesce(sum(s.calls), 0)::bigint, coalesce(sum(s.total_exec_time), 0)
	FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1 AND s.query LIKE $2`

// watch adds a point to the curve every five seconds: how long a claim took on average.
func (s *snapshotted) watch(ctx context.Context) error {
	begun := time.Now()
	every := time.NewTicker(max(s.lab.long(5*time.Second), 50*time.Millisecond))
	defer every.Stop()
	var calls int64
	var total float64
	for {
		// Without a last look, a short try would see nothing.
		done := false
		select {
		case <-ctx.Done():
			done = true
		case <-every.C:
		}
		var nowCalls int64
		var nowTotal float64
		err := s.lab.admin.QueryRow(context.WithoutCancel(ctx), readClaims, s.name, s.engine.claims()).
			Scan(&nowCalls, &nowTotal)
		if err != nil {
			return err
		}
		if nowCalls > calls && (!done || len(s.curve) == 0) {
			s.curve = append(s.curve, point{time.Since(begun).Seconds(), (nowTotal - total) / float64(nowCalls-calls)})
		}
		if calls, total = nowCalls, nowTotal; done {
			return nil
		}
	}
}

// drain executes runs that were started in bulk, and returns the rate.
func (s *snapshotted) drain(ctx context.Context) (float64, error) {
	for n := 0; n < s.drained; n += 5000 {
		if err := s.queue.startMany(ctx, len(s.started)+n, min(5000, s.drained-n)); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	c, err := s.work(ctx, false, 100, task{}, s.journal)
	if err != nil {
		return 0, err
	}
	err = s.journal.wait(ctx, &s.journal.nEnded, len(s.started)+s.drained)
	took := time.Since(begun)
	return float64(s.drained) / took.Seconds(), errors.Join(err, c.stop())
}
