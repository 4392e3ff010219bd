// Package demo gives the small examples a Postgres database, a client and a worker, so that each shows only one
// feature. An application has this code itself, as in examples/hello.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/localpg"
)

// Main runs an example: handle registers its workflows, and play starts runs while the worker executes them. Main uses
// the database of KAGZI_TEST_DATABASE_URL, or a throwaway Postgres server. It exits with 1 if play or the worker
// returns an error.
func Main(name string, handle func(*kagzi.Worker), play func(context.Context, *kagzi.Client) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, name, handle, play); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, handle func(*kagzi.Worker),
	play func(context.Context, *kagzi.Client) error,
) (err error) {
	url, stopPostgres, err := localpg.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPostgres()) }()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := kagzi.Migrate(ctx, pool); err != nil {
		return err
	}
	// The examples provoke failures, which Kagzi logs at level Warn.
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "example-" + name, Logger: logger})
	if err != nil {
		return err
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		return err
	}
	handle(worker)

	if err := worker.Start(ctx); err != nil {
		return err
	}
	err = play(ctx, client)
	return errors.Join(err, worker.Stop(context.WithoutCancel(ctx)))
}
