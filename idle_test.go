package kagzi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A statementCounter counts the statements of an idle fleet, except those that begin, set up and commit a transaction.
// It starts again whenever another coordinator works or a worker polls.
type statementCounter struct {
	mu         sync.Mutex // guards the fields below
	leader     string     // whose notification was the last
	leads      int        // its notifications
	checks     int        // of the fleet, by all coordinators
	polls      int        // claims
	statements int        // all of them
	since      time.Time  // when it started again
}

func (c *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceQueryStartData,
) context.Context {
	return ctx
}
func (c *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceBatchStartData,
) context.Context {
	return ctx
}
func (c *statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *statementCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	c.count(q.SQL)
}

func (c *statementCounter) count(sql string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.HasPrefix(sql, "BEGIN"), sql == "COMMIT", strings.Contains(sql, "set_config"):
		return
	case strings.Contains(sql, "pg_stat_get_backend_idset"):
		c.checks++
	case strings.Contains(sql, "THEN 'PENDING' ELSE 'RUNNING' END"):
		c.polls++
	}
	c.statements++
	if c.checks > c.leads+2 || c.polls > 0 {
		c.restart()
	}
}

func (c *statementCounter) restart() {
	c.leads, c.checks, c.polls, c.statements, c.since = 0, 0, 0, 0, time.Now()
}

// lead notes a notification of a coordinator that leads.
func (c *statementCounter) lead(t *testing.T, payload string) {
	var lead struct{ ID string }
	if err := json.Unmarshal([]byte(payload), &lead); err != nil || lead.ID == "" {
		t.Errorf("payload %q: %v", payload, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != lead.ID {
		c.restart()
	}
	c.leader = lead.ID
	c.leads++
}

// Of an idle fleet one coordinator works, no worker polls, and the statements are those of the heartbeats and of that
// coordinator. not beside other tests: workers whose claims take long look again after a second
func TestIdleFleetIsQuiet(t *testing.T) {
	const workers, queues, seconds = 10, 3, 8
	db := dbtest.Database(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	c := &statementCounter{}
	wf := kagzi.Define[struct{}, struct{}]("idle")
	for i := range workers {
		cfg := db.Pool.Config()
		cfg.MaxConns, cfg.ConnConfig.Tracer = 3, c
		own, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(own.Close)
		served := map[string]int{}
		for q := range queues {
			if i%2 == 0 || q == i%queues { // all of them, or one
				served[fmt.Sprint("queue-", q)] = 1
			}
		}
		w := kit.NewWorker(t, kit.NewClient(t, own), kagzi.WorkerConfig{
			Queues: served, PollInterval: 5 * time.Second,
			Coordinator: kagzi.CoordinatorConfig{KeepForever: true},
		})
		kagzi.Handle(w, wf, func(kagzi.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	conn := dbtest.Connect(t, db.DSN)
	if _, err := conn.Exec(ctx, `LISTEN kagzi_lead`); err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			c.lead(t, n.Payload)
		}
	})
	// One statement of each worker's heartbeat; four of the leader a second, and ten more in each Interval of five
	// seconds.
	most := func(seconds int) int { return workers*(seconds/10+2) + 4*(seconds+2) + 10*(seconds/5+2) }
	await.True(t, "for longer than a PollInterval one coordinator works, nobody polls, and few statements are sent",
		func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			if passed := time.Since(c.since); c.statements > most(int(passed.Seconds())) {
				t.Log(c.statements, "statements in", passed)
				c.restart()
			}
			return c.leads >= seconds
		})
}
