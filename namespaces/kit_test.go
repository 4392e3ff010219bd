package namespaces

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

// run runs a worker of all namespaces until the test ends, or stop is called.
func run(t *testing.T, pool *pgxpool.Pool, cfg Config) (w *Worker, stop func()) {
	t.Helper()
	if cfg.Client.Logger == nil {
		cfg.Client.Logger = testlog.New(t)
	}
	if cfg.Every == 0 {
		cfg.Every = 50 * time.Millisecond
	}
	w, err := NewWorker(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return w, stop
}

// elsewhere returns a client of another process.
func elsewhere(t *testing.T, pool *pgxpool.Pool, namespace string) *kagzi.Client {
	return kit.NewClientWith(t, pool, kagzi.ClientConfig{Namespace: namespace})
}

// ok fails the test at once if there is an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startOne starts a run.
func startOne(t *testing.T, c *kagzi.Client, call kagzi.Call, opts ...kagzi.StartOption) kagzi.RunID {
	t.Helper()
	started, err := c.StartMany(t.Context(), []kagzi.Call{call}, opts...)
	ok(t, err)
	return started[0].ID
}

// awaitStatus waits until the run has the status.
func awaitStatus(t *testing.T, c *kagzi.Client, id kagzi.RunID, status kagzi.Status) {
	t.Helper()
	await.True(t, fmt.Sprintf("run %s is %s", id, status), func() bool {
		info, err := c.Get(t.Context(), id)
		return err == nil && info.Status == status
	})
}
