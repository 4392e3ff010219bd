package request_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// stage is where an example plays.
var stage kit.Stage

// setup returns what an application has: a pool of its database, on which Migrate was called, a client and a worker.
func setup() (context.Context, *pgxpool.Pool, *kagzi.Client, *kagzi.Worker) { return stage.Setup() }

// serve lets worker run until teardown: go worker.Run(ctx).
func serve(ctx context.Context, worker *kagzi.Worker) { stage.Serve(ctx, worker) }

// teardown stops the workers.
func teardown() { stage.Teardown() }
