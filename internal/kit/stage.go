package kit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// A Stage is where an example plays: a database of its own, and the workers it has let run.
type Stage struct {
	stop    context.CancelFunc
	workers sync.WaitGroup
	done    func() error
}

// Setup returns what an application has: a pool of its database, on which Migrate was called, a client and a worker.
func (s *Stage) Setup() (context.Context, *pgxpool.Pool, *kagzi.Client, *kagzi.Worker) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	db, done, err := dbtest.Example(ctx)
	if err != nil {
		panic(err)
	}
	s.stop, s.done = stop, done
	client, err := kagzi.NewClient(db.Pool, kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		panic(err)
	}
	return ctx, db.Pool, client, worker
}

// Serve lets worker run until Teardown: go worker.Run(ctx).
func (s *Stage) Serve(ctx context.Context, worker *kagzi.Worker) {
	s.workers.Go(func() {
		if err := worker.Run(ctx); err != nil {
			fmt.Println("worker:", err)
		}
	})
}

// Teardown stops the workers.
func (s *Stage) Teardown() {
	s.stop()
	s.workers.Wait()
	if err := s.done(); err != nil {
		fmt.Println("teardown:", err)
	}
}

// UntilOnline returns when n workers are online.
func UntilOnline(ctx context.Context, client *kagzi.Client, n int) {
	for ctx.Err() == nil {
		_, total, err := admin.New(client).Workers.List(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}})
		if err == nil && total == n {
			return
		}
	}
}

// UntilWaitingOn returns when the run waits for on.
func UntilWaitingOn(ctx context.Context, client *kagzi.Client, run kagzi.Ref, on string) {
	for ctx.Err() == nil {
		if info, err := client.Get(ctx, run); err == nil && info.WaitingOn.String() == on {
			return
		}
	}
}

// UntilAsleep returns when the run has left memory. It may have slept unseen: then it has ended.
func UntilAsleep(ctx context.Context, run *kagzi.Run[string]) {
	for ctx.Err() == nil {
		if info, err := run.Info(ctx); err == nil && (info.Status == kagzi.StatusSleeping || info.Status.Ended()) {
			return
		}
	}
}
