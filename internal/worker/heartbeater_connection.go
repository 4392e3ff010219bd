package worker

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// pingInterval is how often the connection is tested while runs are under way, and how long each test waits for the
// answer. The last third of Grace remains to replace the connection.
func (h *heartbeater) pingInterval() time.Duration { return h.cfg.Grace / 3 }

// LeastGrace is the shortest Grace: in less time a worker cannot replace a connection.
const LeastGrace = 1500 * time.Millisecond

// connectionLost notes that the connection is lost: since the server was last known to have it, or since a third of
// Grace ago if it was not tested meanwhile. If the server is to blame, it notes nothing: only a server that had the
// connection, and takes writes, can declare the worker dead. See doc_leases.go.
func (h *heartbeater) connectionLost(err error) {
	if serverDown(err) {
		h.Standing.ForgetLoss()
	} else {
		h.Standing.ConnectionLost(time.Now().Add(-h.pingInterval()))
	}
	h.setFence()
}

// serverDown reports whether no server listens at any of the server's addresses, or the server is starting, stopping or
// read-only.
func serverDown(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *pgconn.PgError:
		return e.Code == "57P03" || e.Code == "25006"
	case interface{ Unwrap() []error }:
		return len(e.Unwrap()) > 0 && !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !serverDown(err) })
	case interface{ Unwrap() error }:
		return serverDown(e.Unwrap())
	}
	// see target_session_attrs
	return err == syscall.ECONNREFUSED || err == pgconn.ErrReadOnlyConnection || err == pgconn.ErrStandbyConnection
}

// wait returns at the time of the next heartbeat. It returns earlier if a heartbeat is requested, if stop is closed, or
// if the connection is lost, which it reports. It reads from the connection all the time. While runs are under way it
// also pings the server, because the server's end may be gone without a sign of it.
func (h *heartbeater) wait(stop chan struct{}, next time.Time) (lost bool) {
	ctx, cancel := context.WithDeadline(context.Background(), next)
	defer cancel()
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	asked.Go(func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-stop:
		case <-h.Heartbeats:
		}
	})
	for {
		if h.conn == nil || h.conn.IsClosed() {
			<-ctx.Done()
			return false
		}
		// An interrupted wait leaves the connection intact. Nothing is listened for, so only an error or the time ends
		// the wait.
		quiet, cancel := context.WithTimeout(ctx, h.pingInterval())
		err := h.conn.PgConn().WaitForNotification(quiet)
		over := quiet.Err() != nil
		cancel()
		if h.conn.IsClosed() || err != nil && !over {
			h.connectionLost(err)
			h.close()
			return true
		}
		if over && !h.answers() {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// answers reports whether the server answers over the connection. It asks only if the fleet watches the connection and
// runs are under way.
func (h *heartbeater) answers() bool {
	if n, _ := h.roster.count(); n == 0 || h.backend == (store.Backend{}) || h.Standing.Grace() == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.pingInterval())
	defer cancel()
	sent := time.Now()
	err := h.conn.Ping(ctx)
	if err != nil {
		h.connectionLost(err)
		h.close()
		return false
	}
	h.Standing.Hear(sent)
	return true
}

// patience is how long a heartbeat waits for each of its answers: a sixth of StaleAfter, because the worker gives its
// runs up after two thirds without one, or as long as a ping does.
func (h *heartbeater) patience() time.Duration {
	return max(h.cfg.StaleAfter/6, min(h.cfg.Grace, h.cfg.StaleAfter)/3, LeastGrace/3)
}

// dbOf returns conn, or a pool if conn is nil.
func (h *heartbeater) dbOf(conn *pgx.Conn) pg.DB {
	switch {
	case conn != nil:
		return conn
	case h.cfg.Heartbeats != nil:
		return h.cfg.Heartbeats
	}
	return h.Store.Pool()
}

// ask calls f, which sends statements over conn, or over the pool if conn is nil, and returns when they are answered.
// An answer over conn proves that the server has it.
func (h *heartbeater) ask(conn *pgx.Conn, f func(context.Context, pg.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), h.patience())
	defer cancel()
	over := h.watchConnection()
	sent := time.Now()
	err := f(ctx, h.dbOf(conn))
	over()
	switch {
	case conn != nil && conn.IsClosed() || serverDown(err):
		h.connectionLost(err)
	case conn != nil && err == nil:
		h.Standing.Hear(sent)
	}
	return err
}

// watchConnection asks the server, while a statement takes long, whether it still has the connection over which that
// was sent: the statement may wait for the disk, or the path may be lost. The caller calls over when the statement has
// ended.
func (h *heartbeater) watchConnection() (over func()) {
	backend := h.backend
	if backend == (store.Backend{}) || h.Standing.Grace() == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(h.pingInterval()):
			}
			sent := time.Now()
			there, err := h.hasConnection(ctx, backend)
			switch {
			case ctx.Err() != nil:
				return
			case there:
				h.Standing.Hear(sent)
			case pg.Classify(err) != pg.ClassBusy:
				h.connectionLost(err)
				return
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// hasConnection asks the server, over another connection, whether it has the connection of b.
func (h *heartbeater) hasConnection(ctx context.Context, b store.Backend) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, h.pingInterval())
	defer cancel()
	conn, err := store.Connect(ctx, h.Store.Pool())
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	return h.Store.Workers.HasBackend(ctx, conn, b)
}

// close closes the connection, if there is one.
func (h *heartbeater) close() {
	if h.conn == nil {
		return
	}
	closeSoon(h.conn)
	h.conn, h.backend = nil, store.Backend{}
}
