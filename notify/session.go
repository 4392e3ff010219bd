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
	// answerTimeout is how long a server may take to let us in, and to answer LISTEN.
	answerTimeout = 10 * time.Second

	// healthyAfter is how long a connection must have heard for its loss not to be one more failure in a row.
	healthyAfter = 30 * time.Second
)

var errDeaf = errors.New("own notification not heard")

// A session is one connection of a Listener.
type session struct {
	l        *Listener
	missing  int           // channels without LISTEN yet
	listens  chan struct{} // closed when none is missing
	echo     chan struct{} // told when a probe is heard
	began    time.Time
	heard    atomic.Int64 // when anything was heard, in nanoseconds after began
	verified time.Time    // when the first probe was heard
}

func newSession(l *Listener) *session {
	return &session{l: l, missing: 2, listens: make(chan struct{}), echo: make(chan struct{}, 1), began: time.Now()}
}

// session connects and listens until ctx ends or the connection is lost or deaf. It returns why, and how long
// it heard itself. Whatever pgx still has to do to close the connection is added to closing.
func (l *Listener) session(ctx context.Context, closing *sync.WaitGroup) (lived time.Duration, err error) {
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
	case <-l.again: // it has
	default:
	}

	s := newSession(l)
	pl := pgxlisten.Listener{
		Connect:        func(context.Context) (*pgx.Conn, error) { return conn, nil },
		LogError:       func(_ context.Context, err error) { end(err) }, // before it would connect again
		ReconnectDelay: -1,
	}
	pl.Handle(WorkChannel, s)
	pl.Handle(RunChannel, s)

	var guard sync.WaitGroup
	guard.Go(func() {
		if err := s.guard(ctx); err != nil {
			// Ends the wait for notifications by a deadline in the past, after which pgx closes the socket
			// without a word to the server, which may not be there.
			end(err)
		}
	})
	_ = pl.Listen(ctx) // ctx knows the cause
	guard.Wait()
	l.listening.Store(false)
	if !s.verified.IsZero() {
		lived = time.Since(s.verified)
	}
	return lived, context.Cause(ctx)
}

// HandleBacklog is called after LISTEN for each channel. What was sent before the last of them was missed.
func (s *session) HandleBacklog(context.Context, string, *pgx.Conn) error {
	s.missing--
	if s.missing == 0 {
		close(s.listens)
		s.l.wakeAll()
	}
	return nil
}

// HandleNotification is called for each notification. What it does not understand is not ours, and ignored.
func (s *session) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	s.hear(n.Payload)
	switch n.Channel {
	case WorkChannel:
		s.l.wakeWork(n.Payload)
	case RunChannel:
		s.l.wakeRuns(n.Payload)
	}
	return nil
}

// hear notes that the connection is alive, and whether it brought the Listener's own probe.
func (s *session) hear(payload string) {
	s.heard.Store(int64(time.Since(s.began)))
	if payload == s.l.probe {
		select {
		case s.echo <- struct{}{}:
		default:
		}
	}
}

// guard probes whether the session hears itself: at once, as behind a transaction pooler LISTEN succeeds and
// nothing arrives, and then after each silence, as a connection may die without a sign. It returns an error
// if it does not hear, nil if ctx ends.
func (s *session) guard(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.listens:
	case <-time.After(answerTimeout):
		return errors.New("LISTEN not answered")
	}
	for {
		pause := s.l.cfg.ProbeEvery
		switch err := s.hearItself(ctx); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errDeaf):
			return err
		case err != nil: // the probe was not sent, which says nothing about this connection
			pause = min(pause, s.l.cfg.ProbeTimeout)
		case s.verified.IsZero():
			s.verified = time.Now()
			s.l.listening.Store(true)
			s.l.logListening()
		}
		s.rest(ctx, pause)
	}
}

// rest returns after pause, or later as long as something is heard: others' notifications are as good as a
// probe, once the session has heard itself.
func (s *session) rest(ctx context.Context, pause time.Duration) {
	for pause > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if s.verified.IsZero() {
			return
		}
		silence := time.Since(s.began) - time.Duration(s.heard.Load())
		pause = s.l.cfg.ProbeEvery - silence
	}
}

// hearItself sends a probe and waits until it is heard. It returns errDeaf if it is not, another error if it
// could not be sent.
func (s *session) hearItself(ctx context.Context) error {
	select {
	case <-s.echo: // a late one
	default:
	}
	sending, cancel := context.WithTimeout(ctx, s.l.cfg.ProbeTimeout)
	err := s.l.cfg.Probe(sending, WorkChannel, s.l.probe)
	cancel()
	if err != nil {
		return err
	}
	select {
	case <-s.echo:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.l.cfg.ProbeTimeout):
		return errDeaf
	}
}

// A backoff is the time between the sessions of a Listener.
type backoff struct {
	first, most, deaf time.Duration

	failures int // in a row
	deafs    int // of them, the last ones that never heard themselves
}

// next returns how long to wait after a session that ended with err, having heard itself for lived.
func (b *backoff) next(lived time.Duration, err error) time.Duration {
	b.failures++
	b.deafs++
	if lived >= healthyAfter {
		b.failures = 0
	}
	if lived > 0 || !errors.Is(err, errDeaf) {
		b.deafs = 0
	}
	switch {
	case b.failures == 0:
		return rand.N(b.first/10 + 1) // not all processes at once
	case b.isDeaf():
		return b.deaf
	default:
		d := min(b.most, b.first<<min(b.failures-1, 16))
		return d/2 + rand.N(d/2+1)
	}
}

// isDeaf reports whether LISTEN seems to be unavailable.
func (b *backoff) isDeaf() bool { return b.deafs >= 2 }

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
