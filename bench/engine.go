package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// An engine is one of the programs that are compared.
type engine interface {
	// name is the engine's name in the report.
	name() string
	// schema is the name of its tables' layout: engines of the same schema share template databases.
	schema() string
	// migrate prepares an empty database.
	migrate(ctx context.Context, pool *pgxpool.Pool) error
	// open returns the engine's queue in a database that was migrated.
	open(pool *pgxpool.Pool) (queue, error)
	// count returns how many runs have completed, and how many steps each of the newest of them recorded on average.
	count(ctx context.Context, pool *pgxpool.Pool, newest int) (completed int, steps float64, err error)
	// fill adds rows of runs that ended, and of runs that sleep for a day.
	fill(ctx context.Context, pool *pgxpool.Pool, ended, sleeping int) error
	// claims is a LIKE pattern of the statement that claims runs.
	claims() string
}

// A served engine has a server beside Postgres, for each database another one.
type served interface {
	engine
	// build makes the server's program, which may take minutes. serve builds it, too.
	build() error
	// serve starts a server that keeps everything in the database of pool.
	serve(ctx context.Context, pool *pgxpool.Pool, args ...string) (*server, error)
	// at returns the engine whose queues are those of the server at this address.
	at(address string) engine
}

// A queue starts and executes runs. The input of a run is its number. If it is an io.Closer, it is closed at last.
type queue interface {
	// start starts a run that becomes due after delay, and returns how to wait for its result.
	start(ctx context.Context, n int, delay time.Duration) (result func(context.Context) error, err error)
	// startMany starts the runs first, first+1, … in one call.
	startMany(ctx context.Context, first, count int) error
	// work executes runs from the queue of this name until stop is called.
	work(ctx context.Context, queue string, concurrency int, t task) (worker, error)
}

type worker interface {
	// flush returns once the end of every run whose end was reported is on disk. It may stop the worker.
	flush() error
	// stop ends the worker after the runs under way.
	stop() error
}

// untilNone returns once a statement that looks for runs under way finds none.
func untilNone(pool *pgxpool.Pool, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		var underWay bool
		err := pool.QueryRow(ctx, statement, args...).Scan(&underWay)
		if err != nil || !underWay {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// endsOnce returns a report that passes on one end of each run. A run may reach its last line again if the first time
// was not recorded.
func endsOnce(report func(event, int)) func(event, int) {
	var reported sync.Map
	return func(e event, n int) {
		if e == ended {
			if _, again := reported.LoadOrStore(n, true); again {
				return
			}
		}
		report(e, n)
	}
}

// errNoResult is the error of waiting for a result that the engine does not deliver.
var errNoResult = errors.New("the engine does not deliver results to this process")

const defaultQueue = "default"

// A task is what the function of every run does.
type task struct {
	Steps int           // how many steps it executes, each of which is durable before the next begins
	Nap   time.Duration // how long it sleeps first
	Until time.Time     // until when it sleeps first
	Hold  bool          // it waits until its context ends
	// what each step returns: a document of about so many bytes; zero: a number
	Result int

	Results bool          // callers in the worker's process wait for results
	Keep    time.Duration // how long completed runs are kept; zero: the engine's default

	report   func(event, int) // called when a run reaches a point; never nil
	document document         // of Result
}

// An event is a point in the execution of a run.
type event byte

const (
	began event = 'b' // the first line of the function
	woke  event = 'w' // the line after the sleep
	ended event = 'e' // the last line, or later if the engine reports ends
)

var stepNames = func() (names [10]string) {
	for i := range names {
		names[i] = "step-" + strconv.Itoa(i)
	}
	return names
}()

// quiet keeps the logs of engines out of the output, except for errors.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
