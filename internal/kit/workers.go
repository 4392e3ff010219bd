package kit

import (
	"testing"

	"github.com/kagzi/kagzi"
)

// RunWorker runs w until it ends by itself: what Run returns is sent.
func RunWorker(t *testing.T, w *kagzi.Worker) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	return done
}

// Only returns the one worker that f chooses.
func Only(t *testing.T, c *kagzi.Client, f kagzi.WorkerFilter) kagzi.WorkerInfo {
	t.Helper()
	page, total, err := c.Workers(t.Context(), f)
	if err != nil || total != 1 || len(page) != 1 {
		t.Fatalf("workers %+v, %d in all, %v; want one", page, total, err)
	}
	return page[0]
}
