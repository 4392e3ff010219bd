// Command adapter lets a public harness for queues in Postgres measure Kagzi, so that others can compare it under their
// own load: with payloads, under pressure, and with workers that are killed. See README.md.
//
// It speaks the harness's protocol: settings come as environment variables, what is measured leaves as lines of JSON on
// the standard output, and logs go to the standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "[kagzi]", err)
		os.Exit(1)
	}
}

// run does what the variable SCENARIO says, until it is done or ctx ends.
func run(ctx context.Context, getenv func(string) string, stdin io.Reader, stdout io.Writer) error {
	s, err := readSettings(getenv)
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(s.connections)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := kagzi.Migrate(ctx, pool); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: logger})
	if err != nil {
		return err
	}
	b := &bench{
		settings: s, pool: pool, client: client, out: newOutput(stdout, s.instance), latencies: newWindow(time.Now),
	}
	switch s.scenario {
	case "migrate_only":
		return nil
	case "long_horizon":
		b.describe(cfg.ConnConfig.Database)
		return b.longHorizon(ctx, stdin)
	case "worker_only":
		return b.work(ctx)
	}
	return fmt.Errorf("SCENARIO is %q: it is long_horizon, worker_only or migrate_only", s.scenario)
}

// settings are what the harness gives as environment variables.
type settings struct {
	url, scenario, mode, pacing string
	rateFile                    string // has the rate, which changes; empty: rate stays
	instance                    int    // of several processes; the first one reports what is the same for all

	rate, depth          int // of starts in a second; of waiting runs
	batch                int // the most runs of one start
	tick, sample, work   time.Duration
	workers, connections int
	payload              int // bytes
}

func readSettings(getenv func(string) string) (s settings, err error) {
	text := func(name, otherwise string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	var failed []error
	number := func(name string, otherwise, least int) int {
		n, err := strconv.Atoi(text(name, strconv.Itoa(otherwise)))
		if err != nil || n < least {
			failed = append(failed, fmt.Errorf("%s is %q: give a number of at least %d", name, getenv(name), least))
		}
		return n
	}
	s = settings{
		url: getenv("DATABASE_URL"), scenario: text("SCENARIO", "long_horizon"), mode: text("PRODUCER_MODE", "fixed"),
		pacing: text("PRODUCER_PACING", "adapter"), rateFile: getenv("PRODUCER_RATE_CONTROL_FILE"),
		instance: number("BENCH_INSTANCE_ID", 0, 0),
		rate:     number("PRODUCER_RATE", 800, 0), depth: number("TARGET_DEPTH", 1000, 0),
		batch:   number("PRODUCER_BATCH_MAX", 128, 1),
		tick:    time.Duration(number("PRODUCER_BATCH_MS", 10, 1)) * time.Millisecond,
		sample:  time.Duration(number("SAMPLE_EVERY_S", 5, 1)) * time.Second,
		work:    time.Duration(number("JOB_WORK_MS", 1, 0)) * time.Millisecond,
		workers: number("WORKER_COUNT", 50, 1), connections: number("MAX_CONNECTIONS", 20, 2),
		payload: number("JOB_PAYLOAD_BYTES", 256, 0),
	}
	if s.url == "" {
		failed = append(failed, errors.New("DATABASE_URL is empty"))
	}
	if s.mode != "fixed" && s.mode != "depth-target" {
		failed = append(failed, fmt.Errorf("PRODUCER_MODE is %q: it is fixed or depth-target", s.mode))
	}
	if s.scenario == "worker_only" { // the runs of a worker that is killed take long
		s.work = time.Duration(number("JOB_DURATION_MS", 30_000, 0)) * time.Millisecond
	}
	return s, errors.Join(failed...)
}
