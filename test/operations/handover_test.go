package operations

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A worker that has no free slot, or drains, leaves the slot that its run gives up to other workers, which do not poll
// here.
func TestSlotsAreLeftToOtherWorkers(t *testing.T) {
	t.Parallel()
	for name, drains := range map[string]bool{"NoFreeSlot": false, "Drain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			ctx := kit.Context(t)
			// so that no coordinator looks at all keys
			dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running, settled)
				VALUES ('default', 'default', 1, true)`)
			blocking, keyed := kagzi.Define[int, int]("blocking"), kagzi.Define[int, string]("keyed")
			began, release, end := make(chan struct{}, 3), make(chan struct{}), make(chan struct{})
			worker := func(name string) (w *kagzi.Worker) {
				w = kit.NewWorker(t, c, kagzi.WorkerConfig{
					MaxConcurrent: 1, PollInterval: time.Hour,
					DrainTimeout: time.Minute,
				})
				kagzi.Handle(w, keyed, func(_ kagzi.Context, n int) (string, error) {
					if n == 0 {
						began <- struct{}{}
						await.Opened(t, release)
					}
					return name, nil
				})
				return w
			}
			one := worker("one")
			kagzi.Handle(one, blocking, func(kagzi.Context, int) (int, error) {
				began <- struct{}{}
				await.Opened(t, end)
				return 0, nil
			})
			stop := kit.StartWorker(t, one)
			first, err := kagzi.Start(ctx, c, keyed, 0, kagzi.Key("a"))
			if err != nil {
				t.Fatal(err)
			}
			await.Receive(t, began)
			kit.StartWorker(t, worker("two"))
			second, err := kagzi.Start(ctx, c, keyed, 1, kagzi.Key("a"))
			if err != nil {
				t.Fatal(err)
			}
			await.True(t, "a look of worker two at the key", func() bool {
				return dbtest.QueryOne[int](t, db.Pool, `SELECT (SELECT count(*) FROM kagzi.workers
					WHERE status = 'ONLINE') - (SELECT count(*) FROM kagzi.key_changes)`) == 2
			})
			ended := make(chan error, 1)
			if drains {
				go func() { ended <- stop() }()
			} else {
				kit.StartRuns(t, c, blocking, 1)
				defer func() { ended <- stop() }()
				defer close(end)
			}
			close(release)
			for run, want := range map[*kagzi.Run[string]]string{first: "one", second: "two"} {
				if got, err := run.Result(ctx); err != nil || got != want {
					t.Errorf("executed by %s, want %s; error %v", got, want, err)
				}
			}
			if drains {
				if err := await.Receive(t, ended); err != nil {
					t.Error(err)
				}
				if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.worker_events
					WHERE event = 'LOST'`); n > 0 {
					t.Error("the worker was declared dead, because it did not leave its slot")
				}
			}
		})
	}
}

// A queue with a limit and runs without keys: a worker that drains, or is busy with another queue, tells others of the
// free slot.
func TestSlotsOfAQueueAreLeftToOtherWorkers(t *testing.T) {
	t.Parallel()
	for name, drains := range map[string]bool{"NoFreeSlot": false, "Drain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			ctx := kit.Context(t)
			dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, settled)
				VALUES ('limited', 'default', 1, true)`)
			limited, blocking := kagzi.Define[int, string]("limited"), kagzi.Define[int, int]("blocking")
			began, release, end := make(chan struct{}, 3), make(chan struct{}), make(chan struct{})
			worker := func(name string, queues map[string]int) *kagzi.Worker {
				own := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("application_name", name)))
				cfg := kagzi.WorkerConfig{
					Queues: queues, MaxConcurrent: 1, PollInterval: time.Hour,
					DrainTimeout: time.Minute,
				}
				cfg.NoCoordinator = name == "two" // a coordinator's connections are never quiet
				w := kit.NewWorker(t, own, cfg)
				kagzi.Handle(w, limited, func(_ kagzi.Context, n int) (string, error) {
					if n == 0 {
						began <- struct{}{}
						await.Opened(t, release)
					}
					return name, nil
				})
				kagzi.Handle(w, blocking, func(kagzi.Context, int) (int, error) {
					await.Opened(t, end)
					return 0, nil
				})
				return w
			}
			stop := kit.StartWorker(t, worker("one", map[string]int{"limited": 1, "default": 1}))
			first, err := kagzi.Start(ctx, c, limited, 0, kagzi.Queue("limited"))
			if err != nil {
				t.Fatal(err)
			}
			await.Receive(t, began)
			kit.StartWorker(t, worker("two", map[string]int{"limited": 1}))
			await.True(t, "two workers", func() bool {
				return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers
					WHERE status = 'ONLINE'`) == 2
			})
			second, err := kagzi.Start(ctx, c, limited, 1, kagzi.Queue("limited"))
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			if drains {
				go func() { ended <- stop() }()
				await.True(t, "the drain", func() bool {
					return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers
						WHERE status = 'DRAINING'`) == 1
				})
			} else {
				for range 3 {
					kit.StartRuns(t, c, blocking, 1)
				}
				defer func() { ended <- stop() }()
				defer close(end)
			}
			await.True(t, "worker two waits", func() bool {
				return dbtest.QueryOne[bool](t, db.Pool,
					`SELECT max(state_change) < clock_timestamp() - interval '200 ms' FROM pg_stat_activity
						WHERE datname = current_database() AND application_name = 'two'`)
			})
			close(release)
			for run, want := range map[*kagzi.Run[string]]string{first: "one", second: "two"} {
				if got, err := run.Result(ctx); err != nil || got != want {
					t.Errorf("executed by %s, want %s; error %v", got, want, err)
				}
			}
			if drains {
				if err := await.Receive(t, ended); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
