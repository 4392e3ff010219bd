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
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

var greet = kagzi.Define[string, string]("greet")

// handleGreet handles greet, which says in which namespace it was executed.
func handleGreet(w *kagzi.Worker, c *kagzi.Client) error {
	kagzi.Handle(w, greet, func(_ kagzi.Context, name string) (string, error) {
		return "hello " + name + " of " + c.Namespace(), nil
	})
	return nil
}

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

// Runs of many namespaces are executed, each in its own, and namespaces without work have no worker afterwards.
func TestManyNamespaces(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	w, _ := run(t, pool, Config{Handle: handleGreet, Idle: 50 * time.Millisecond})
	var started []*kagzi.Run[string]
	for i := range 20 {
		c := elsewhere(t, pool, fmt.Sprint("tenant ", i))
		r, err := kagzi.Start(t.Context(), c, greet, "ada")
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, r)
	}
	for i, r := range started {
		if got, err := r.Result(t.Context()); err != nil || got != fmt.Sprint("hello ada of tenant ", i) {
			t.Errorf("%q, error %v", got, err)
		}
	}
	await.TrueWithin(t, 20*time.Second, "no namespace has a worker", func() bool { return len(w.Active()) == 0 })
}
