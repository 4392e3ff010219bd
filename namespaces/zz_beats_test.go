package namespaces

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
)

// A hundred namespaces have long steps, and the server is a little away. No worker looks dead.
func TestZZHeartbeatsOfManyNamespaces(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	cfg, err := pgxpool.ParseConfig(proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 20
	behind, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	logged := &testlog.Buffer{}
	hold := kagzi.DefineDo[int]("hold")
	var calls atomic.Int64
	release := make(chan struct{})
	w, stop := run(t, behind, Config{
		Client: kagzi.ClientConfig{Logger: logged.Logger()},
		Worker: kagzi.WorkerConfig{StaleAfter: 6 * time.Second, MaxConcurrent: 200, DrainTimeout: time.Second},
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, hold, func(ctx kagzi.Context, _ int) error {
				return kagzi.Do(ctx, "hold", func(ctx context.Context) error {
					calls.Add(1)
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			})
			return nil
		},
	})
	const n = 100
	for i := range n {
		if _, err := kagzi.Start(t.Context(), elsewhere(t, db.Pool, fmt.Sprint("t", i)), hold, 1); err != nil {
			t.Fatal(err)
		}
	}
	await.TrueWithin(t, 60*time.Second, "all hold", func() bool { return calls.Load() >= n && len(w.Active()) == n })
	before := strings.Count(logged.String(), "may take this worker for dead")
	t.Log("before:", before, "calls", calls.Load())
	i := proxy.Impose(pgproxy.Trouble{Delay: 20 * time.Millisecond})
	time.Sleep(20 * time.Second)
	i.Lift()
	dead := strings.Count(logged.String(), "may take this worker for dead")
	t.Log("dead:", dead, "calls", calls.Load(), "lost", strings.Count(logged.String(), "worker is lost"))
	if dead > before || calls.Load() > n {
		t.Errorf("%d workers gave up their runs, %d calls", dead-before, calls.Load())
	}
	close(release)
	stop()
}
