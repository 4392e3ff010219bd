package hints

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// A listener is the process's connection for notifications, open while somebody in the process waits for hints.
type listener struct {
	hints *Hints

	mu     sync.Mutex
	users  int
	notify *notify.Listener
	stop   context.CancelFunc
	done   chan struct{}
}

// Listen has the process listen for notifications until release is called. The last release returns when the connection is
// closed.
func (h *Hints) Listen() (release func()) { return h.listener.acquire() }

// OnWork has wake called when there may be work in the queue, until cancel is called. The caller has called Listen.
func (h *Hints) OnWork(queue string, wake func()) (cancel func()) {
	return h.listener.onWork(queue, wake)
}

// OnSchedules has wake called when schedules may have changed, until cancel is called. The caller has called Listen.
func (h *Hints) OnSchedules(wake func()) (cancel func()) {
	return h.listener.onWork(coordinators, wake)
}

// Listening reports whether the process has a connection over which notifications come.
func (h *Hints) Listening() bool { return h.listener.listening() }

// Reconnect has a listener that lost its connection try again at once: the database answers again.
func (h *Hints) Reconnect() { h.listener.retry() }

func (l *listener) acquire() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		pool := l.hints.store.Pool()
		l.notify = notify.NewListener(notify.ListenerConfig{
			Connect: func(ctx context.Context) (*pgx.Conn, error) { return store.Connect(ctx, pool) },
			Probe:   l.hints.publisher.Probe,

			MinBackoff: l.hints.ListenBackoff, MaxBackoff: l.hints.ListenBackoff,
			Logger: l.hints.log,
		})
		cancelRuns := l.notify.OnRuns(l.hints.store.Namespace(), l.hints.refresh)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		listener := l.notify
		l.stop, l.done = cancel, done
		go func() {
			defer close(done)
			defer cancelRuns()
			_ = listener.Run(ctx) // ends only with ctx
		}()
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 {
			l.stop()
			<-l.done
			l.notify = nil
		}
	})
}

func (l *listener) onWork(queue string, wake func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notify.OnWork(l.hints.store.Namespace(), queue, wake)
}

func (l *listener) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notify != nil {
		l.notify.Retry()
	}
}

func (l *listener) listening() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notify != nil && l.notify.Listening()
}
