package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// The load of a soak: runs of two steps, which are deleted ten minutes after their end.
const (
	soakRate = 200 // runs started a second
	soakKeep = 10 * time.Minute
)

// soak puts constant load on Kagzi for so long, and writes a line every minute. For a part of the time another session
// holds a snapshot: see heldFrom.
func soak(ctx context.Context, cfg config, long, snapshot time.Duration) (err error) {
	l, err := openLab(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	t, err := l.newTrial(ctx, ours, used, 16)
	if err != nil {
		return err
	}
	defer t.close()
	out := os.Stdout
	if cfg.out != "" {
		if out, err = os.Create(filepath.Join(cfg.out, "soak.csv")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	if snapshot == 0 {
		snapshot = long / 6
	}
	s := &soaking{trial: t, out: out, heldFrom: (long - snapshot) * 2 / 5, heldFor: snapshot}
	work := task{Steps: 2, Keep: soakKeep, report: func(e event, _ int) {
		if e == ended {
			s.ended.Add(1)
		}
	}}
	w, err := t.queue.work(ctx, defaultQueue, 100, work)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, long)
	defer stop()
	watched := make(chan error, 1)
	go func() { defer stop(); watched <- s.watch(ctx, long) }()
	err = s.load(ctx)
	if ctx.Err() != nil {
		err = nil // the time is over
	}
	stop()
	return errors.Join(err, <-watched, w.stop(), s.plot(cfg.out))
}

type soaking struct {
	*trial
	out               *os.File
	heldFrom, heldFor time.Duration // when the snapshot is taken, since the soak began, and for how long it is held
	started, ended    atomic.Int64
	claims            []point // seconds, and milliseconds of a claim
}

// plot writes the curve of the claims' time into soak.svg.
func (s *soaking) plot(folder string) error {
	if folder == "" {
		return nil
	}
	title := fmt.Sprintf("Soak: milliseconds of a claim, by seconds; a snapshot is held from %.0f s to %.0f s",
		s.heldFrom.Seconds(), (s.heldFrom + s.heldFor).Seconds())
	var body bytes.Buffer
	height := plotCurves(&body, title, []curve{{ours.name(), s.claims}})
	return os.WriteFile(filepath.Join(folder, "soak.svg"), svg(&body, height), 0o644)
}

// load starts runs until ctx ends.
func (s *soaking) load(ctx context.Context) error {
	for ctx.Err() == nil {
		starts := make([]atomic.Int64, soakRate) // one second
		if err := paced(ctx, counted{s.queue, &s.started}, starts, soakRate); err != nil {
			return err
		}
	}
	return nil
}

// counted counts the starts.
type counted struct {
	queue
	started *atomic.Int64
}

func (c counted) start(ctx context.Context, n int, delay time.Duration) (func(context.Context) error, error) {
	c.started.Add(1)
	return c.queue.start(ctx, n, delay)
}

const readTables = `
	SELECT relname, n_live_tup, n_dead_tup, pg_table_size(relid), pg_indexes_size(relid)
	FROM pg_stat_user_tables WHERE schemaname = 'kagzi' AND relname IN ('workflow_runs', 'step_runs') ORDER BY relname`

// watch writes a line for each table every minute.
func (s *soaking) watch(ctx context.Context, long time.Duration) error {
	fmt.Fprintln(s.out,
		"seconds,snapshot,runs_per_s,backlog,claim_ms,table,live_rows,dead_rows,table_bytes,index_bytes")
	interval := min(time.Minute, max(long/60, 100*time.Millisecond))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	begun := time.Now()
	var release func()
	defer func() {
		if release != nil {
			release()
		}
	}()
	var ended, calls int64
	var total float64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		passed := time.Since(begun)
		var err error
		switch held := passed >= s.heldFrom && passed < s.heldFrom+s.heldFor; {
		case held && release == nil:
			release, err = holdSnapshot(ctx, s.trial)
		case !held && release != nil:
			release()
			release = nil
		}
		if err != nil {
			return over(ctx, err)
		}
		var nowCalls int64
		var nowTotal float64
		if err := s.lab.admin.QueryRow(ctx, readClaims, s.name, s.engine.claims()).Scan(&nowCalls,
			&nowTotal); err != nil {
			return over(ctx, err)
		}
		now := s.ended.Load()
		claim := (nowTotal - total) / float64(max(nowCalls-calls, 1))
		s.claims = append(s.claims, point{passed.Seconds(), claim})
		about := fmt.Sprintf("%.0f,%t,%.1f,%d,%.3f", passed.Seconds(), release != nil,
			float64(now-ended)/interval.Seconds(), s.started.Load()-now, claim)
		ended, calls, total = now, nowCalls, nowTotal
		if err := s.writeTables(ctx, about); err != nil {
			return over(ctx, err)
		}
	}
}

func (s *soaking) writeTables(ctx context.Context, about string) error {
	rows, err := s.pool.Query(ctx, readTables)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var live, dead, table, index int64
		if err := rows.Scan(&name, &live, &dead, &table, &index); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s,%s,%d,%d,%d,%d\n", about, name, live, dead, table, index)
	}
	return rows.Err()
}

// over returns nil if ctx has ended, else err.
func over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
