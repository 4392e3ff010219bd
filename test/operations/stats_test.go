//go:build unix

package operations_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Statistics follow a worker: what it runs, what waits, what it has failed and how fast it is.
func TestStats(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	cfg := kit.Quick
	cfg.MaxConcurrent, cfg.Queues = 3, map[string]int{"default": 1, "other": 1}
	w := kit.NewWorker(t, c, cfg)
	begun, open := make(chan struct{}, 10), make(chan struct{})
	handleCounted(w, begun, open)
	kit.StartLocal(t, w)
	for range 2 {
		if _, err := kagzi.Start(t.Context(), c, counted, "complete"); err != nil {
			t.Fatal(err)
		}
		await.Receive(t, begun)
	}
	if _, err := kagzi.Start(t.Context(), c, counted, "fail"); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, begun)
	if _, err := kagzi.Start(t.Context(), c, counted, "complete", kagzi.Delay(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := kagzi.Start(t.Context(), c, counted, "complete", kagzi.Queue("nobody's")); err != nil {
		t.Fatal(err)
	}
	stats := func() admin.Stats {
		st, err := admin.New(c).Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	of := func(st admin.Stats, queue string) admin.WorkflowStats {
		for _, w := range st.Workflows {
			if w.Queue == queue && w.Workflow == "counted" {
				return w
			}
		}
		return admin.WorkflowStats{}
	}
	await.True(t, "the runs are counted", func() bool {
		st := stats()
		served, waiting := of(st, "default"), of(st, "nobody's")
		return st.Namespace == "default" && !st.At.IsZero() && served.Running == 3 && served.Delayed == 1 &&
			served.Due == 0 && served.DueSince.IsZero() &&
			waiting.Due == 1 && !waiting.DueSince.IsZero() && st.Rates.Starts > 0
	})
	await.True(t, "a heartbeat reports the slots", func() bool {
		st := stats()
		return st.Workers.Live == 1 && st.Workers.Active == 3 && st.Workers.Most == 3 &&
			slices.Equal(st.Queues, []admin.QueueStats{
				{Queue: "default", Workers: 1, Slots: 3, Used: 3}, {Queue: "other", Workers: 1, Slots: 3, Used: 3},
			})
	})
	close(open)
	await.True(t, "the ends are counted", func() bool {
		st := stats()
		served := of(st, "default")
		return served.Running == 0 && len(served.Failed) == 1 && served.Failed[0].Kind == "unavailable" &&
			served.Failed[0].Runs == 1 &&
			st.Rates.Completed > 0 && st.Rates.Failed > 0 && st.Rates.Steps > st.Rates.Completed
	})
}

// The query goes on for others when the caller leaves who has caused it.
func TestStatsOutliveTheirCaller(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(2)))
	lock := dbtest.Begin(t, db.Pool)
	if _, err := lock.Exec(t.Context(), `LOCK TABLE kagzi.pauses IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*)::int FROM pg_locks WHERE NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	}
	ctx, leave := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	ask := func(ctx context.Context) {
		_, err := admin.New(c).Stats(ctx)
		errs <- err
	}
	go ask(ctx)
	await.True(t, "the query waits", func() bool { return waiting() == 1 })
	leave()
	if err := await.Receive(t, errs); !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	if n := waiting(); n != 1 {
		t.Errorf("%d queries wait after that, want 1", n)
	}
	go ask(t.Context())
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, errs); err != nil {
		t.Errorf("who stayed got %v", err)
	}
}
