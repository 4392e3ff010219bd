package worker_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/worker"
)

// configOf returns the configuration of w's engine. It does not run w.
func configOf(t *testing.T, w *kagzi.Worker) (cfg worker.Config) {
	t.Helper()
	hooks := *kit.HooksOf(t, w)
	hooks.Config = func(c any) { cfg = c.(worker.Config) }
	if err := w.Run(testhook.With(t.Context(), &hooks)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// idleWorker returns a worker of c that has a gate, and does not run.
func idleWorker(t *testing.T, c *kagzi.Client, cfg kagzi.WorkerConfig) *kagzi.Worker {
	t.Helper()
	w := kit.NewWorker(t, c, cfg)
	kit.NewGate().Handle(w)
	return w
}
