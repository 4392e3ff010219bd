package housekeeping

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	week  = 7 * 24 * time.Hour
	month = 30 * 24 * time.Hour
)

// newCoordinator returns a coordinator with the defaults of the API, after change. Its log is shown if the test fails.
func newCoordinator(t testing.TB, pool *pgxpool.Pool, change ...func(*Config)) *Coordinator {
	t.Helper()
	cfg := Config{
		Store: store.New(pool, "default"), Log: testlog.New(t),
		Interval: 5 * time.Second, Batch: 100, MaxRuns: 1000, StaleAfter: 30 * time.Second, Grace: 3 * time.Second,
		Keep: Keep{Runs: store.Retention{Completed: week, Failed: month}},
	}
	for _, f := range change {
		f(&cfg)
	}
	cfg.Hints = hints.New(cfg.Store, cfg.Log, func(context.Context) error { return nil })
	cfg.Outage = outage.New(cfg.Log, cfg.Hints.Reconnect)
	t.Cleanup(cfg.Hints.Flush)
	return New(cfg)
}
