package kagzi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestCoordinatorsErrorIsToldOnce has a loop of the coordinator fail again and again: that is told once, and once that it is
// over.
func TestCoordinatorsErrorIsToldOnce(t *testing.T) {
	t.Parallel()
	c, logged := loggedClient(t, unreachable(t))
	k := newTestCoordinator(t, c, CoordinatorConfig{Interval: time.Millisecond})
	ctx, stop := context.WithCancelCause(testContext(t))
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
	for _, line := range []string{"the coordinator met an error and goes on", "the coordinator meets that error no more"} {
		if n := strings.Count(logged.String(), line); n != 1 {
			t.Errorf("told %d times: %s\n%s", n, line, logged)
		}
	}
	logged.wantLine(t, "met an error", "do this", "no such table")
}

// TestEndOfAnOutageLetsTheListenerConnect ends an outage while the listener has long to wait for its next attempt.
func TestEndOfAnOutageLetsTheListenerConnect(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	for name, end := range map[string]func(*testing.T, *Client){
		"Worker": func(t *testing.T, c *Client) {
			s := newSession(newTestWorker(t, c, WorkerConfig{}).session())
			s.databaseTrouble(context.DeadlineExceeded)
			s.outage.End()
		},
		"Coordinator": func(t *testing.T, c *Client) {
			k := newTestCoordinator(t, c, CoordinatorConfig{})
			k.outage.Begin(context.DeadlineExceeded)
			k.outage.End()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestClient(t, openPool(t, db.DSN, 6))
			c.hints.ListenBackoff = time.Hour
			defer c.hints.Listen()()
			waitFor(t, "the client listens", c.hints.Listening)
			execSQL(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'`)
			waitFor(t, "the listener has lost its connection", func() bool { return !c.hints.Listening() })
			end(t, c)
			waitFor(t, "the client listens again", c.hints.Listening)
		})
	}
}
