package kagzi

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

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
