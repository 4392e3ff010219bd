package kagzi

import (
	"testing"
)

// runWorker runs w until it ends by itself: what Run returns is sent.
func runWorker(t *testing.T, w *Worker) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	return done
}

func only(t *testing.T, c *Client, f WorkerFilter) WorkerInfo {
	t.Helper()
	page, total, err := c.Workers(t.Context(), f)
	if err != nil || total != 1 || len(page) != 1 {
		t.Fatalf("workers %+v, %d in all, %v; want one", page, total, err)
	}
	return page[0]
}
