package housekeeping

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/testlog"
)

// A pass that fails again and again is logged once when it begins to fail, and once when it succeeds again.
func TestErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	logged := &testlog.Buffer{}
	k := newCoordinator(t, dbtest.Pool(t), func(cfg *Config) {
		cfg.Interval, cfg.Log = time.Millisecond, logged.Logger()
	})
	ctx, stop := context.WithCancelCause(t.Context())
	passes := 0
	k.repeat(ctx, stop, "do this", nil, func(context.Context) (time.Duration, error) {
		switch passes++; passes {
		case 20:
			return 0, nil
		case 21:
			stop(nil)
		}
		return 0, errors.New("no such table")
	})
	for _, line := range []string{"the coordinator met an error and tries again", "the coordinator no longer meets " +
		"that error"} {
		if n := strings.Count(logged.String(), line); n != 1 {
			t.Errorf("logged %d times: %s\n%s", n, line, logged)
		}
	}
	logged.WantLine(t, "met an error", "do this", "no such table")
}

// A coordinator may run again after it has stopped.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	k := newCoordinator(t, pool)
	for range 2 {
		addOld(t, pool, "old", "COMPLETED", 40, 1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		await.True(t, "the run is deleted", func() bool { return left(t, pool) == "none" })
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Run returns when the pool is closed.
func TestRunEndsWithThePool(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN)
	pool.Close()
	if err := newCoordinator(t, pool).Run(t.Context()); !pg.Closed(err) {
		t.Errorf("error %v, want that of a closed pool", err)
	}
}
