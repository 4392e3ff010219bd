package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/namespaces"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

// serveBoth serves the namespaces of both databases, or moves one of them.
func (p *process) serveBoth(ctx context.Context) error {
	pools := map[string]*pgxpool.Pool{}
	for i, dsn := range fleet.DSNs(p.spec.DSN) {
		pool, err := p.pool(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		pools[fleet.Databases[i]] = pool
	}
	client := kagzi.ClientConfig{RunEvents: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if p.spec.Move != nil {
		return move(ctx, pools, client, *p.spec.Move)
	}
	route := func(namespace string) string { return fleet.Route(filepath.Dir(p.spec.Ledger), namespace) }
	both, err := namespaces.NewDatabases(pools, route, namespaces.Config{
		Client: client, Worker: p.spec.Config, Every: 200 * time.Millisecond, Idle: 2 * time.Second,
		Handle: func(w *kagzi.Worker, _ *kagzi.Client) error { p.register(w); return nil },
	})
	if err != nil {
		return err
	}
	return p.watched(ctx, both.Run)
}

// move moves a namespace, or cancels that.
func move(ctx context.Context, pools map[string]*pgxpool.Pool, cfg kagzi.ClientConfig, m fleet.Move) error {
	cfg.Namespace = m.Namespace
	from, err := kagzi.NewClient(pools[fleet.Databases[m.From]], cfg)
	if err != nil {
		return err
	}
	to, err := kagzi.NewClient(pools[fleet.Databases[m.To]], cfg)
	if err != nil {
		return err
	}
	if m.Cancel {
		return namespaces.CancelMove(ctx, from, to)
	}
	moved, err := namespaces.Move(ctx, from, to, namespaces.MoveConfig{Wait: m.Wait})
	if err == nil {
		cfg.Logger.Info("moved", "namespace", m.Namespace, "rows", moved.Rows, "away", moved.Away)
	}
	return err
}

// statements is a tracer of connections that calls reach before each statement.
type statements struct{ reach func(point string) }

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.reach("statement")
	return ctx
}

func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
