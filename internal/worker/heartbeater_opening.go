package worker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// An opening is the heartbeater's next connection while it is being opened. It goes on when a heartbeat has stopped
// waiting for it: on a loaded machine a connection takes longer to open than a heartbeat may be late. The heartbeater
// uses it whenever it is there.
type opening struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the fields below are set

	conn    *pgx.Conn
	backend store.Backend
	err     error
}

// longestOpening bounds the opening of a connection if Grace is shorter, and the check of the schema at a registration.
// It is the time that every statement has.
const longestOpening = 10 * time.Second

// open begins to open a connection, unless that is under way. When the connection is there, the session sends a
// heartbeat.
func (h *heartbeater) open() *opening {
	if h.opening != nil {
		return h.opening
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(h.cfg.Grace, longestOpening))
	o := &opening{cancel: cancel, done: make(chan struct{})}
	h.opening = o
	go func() { // abandonOpening waits for it
		defer close(o.done)
		defer cancel()
		o.conn, o.backend, o.err = h.dial(ctx)
		goroutine.Signal(h.Heartbeats)
	}()
	return o
}

// dial opens a connection, has the server prepare the statements of a heartbeat, and says which backend serves it. It
// is the only place that prepares them: a heartbeat that had to would take two round trips for each, and lose the
// connection if that is too long.
func (h *heartbeater) dial(ctx context.Context) (*pgx.Conn, store.Backend, error) {
	conn, err := store.Connect(ctx, h.Store.Pool(), func(cfg *pgx.ConnConfig) {
		// The wait for the next heartbeat ends by a deadline on this connection. A cancel request, which a pool may be
		// configured to send instead, could hit the heartbeat.
		cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
		}
	})
	if err != nil {
		return nil, store.Backend{}, err
	}
	backend, err := h.Store.Workers.PrepareHeartbeats(ctx, conn)
	if err != nil {
		closeSoon(conn)
		return nil, store.Backend{}, err
	}
	return conn, backend, nil
}

// connection returns the heartbeater's connection. Without one it opens one, and waits for it until ctx ends.
func (h *heartbeater) connection(ctx context.Context) (*pgx.Conn, error) {
	if h.conn != nil && !h.conn.IsClosed() {
		return h.conn, nil
	}
	h.backend = store.Backend{}
	o := h.open()
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-h.Heartbeats: // the caller sends the heartbeat that the opening has asked for
	default:
	}
	h.opening = nil
	h.conn, h.backend = o.conn, o.backend
	return o.conn, o.err
}

// connectionSoon is connection for a heartbeat, which waits for a third of Grace at most. Then it goes over a
// connection of the pool, before others may take the worker for dead. It is nil if heartbeats go over a pool.
func (h *heartbeater) connectionSoon() (*pgx.Conn, error) {
	if h.cfg.Heartbeats != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(h.pingInterval(), h.cfg.StaleAfter/6))
	defer cancel()
	return h.connection(ctx)
}

// abandonOpening ends the opening that is under way, if there is one.
func (h *heartbeater) abandonOpening() {
	if h.opening == nil {
		return
	}
	h.opening.cancel()
	<-h.opening.done
	if conn := h.opening.conn; conn != nil {
		closeSoon(conn)
	}
	h.opening = nil
}

// closeSoon closes a connection within a second.
func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
