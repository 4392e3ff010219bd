package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// A job is the input of a run.
type job struct {
	Started time.Time `json:"started"`
	Padding string    `json:"padding,omitempty"`
}

var jobs = kagzi.DefineDo[job]("job")

// A bench starts runs, executes them, and reports what it measures.
type bench struct {
	settings
	pool   *pgxpool.Pool
	client *kagzi.Client
	out    *output

	started, completed atomic.Int64
	waiting            atomic.Int64 // runs that are due, as the last look saw them
	offered            atomic.Int64 // the rate at which runs are to be started
	latencies          *window      // from the start of a run to the first line of its function
}

// longHorizon starts and executes runs, and reports samples, until ctx ends.
func (b *bench) longHorizon(ctx context.Context, stdin io.Reader) error {
	worker, err := b.worker()
	if err != nil {
		return err
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	var beside sync.WaitGroup
	beside.Go(func() { b.produce(ctx, stdin) })
	beside.Go(func() { b.watchDepth(ctx) })
	beside.Go(func() { b.report(ctx) })
	<-ctx.Done()
	beside.Wait()
	stopping, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return worker.Stop(stopping)
}

// work executes runs until ctx ends. The harness kills it.
func (b *bench) work(ctx context.Context) error {
	worker, err := b.worker()
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

func (b *bench) worker() (*kagzi.Worker, error) {
	w, err := kagzi.NewWorker(b.client, kagzi.WorkerConfig{MaxConcurrent: b.workers, DrainTimeout: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	kagzi.HandleDo(w, jobs, func(ctx kagzi.Context, j job) error {
		b.latencies.add(time.Since(j.Started))
		time.Sleep(b.settings.work) // what a job does takes this long
		b.completed.Add(1)
		return nil
	})
	return w, nil
}

// produce starts runs: as the harness says, at a rate, or as many as keep a number of them waiting.
func (b *bench) produce(ctx context.Context, stdin io.Reader) {
	switch {
	case b.mode == "depth-target":
		b.produceEvery(ctx, func(time.Duration) int { return b.depth - int(b.waiting.Load()) })
	case b.pacing == "harness":
		b.offered.Store(int64(b.rate))
		b.obey(ctx, stdin)
	default:
		credit := 0.0 // by the time that has really passed
		b.produceEvery(ctx, func(passed time.Duration) int {
			rate := b.currentRate()
			b.offered.Store(int64(rate))
			credit += float64(rate) * passed.Seconds()
			n := int(credit)
			credit -= float64(n)
			return n
		})
	}
}

// produceEvery starts as many runs as want says, after each pause.
func (b *bench) produceEvery(ctx context.Context, want func(passed time.Duration) int) {
	ticker := time.NewTicker(b.tick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		n := want(now.Sub(last))
		last = now
		for ; n > 0 && ctx.Err() == nil; n -= b.batch {
			b.start(ctx, min(n, b.batch))
		}
	}
}

// currentRate returns the rate in the harness's file, which it changes between the phases of a run.
func (b *bench) currentRate() int {
	if b.rateFile == "" {
		return b.rate
	}
	text, err := os.ReadFile(b.rateFile)
	if err != nil {
		return b.rate
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		return b.rate
	}
	return max(0, int(rate))
}

// obey starts runs as the lines of stdin say: ENQUEUE and a number.
func (b *bench) obey(ctx context.Context, stdin io.Reader) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(stdin); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case line, more := <-lines:
			if !more {
				return
			}
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "ENQUEUE ")))
			if err != nil {
				fmt.Fprintf(os.Stderr, "[kagzi] ignored %q\n", line)
				continue
			}
			b.start(ctx, n)
		}
	}
}

// start starts n runs with one call.
func (b *bench) start(ctx context.Context, n int) {
	input := job{Padding: strings.Repeat("x", b.payload), Started: time.Now()}
	calls := make([]kagzi.Call, n)
	for i := range calls {
		calls[i] = jobs.With(input)
	}
	if _, err := b.client.StartMany(ctx, calls); err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "[kagzi] start:", err)
		}
		return
	}
	b.started.Add(int64(n))
	b.waiting.Add(int64(n)) // until the next look
}

const dueRuns = `
SELECT count(*) FROM kagzi.workflow_runs
WHERE namespace_id = 'default' AND task_queue = 'default' AND workflow_type = 'job' AND status = 'PENDING'
	AND available_at <= now()`

// watchDepth counts the runs that wait for a worker.
func (b *bench) watchDepth(ctx context.Context) {
	if b.instance > 0 {
		return
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		var n int64
		if err := b.pool.QueryRow(ctx, dueRuns).Scan(&n); err == nil {
			b.waiting.Store(n)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
