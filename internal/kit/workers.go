package kit

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// RunWorker runs w and returns a channel that receives the result of Run. The test ends w, or w ends by itself.
func RunWorker(t *testing.T, w *kagzi.Worker) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	return done
}

// Only returns the worker that f selects, and fails the test if f selects none or several.
func Only(t *testing.T, c *kagzi.Client, f admin.WorkerFilter) admin.WorkerInfo {
	t.Helper()
	page, total, err := admin.New(c).Workers.List(t.Context(), f)
	if err != nil || total != 1 || len(page) != 1 {
		t.Fatalf("workers %+v, %d in all, %v; want one", page, total, err)
	}
	return page[0]
}
