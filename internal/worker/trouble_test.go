package worker_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestEndOfAnOutageLetsTheListenerConnect ends an outage while the listener pauses before its next attempt: it connects
// at once.
func TestEndOfAnOutageLetsTheListenerConnect(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	type runner interface{ Run(context.Context) error }
	for name, newRunner := range map[string]func(*testing.T, *kagzi.Client) runner{
		"Worker": func(t *testing.T, c *kagzi.Client) runner {
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{Heartbeat: 50 * time.Millisecond, NoCoordinator: true})
			kit.NewGate().Handle(w)
			return w
		},
		"Coordinator": func(t *testing.T, c *kagzi.Client) runner {
			return kit.NewCoordinator(t, c, kagzi.CoordinatorConfig{Interval: 50 * time.Millisecond})
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := pgxpool.ParseConfig(db.DSN)
			if err != nil {
				t.Fatal(err)
			}
			cfg.MaxConns = 6
			path := &path{dial: cfg.ConnConfig.DialFunc}
			cfg.ConnConfig.DialFunc = path.connect
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			c, logged := kit.LoggedClient(t, pool)
			h := configOf(t, idleWorker(t, c, kagzi.WorkerConfig{})).Hints
			h.ListenBackoff = time.Hour
			r := newRunner(t, c)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			defer func() {
				stop()
				if err := await.Receive(t, done); err != nil {
					t.Errorf("Run: %v", err)
				}
			}()
			await.True(t, "the client listens", h.Listening)
			path.cut()
			await.True(t, "the outage has begun, and the listener has lost its connection", func() bool {
				return logged.Has("the database does not answer") && !h.Listening()
			})
			pool.Reset() // otherwise the listener's probe might get a connection that was cut
			path.mend()
			await.True(t, "the client listens again", h.Listening)
		})
	}
}

// A path leads to a database. While it is cut, no connection exists.
type path struct {
	dial pgconn.DialFunc

	mu    sync.Mutex // guards the fields below
	isCut bool
	conns []net.Conn
}

func (p *path) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		return nil, errors.New("the test's database is away")
	}
	conn, err := p.dial(ctx, network, addr)
	if err == nil {
		p.conns = append(p.conns, conn)
	}
	return conn, err
}

func (p *path) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *path) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}
