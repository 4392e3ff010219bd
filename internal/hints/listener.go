package hints

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// A Line is a connection for notifications. It is open while it is used.
type Line struct {
	*notify.Listener

	mu    sync.Mutex // guards the fields below
	users int        // calls of Listen that were not released
	end   func()     // closes the connection. Set by the first call of Listen.
}

// NewLine returns a line that several clients of the pool share: see Share.
func NewLine(pool *pgxpool.Pool, log *slog.Logger) *Line {
	return &Line{Listener: notify.NewListener(notify.ListenerConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return store.Connect(ctx, pool) },
		Probe:   notify.NewPublisher(pool, log).Send, Logger: log,
	})}
}

// Listen keeps the line open until release is called. The last release returns once the connection is closed.
func (l *Line) Listen() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.Run(ctx) // ends only with ctx
		}()
		l.end = func() {
			cancel()
			<-done
		}
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 {
			l.end()
		}
	})
}

// A listener is the part of a client in a line. It is in use while there are waiters for hints.
type listener struct {
	hints *Hints

	users atomic.Int32 // calls of acquire that were not released; written under mu

	mu sync.Mutex // guards the fields below
	// the client's own, or one that it shares; nil before the first call of acquire. It is kept: it knows which losses
	// it has logged.
	line *Line
	end  func() // ends what the first call of acquire has begun. Set by it, called by the last release.
}

// Share makes the hints use a line that other clients use, too, instead of one of their own. It is called before all
// other methods.
func (h *Hints) Share(l *Line) { h.listener.line = l }

// Listen keeps a connection for notifications open until release is called. The last release returns once the
// connection is closed.
func (h *Hints) Listen() (release func()) { return h.listener.acquire() }

// OnWork subscribes wake, which is called when runs of the queue may be due, until cancel is called. The caller must
// have called Listen.
func (h *Hints) OnWork(queue string, wake func()) (cancel func()) {
	return h.listener.onWork(queue, wake)
}

// OnSchedules subscribes wake, which is called when schedules may have changed, until cancel is called. The caller must
// have called Listen.
func (h *Hints) OnSchedules(wake func()) (cancel func()) {
	return h.listener.onWork(coordinators, wake)
}

// OnAwaited subscribes wake, which is called when events may have been published for which runs wait, until cancel is
// called. The caller must have called Listen.
func (h *Hints) OnAwaited(wake func()) (cancel func()) {
	return h.listener.onWork(store.AwaitedQueue, wake)
}

// Listening reports whether notifications arrive.
func (h *Hints) Listening() bool { return h.listener.listening() }

// Reconnect makes a listener that lost its connection connect at once. Call it when the database answers again.
func (h *Hints) Reconnect() { h.listener.retry() }

func (l *listener) acquire() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users.Add(1) == 1 {
		if l.line == nil {
			l.line = l.newLine()
		}
		namespace := l.hints.store.Namespace()
		leave := l.line.OnRuns(namespace, l.hints.refresh)
		line, demand := l.line, &l.hints.demand
		demand.connected()
		ignore := line.OnWork(namespace, waiting, func() {
			if line.Listening() {
				demand.hear()
			} else {
				demand.connected()
			}
		})
		hangUp := l.line.Listen()
		l.end = func() {
			leave()
			ignore()
			hangUp()
		}
		if l.line.Listening() { // others have opened it: nothing wakes those who wait already
			l.hints.refresh(nil)
		}
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users.Add(-1) == 0 {
			l.end()
		}
	})
}

func (l *listener) newLine() *Line {
	pool := l.hints.store.Pool()
	return &Line{Listener: notify.NewListener(notify.ListenerConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			if err := l.hints.results.listening.reconnects(); err != nil {
				return nil, err
			}
			return store.Connect(ctx, pool)
		},
		Probe: l.hints.publisher.Send,

		MinBackoff: l.hints.ListenBackoff, MaxBackoff: l.hints.ListenBackoff,
		Logger: l.hints.log,
	})}
}

func (l *listener) onWork(queue string, wake func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line.OnWork(l.hints.store.Namespace(), queue, wake)
}

func (l *listener) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != nil {
		l.line.Retry()
	}
}

func (l *listener) listening() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line != nil && l.line.Listening()
}

// The listener costs a connection. So waiters for results open it only after listenAfter of waiting, if no worker or
// coordinator of this process has, and keep it between two waits that are at most lingers apart. Such a pause counts as
// waiting: a process that calls Result again and again listens.
const (
	listenAfter = 300 * time.Millisecond
	lingers     = 5 * time.Second
)

// A waitingListener keeps the listener open for those who wait for results.
type waitingListener struct {
	hints *Hints

	// guards the fields below. It is locked after results' mutex, and not while the listener is called.
	mu      sync.Mutex
	waiting bool      // there are waiters. Set by begin, reset by end.
	since   time.Time // when waiting began, without a pause longer than lingers since
	ended   time.Time // when end was called last
	// closes the listener; nil while the waiters do not keep it open. Set by waited, reset by closeIdle.
	release func()
	idle    *time.Timer // calls closeIdle; nil before the first end with an open listener
}

// begin notes the first waiter, and end that the last one has gone.
func (w *waitingListener) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = true
	if now := time.Now(); now.Sub(w.ended) > lingers {
		w.since = now
	}
	if w.idle != nil {
		w.idle.Stop()
	}
}

func (w *waitingListener) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.ended = false, time.Now()
	if w.release == nil {
		return
	}
	after := lingers
	if w.hints.listener.users.Load() > 1 { // by now a worker keeps it open, and closes it when it ends
		after = 0
	}
	w.idle = time.AfterFunc(after, w.closeIdle)
}

// waited opens the listener if waiters have waited for long enough. Only one goroutine calls it, between begin and end.
func (w *waitingListener) waited() {
	w.mu.Lock()
	listen := w.release == nil && time.Since(w.since) > listenAfter && w.hints.listener.users.Load() == 0
	w.mu.Unlock()
	if !listen {
		return
	}
	release := w.hints.Listen()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release = release
}

func (w *waitingListener) closeIdle() {
	w.mu.Lock()
	release := w.release
	if w.waiting || release == nil {
		w.mu.Unlock()
		return
	}
	w.release = nil
	w.mu.Unlock()
	release()
}

// errNobodyWaits ends an attempt of the listener to connect again.
var errNobodyWaits = errors.New("nobody waits for notifications")

// reconnects returns errNobodyWaits, and has the listener closed, if it is open only because of earlier waiters.
func (w *waitingListener) reconnects() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting || w.release == nil || w.hints.listener.users.Load() > 1 {
		return nil
	}
	w.idle.Reset(0)
	return errNobodyWaits
}
