package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"

	"github.com/jackc/pgx/v5"
)

// BenchmarkScheduleLatency reports how long after its tick a run exists, for 20 schedules of every second beside a
// coordinator whose interval never ends.
func BenchmarkScheduleLatency(b *testing.B) {
	c, pool := benchClient(b, 10)
	k := kit.NewCoordinator(b, c, kagzi.CoordinatorConfig{Interval: time.Hour})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	for i := range 20 {
		if err := c.Schedule(ctx, kagzi.Schedule{
			Name: fmt.Sprint("s", i), Every: time.Second,
			Run: kit.Report.With(""),
		}); err != nil {
			b.Fatal(err)
		}
	}
	<-time.After(10 * time.Second)
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	late := queryAll[float64](b, pool, `SELECT extract(epoch FROM created_at - fire_at)::float8 * 1000
		FROM kagzi.workflow_runs WHERE fire_at IS NOT NULL AND schedule_id IS NOT NULL`)
	slices.Sort(late)
	b.ReportMetric(late[len(late)/2], "ms-p50")
	b.ReportMetric(late[len(late)*99/100], "ms-p99")
	b.ReportMetric(late[len(late)-1], "ms-max")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkThousandSchedules reports how long it takes to fire a thousand schedules that are due at once.
func BenchmarkThousandSchedules(b *testing.B) {
	pool := benchPool(b, 10)
	c := kit.NewClientWith(b, pool, kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	err := pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
		for i := range 1000 {
			if err := c.Schedule(b.Context(), kagzi.Schedule{
				Name: fmt.Sprint("s", i), Every: time.Hour,
				Run: kit.Report.With(""),
			}, kagzi.InTx(tx)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	benchPasses(b.Context(), b, c, func(p testhook.Passes) {
		for b.Loop() {
			b.StopTimer()
			if _, err := pool.Exec(b.Context(), `UPDATE kagzi.schedules SET cursor_at = now() - interval '1 hour',
				next_at = now() WHERE NOT paused`); err != nil {
				b.Fatal(err)
			}
			if _, err := pool.Exec(b.Context(), `UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 hour'
				WHERE schedule_id IS NOT NULL`); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if _, err := p.FireSchedules(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.StopTimer()
	if n := queryAll[int](b, pool, `SELECT count(*)::int FROM kagzi.workflow_runs
		WHERE schedule_id IS NOT NULL`)[0]; n != 1000*b.N {
		b.Fatalf("%d runs of %d", n, 1000*b.N)
	}
}

func queryAll[T any](b *testing.B, pool *pgxpool.Pool, sql string) []T {
	b.Helper()
	rows, _ := pool.Query(context.Background(), sql) // the error comes with the rows
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		b.Fatal(err)
	}
	return out
}
