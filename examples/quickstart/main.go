// Quickstart demonstrates Kagzi's guarantees in a few seconds, on a fresh machine:
//
//	go run -C examples/quickstart .
//
// It starts a throwaway Postgres, 200 checkouts and two worker processes, kills one of them half-way with SIGKILL,
// and then counts: every checkout completed, no recorded step executed again, every payment captured exactly once.
// It exits with 1 if one of these does not hold. The workers log to a file, which the last line names.
//
// Read workflow.go first: an application has the same code. KAGZI_TEST_DATABASE_URL, if set, names the database to use.
// With -svg FILE the quickstart also draws its result, as in docs/quickstart.svg. While it runs, it serves the
// dashboard, and says where; with -stay it goes on with that until Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/localpg"
)

const (
	checkouts = 200
	patience  = 2 * time.Minute // with checkouts that take seconds
)

const killedText = `
%6.1fs  kill -9 %d: %s is gone at once, as in a crash, with its steps half done.
         %s notices, takes over its checkouts, and executes again only the
         steps that have no record.

`

var workers = []string{"worker-1", "worker-2"} // the first is killed

var (
	svg     = flag.String("svg", "", "also draw the result into this file")
	address = flag.String("dashboard", "127.0.0.1:0", "where the dashboard listens; port 0 is a free one")
	stay    = flag.Bool("stay", false, "keep the dashboard, and the throwaway Postgres, until Ctrl-C")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := quickstart
	if os.Getenv(workerEnv) != "" {
		run = work // this process is one of the two workers: see worker.go
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func quickstart(ctx context.Context) (err error) {
	began := time.Now()
	url, stopPostgres, err := localpg.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPostgres()) }()
	if os.Getenv("KAGZI_TEST_DATABASE_URL") == "" {
		fmt.Printf("Started a throwaway Postgres (%s).\n", since(began))
	}

	dir, err := os.MkdirTemp("", "kagzi-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := &show{pool: pool, url: url, dir: dir, shop: fmt.Sprintf("quickstart-%d", began.UnixNano())}
	if s.log, err = os.CreateTemp("", "kagzi-quickstart-*.log"); err != nil {
		return err
	}
	defer func() { fmt.Println("The workers' log:", s.log.Name()) }()
	defer s.log.Close()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	stopDashboard, err := s.dashboard(*address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopDashboard()) }()
	if err := s.play(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	if err := s.report(ctx); err != nil || !*stay {
		return err
	}
	stayed(ctx)
	return nil
}

// A show is one performance of the quickstart.
type show struct {
	pool   *pgxpool.Pool
	url    string
	dir    string   // of the workers' journals
	log    *os.File // both workers write to it
	shop   string   // a namespace of this run of the program, because the database may be a permanent one
	client *kagzi.Client
	runs   []kagzi.Started
	began  time.Time

	victim   string // the worker that was killed
	killed   time.Time
	finished time.Time
}

// prepare creates the tables and starts the checkouts. No worker runs yet: the checkouts wait in Postgres.
func (s *show) prepare(ctx context.Context) error {
	if err := kagzi.Migrate(ctx, s.pool); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, createLedger); err != nil {
		return err
	}
	var err error
	if s.client, err = kagzi.NewClient(s.pool, kagzi.ClientConfig{Namespace: s.shop}); err != nil {
		return err
	}
	calls := make([]kagzi.Call, checkouts)
	for i := range calls {
		calls[i] = Checkout.With(Order{Shop: s.shop, Number: i + 1, Cents: 1000 + i},
			kagzi.ID(fmt.Sprintf("order-%d", i+1)))
	}
	began := time.Now()
	if s.runs, err = s.client.StartMany(ctx, calls); err != nil {
		return err
	}
	fmt.Printf("Started %d checkouts in one round trip (%s). They wait in Postgres.\n", len(s.runs), since(began))
	return nil
}

// play starts two workers, kills one when half of the steps were executed, and returns when all checkouts have ended
// and the other worker has stopped.
func (s *show) play(ctx context.Context) (err error) {
	crew := map[string]*process{}
	defer func() {
		for _, p := range crew {
			err = errors.Join(err, p.stop())
		}
	}()
	s.began = time.Now()
	for _, name := range workers {
		if crew[name], err = s.hire(name); err != nil {
			return err
		}
		fmt.Printf("Started %s, process %d.\n", name, crew[name].cmd.Process.Pid)
	}
	fmt.Println()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var shown time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if time.Since(s.began) > patience {
			return fmt.Errorf("a promise was broken: not all checkouts are over after %v", patience)
		}
		p, err := s.progress(ctx)
		if err != nil {
			return err
		}
		over := p.completed+p.failed == checkouts
		if over || time.Since(shown) >= time.Second {
			shown = time.Now()
			fmt.Printf("%6.1fs  %s\n", time.Since(s.began).Seconds(), p)
		}
		if over {
			s.finished = time.Now()
			return nil
		}
		if s.victim == "" && p.executions >= checkouts*stepsPerCheckout/2 {
			s.victim, s.killed = workers[0], time.Now()
			victim := crew[s.victim]
			if err := victim.kill(); err != nil {
				return err
			}
			delete(crew, s.victim)
			fmt.Printf(killedText, s.killed.Sub(s.began).Seconds(), victim.cmd.Process.Pid, s.victim, workers[1])
		}
		for name, p := range crew {
			if p.gone() {
				return fmt.Errorf("%s ended by itself: %w", name, p.err)
			}
		}
	}
}

// journal returns the path of the file in which a worker records its executions.
func (s *show) journal(worker string) string { return filepath.Join(s.dir, worker) }

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
