package notify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgxlisten"
)

const (
	// answerTimeout is how long connecting may take, and then LISTEN.
	answerTimeout = 10 * time.Second

	// stableAfter is how long a connection must have worked for its loss not to count as another failure in a row.
	stableAfter = 30 * time.Second
)

// errDeaf reports that LISTEN succeeded but the Listener's own probe did not arrive.
var errDeaf = errors.New("the test notification did not arrive")

// A connection is one connection of a Listener.
type connection struct {
	l          *Listener
	unlistened int           // channels on which LISTEN is still to be sent
	listens    chan struct{} // closed once unlistened is zero
	echo       chan struct{} // of capacity one: hear sends to it when a probe arrives
	began      time.Time
	heard      atomic.Int64 // when the last notification arrived, in nanoseconds after began
	verified   time.Time    // when the first probe arrived; zero before; guard sets it
}

func newConnection(l *Listener) *connection {
	return &connection{
		l: l, unlistened: 3, listens: make(chan struct{}), echo: make(chan struct{}, 1),
		began: time.Now(),
	}
}

// listenOnce connects and listens until ctx ends, the connection is lost or a probe does not arrive. It returns the
// cause, and in lived how long ago the first probe arrived; zero if none did. It adds the closing of the connection,
// which pgx may still be doing, to closing.
func (l *Listener) listenOnce(ctx context.Context, closing *sync.WaitGroup) (lived time.Duration, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	dial, cancel := context.WithTimeout(ctx, answerTimeout)
	conn, err := l.cfg.Connect(dial)
	cancel()
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	closing.Go(func() { <-conn.PgConn().CleanupDone() })
	select {
	case <-l.retry: // done: it has connected
	default:
	}

	c := newConnection(l)
	pl := pgxlisten.Listener{
		Connect:        func(context.Context) (*pgx.Conn, error) { return conn, nil },
		LogError:       func(_ context.Context, err error) { end(err) }, // before it would connect again
		ReconnectDelay: -1,
	}
	pl.Handle(WorkChannel, c)
	pl.Handle(RunChannel, c)
	pl.Handle(LeadChannel, c)

	var guard sync.WaitGroup
	guard.Go(func() {
		if err := c.guard(ctx); err != nil {
			// This ends the wait for notifications by a deadline in the past. After that pgx closes the socket without
			// telling the server, which may not be reachable.
			end(err)
		}
	})
	_ = pl.Listen(ctx) // ctx knows the cause
	guard.Wait()
	l.listening.Store(false)
	if !c.verified.IsZero() {
		lived = time.Since(c.verified)
	}
	return lived, context.Cause(ctx)
}

// HandleBacklog is called after LISTEN for each channel. Notifications from before the last LISTEN were missed, so it
// wakes all subscribers then.
func (c *connection) HandleBacklog(context.Context, string, *pgx.Conn) error {
	c.unlistened--
	if c.unlistened == 0 {
		close(c.listens)
		c.l.wakeAll()
	}
	return nil
}

// HandleNotification is called for each notification. It ignores payloads that it does not understand: they are not
// ours.
func (c *connection) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	c.hear(n.Payload)
	switch n.Channel {
	case WorkChannel:
		c.l.wakeWork(n.Payload)
	case RunChannel:
		c.l.wakeRuns(n.Payload)
	case LeadChannel:
		c.l.wakeLead(n.Payload)
	}
	return nil
}

// hear records that a notification arrived, and whether it is the Listener's own probe.
func (c *connection) hear(payload string) {
	c.heard.Store(int64(time.Since(c.began)))
	if payload == c.l.probe {
		select {
		case c.echo <- struct{}{}:
		default:
		}
	}
}

// guard sends probes and waits for their arrival: at once, because behind a pooler in transaction mode LISTEN succeeds
// and nothing arrives, and then after each silence, because a connection may die without an error. It returns an error
// if a probe does not arrive, and nil once ctx ends.
func (c *connection) guard(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.listens:
	case <-time.After(answerTimeout):
		return errors.New("LISTEN not answered")
	}
	for {
		pause := c.l.cfg.ProbeEvery
		switch err := c.hearItself(ctx); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errDeaf):
			return err
		case err != nil: // the probe was not sent, which says nothing about this connection
			pause = min(pause, c.l.cfg.ProbeTimeout)
		case c.verified.IsZero():
			c.verified = time.Now()
			c.l.listening.Store(true)
			c.l.logListening()
		}
		c.rest(ctx, pause)
	}
}

// rest returns after pause. Once a probe has arrived, it waits until nothing has arrived for ProbeEvery: any
// notification then shows that the connection works.
func (c *connection) rest(ctx context.Context, pause time.Duration) {
	for pause > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if c.verified.IsZero() {
			return
		}
		silence := time.Since(c.began) - time.Duration(c.heard.Load())
		pause = c.l.cfg.ProbeEvery - silence
	}
}

// hearItself sends a probe and waits for its arrival. It returns errDeaf if the probe does not arrive, another error if
// it could not be sent.
func (c *connection) hearItself(ctx context.Context) error {
	select {
	case <-c.echo: // an earlier probe that arrived late
	default:
	}
	sending, cancel := context.WithTimeout(ctx, c.l.cfg.ProbeTimeout)
	err := c.l.cfg.Probe(sending, WorkChannel, c.l.probe)
	cancel()
	if err != nil {
		return err
	}
	select {
	case <-c.echo:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.l.cfg.ProbeTimeout):
		return errDeaf
	}
}

// A backoff computes the pause between two connections of a Listener.
type backoff struct {
	shortest, longest, deaf time.Duration

	failures  int // connections in a row that were not stable
	deafInRow int // the last of these, as far as they ended with errDeaf and no probe ever arrived
}

// next returns how long to wait after a connection that ended with err, and had worked for lived.
func (b *backoff) next(lived time.Duration, err error) time.Duration {
	b.failures++
	b.deafInRow++
	if lived >= stableAfter {
		b.failures = 0
	}
	if lived > 0 || !errors.Is(err, errDeaf) {
		b.deafInRow = 0
	}
	switch {
	case b.failures == 0:
		return rand.N(b.shortest/10 + 1) // so that not all processes connect at once
	case b.isDeaf():
		return b.deaf
	default:
		d := min(b.longest, b.shortest<<min(b.failures-1, 16))
		return d/2 + rand.N(d/2+1)
	}
}

// isDeaf reports whether LISTEN seems to be unavailable.
func (b *backoff) isDeaf() bool { return b.deafInRow >= 2 }

// waitFor waits for wg, but not longer than d.
func waitFor(wg *sync.WaitGroup, d time.Duration) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}
