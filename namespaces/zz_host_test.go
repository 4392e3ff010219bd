package namespaces

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// The runs under way of a namespace that an operator drains count among MaxConcurrent.
func TestZZDrainExceedsMaxConcurrent(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	hold := kagzi.DefineDo[int]("hold")
	begun, release := make(chan string, 10), make(chan struct{})
	var running, most atomic.Int64
	run(t, pool, Config{
		Worker: kagzi.WorkerConfig{MaxConcurrent: 1},
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, hold, func(ctx kagzi.Context, _ int) error {
				return kagzi.Do(ctx, "hold", func(ctx context.Context) error {
					if now := running.Add(1); now > most.Load() {
						most.Store(now)
					}
					defer running.Add(-1)
					begun <- c.Namespace()
					select {
					case <-release:
					case <-ctx.Done():
					}
					return ctx.Err()
				})
			})
			return nil
		},
	})
	a := elsewhere(t, pool, "a")
	first, err := kagzi.Start(t.Context(), a, hold, 1)
	if err != nil {
		t.Fatal(err)
	}
	await.Receive(t, begun)
	second, err := kagzi.Start(t.Context(), elsewhere(t, pool, "b"), hold, 1)
	if err != nil {
		t.Fatal(err)
	}
	online, _, err := admin.New(a).Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"ONLINE"}})
	if err != nil || len(online) != 1 {
		t.Fatalf("%+v, error %v", online, err)
	}
	if err := admin.New(a).Workers.Drain(t.Context(), online[0].ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-time.After(4 * time.Second):
	}
	if n := most.Load(); n > 1 {
		t.Errorf("%d runs are under way at once, with one slot", n)
	}
	close(release)
	if _, err := first.Result(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := second.Result(t.Context()); err != nil {
		t.Error(err)
	}
}

// A run that is started in place while its namespace is stopped as idle is not stopped, and does not keep others
// waiting.
func TestZZStartRacesWithIdleStop(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	long := kagzi.DefineDo[int]("long")
	short := kagzi.DefineDo[int]("short")
	var calls atomic.Int64
	w, _ := run(t, pool, Config{
		Idle: 10 * time.Millisecond, Every: 10 * time.Millisecond,
		Worker: kagzi.WorkerConfig{DrainTimeout: 3 * time.Second},
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, short, func(ctx kagzi.Context, _ int) error { return nil })
			kagzi.HandleDo(w, long, func(ctx kagzi.Context, _ int) error {
				return kagzi.Do(ctx, "long", func(ctx context.Context) error {
					calls.Add(1)
					select {
					case <-time.After(5 * time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			})
			return nil
		},
	})
	const n = 40
	type both struct{ long, short *kagzi.Run[struct{}] }
	results := make(chan time.Duration, n)
	for i := range n {
		c, err := w.Client(fmt.Sprint("t", i))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if _, err := kagzi.Start(t.Context(), c, short, 1); err != nil {
				t.Error(err)
			}
			for !slices.Contains(w.Active(), c.Namespace()) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(60+3*i) * time.Millisecond)
			r, err := kagzi.Start(t.Context(), c, long, 1)
			if err != nil {
				t.Error(err)
				results <- 0
				return
			}
			began := time.Now()
			s, err := kagzi.Start(t.Context(), c, short, 1)
			if err == nil {
				_, err = s.Result(t.Context())
			}
			took := time.Since(began)
			if err == nil {
				_, err = r.Result(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			results <- took
		}()
	}
	var worst time.Duration
	for range n {
		worst = max(worst, <-results)
	}
	if calls.Load() > n {
		t.Errorf("%d calls of %d long steps; a short run took %v", calls.Load(), n, worst)
	}
}

// Serve may change its mind about a namespace that always has work.
func TestZZServeChangesItsMind(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	tick := kagzi.DefineDo[int]("tick")
	var no atomic.Bool
	var n atomic.Int64
	w, _ := run(t, pool, Config{
		Idle: 20 * time.Millisecond, Serve: func(string) bool { return !no.Load() },
		Handle: func(w *kagzi.Worker, c *kagzi.Client) error {
			kagzi.HandleDo(w, tick, func(ctx kagzi.Context, i int) error {
				n.Add(1)
				if err := kagzi.Sleep(ctx, "s", 100*time.Millisecond); err != nil {
					return err
				}
				return kagzi.Continue(ctx, i+1)
			})
			return nil
		},
	})
	if _, err := kagzi.Start(t.Context(), elsewhere(t, pool, "a"), tick, 1); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it goes", func() bool { return n.Load() > 3 })
	no.Store(true)
	await.TrueWithin(t, 5*time.Second, "the namespace is not served any more", func() bool {
		return len(w.Active()) == 0
	})
}
