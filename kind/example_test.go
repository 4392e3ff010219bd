package kind_test

import (
	"context"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// stage is where an example plays.
var stage kit.Stage

// setup returns what an application has: a client and a worker.
func setup() (context.Context, *kagzi.Client, *kagzi.Worker) {
	ctx, _, client, worker := stage.Setup()
	return ctx, client, worker
}

// serve lets worker run until teardown: go worker.Run(ctx).
func serve(ctx context.Context, worker *kagzi.Worker) { stage.Serve(ctx, worker) }

// teardown stops the workers.
func teardown() { stage.Teardown() }
