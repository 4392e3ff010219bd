package kagzi

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkScheduleLatency reports how long after its tick a run exists, for 20 schedules of every second beside a
// coordinator whose interval never ends.
func BenchmarkScheduleLatency(b *testing.B) {
	c := benchClient(b, 10)
	k := newTestCoordinator(b, c, CoordinatorConfig{Interval: time.Hour})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	for i := range 20 {
		if err := c.Schedule(ctx, Schedule{Name: fmt.Sprint("s", i), Every: time.Second, Run: report.With("")}); err != nil {
			b.Fatal(err)
		}
	}
	<-time.After(10 * time.Second)
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	late := queryAll[float64](b, c, `SELECT extract(epoch FROM created_at - fire_at)::float8 * 1000 FROM kagzi.workflow_runs WHERE fire_at IS NOT NULL AND schedule_id IS NOT NULL`)
	slices.Sort(late)
	b.ReportMetric(late[len(late)/2], "ms-p50")
	b.ReportMetric(late[len(late)*99/100], "ms-p99")
	b.ReportMetric(late[len(late)-1], "ms-max")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkThousandSchedules reports how long it takes to fire a thousand schedules that are due at once.
func BenchmarkThousandSchedules(b *testing.B) {
	c := benchClient(b, 10)
	c.cfg.Logger = slog.New(slog.DiscardHandler)
	k := newTestCoordinator(b, c, CoordinatorConfig{})
	err := pgx.BeginFunc(b.Context(), c.store.Pool(), func(tx pgx.Tx) error {
		for i := range 1000 {
			if err := c.Schedule(b.Context(), Schedule{Name: fmt.Sprint("s", i), Every: time.Hour, Run: report.With("")}, InTx(tx)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for back := 1; b.Loop(); back++ {
		b.StopTimer()
		if _, err := c.store.Pool().Exec(b.Context(), `UPDATE kagzi.schedules SET cursor_at = now() - interval '1 hour', next_at = now() WHERE NOT paused`); err != nil {
			b.Fatal(err)
		}
		if _, err := c.store.Pool().Exec(b.Context(), `UPDATE kagzi.workflow_runs SET fire_at = fire_at - interval '1 hour' WHERE schedule_id IS NOT NULL`); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := k.house.FireSchedules(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if n := queryAll[int](b, c, `SELECT count(*)::int FROM kagzi.workflow_runs WHERE schedule_id IS NOT NULL`)[0]; n != 1000*b.N {
		b.Fatalf("%d runs of %d", n, 1000*b.N)
	}
}

func queryAll[T any](b *testing.B, c *Client, sql string) []T {
	b.Helper()
	rows, _ := c.store.Pool().Query(context.Background(), sql) // the error comes with the rows
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		b.Fatal(err)
	}
	return out
}
