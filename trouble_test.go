package kagzi

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestOutagesAreToldNowAndThen shows that an outage which is met four times a second is told at once, then once a minute
// with a number, and that its end is told; and that one which comes and goes fills no log either.
func TestOutagesAreToldNowAndThen(t *testing.T) {
	t.Parallel()
	for _, flapping := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logged := &logBuffer{}
			over := 0
			o := &outage{log: slog.New(slog.NewTextHandler(logged, nil)), after: func() { over++ }}
			o.end() // of nothing
			for range 6 * 60 * 4 {
				o.begin(errors.New("oops"))
				if !o.underWay() {
					t.Fatal("it is not under way")
				}
				time.Sleep(125 * time.Millisecond)
				if flapping {
					o.end()
				}
				time.Sleep(125 * time.Millisecond)
			}
			o.end()
			o.end()
			text := logged.String()
			begins, times, ends := strings.Count(text, "does not answer"), strings.Count(text, "times=240"), strings.Count(text, "kagzi: the database is back")
			if want := map[bool]int{true: 6, false: 1}[flapping]; begins != 6 || times != 5 || ends != want {
				t.Errorf("flapping %t: told %d times that it begins, %d times how often, %d times that it is over; want 6, 5 and %d:\n%s", flapping, begins, times, ends, want, text)
			}
			if want := map[bool]int{true: 6 * 60 * 4, false: 1}[flapping]; over != want {
				t.Errorf("flapping %t: its end was acted upon %d times, want %d", flapping, over, want)
			}
		})
	}
}

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
			s := newSession(newTestWorker(t, c, WorkerConfig{}))
			s.databaseTrouble(context.DeadlineExceeded)
			s.outage.end()
		},
		"Coordinator": func(t *testing.T, c *Client) {
			k := newTestCoordinator(t, c, CoordinatorConfig{})
			k.outage.begin(context.DeadlineExceeded)
			k.outage.end()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestClient(t, openPool(t, db.DSN, 6))
			c.hub.backoff = time.Hour
			defer c.hub.acquire()()
			waitFor(t, "the client listens", c.hub.listening)
			execSQL(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'`)
			waitFor(t, "the listener has lost its connection", func() bool { return !c.hub.listening() })
			end(t, c)
			waitFor(t, "the client listens again", c.hub.listening)
		})
	}
}
