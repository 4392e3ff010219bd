package hints

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// A listener is the client's connection for notifications. It is open while somebody waits for hints.
type listener struct {
	hints *Hints

	users atomic.Int32 // calls of acquire that were not released; written under mu

	mu     sync.Mutex         // guards the fields below
	notify *notify.Listener   // nil while users is zero
	stop   context.CancelFunc // ends notify's Run
	done   chan struct{}      // closed once Run has returned
}

// Listen keeps a connection for notifications open until release is called. The last release returns once the connection is
// closed.
func (h *Hints) Listen() (release func()) { return h.listener.acquire() }

// OnWork subscribes wake, which is called when runs of the queue may be due, until cancel is called. The caller must have
// called Listen.
func (h *Hints) OnWork(queue string, wake func()) (cancel func()) {
	return h.listener.onWork(queue, wake)
}

// OnSchedules subscribes wake, which is called when schedules may have changed, until cancel is called. The caller must have
// called Listen.
func (h *Hints) OnSchedules(wake func()) (cancel func()) {
	return h.listener.onWork(coordinators, wake)
}

// Listening reports whether notifications arrive.
func (h *Hints) Listening() bool { return h.listener.listening() }

// Reconnect makes a listener that lost its connection connect at once. Call it when the database answers again.
func (h *Hints) Reconnect() { h.listener.retry() }

func (l *listener) acquire() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users.Add(1) == 1 {
		pool := l.hints.store.Pool()
		l.notify = notify.NewListener(notify.ListenerConfig{
			Connect: func(ctx context.Context) (*pgx.Conn, error) {
				if err := l.hints.results.listening.reconnects(); err != nil {
					return nil, err
				}
				return store.Connect(ctx, pool)
			},
			Probe: l.hints.publisher.Probe,

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
		if l.users.Add(-1) == 0 {
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
