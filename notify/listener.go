package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ListenerConfig says how a Listener connects and how it sees that it is cut off.
type ListenerConfig struct {
	// Connect opens a connection for the Listener alone, which closes it. It must lead to the server itself:
	// behind a transaction pooler nothing is ever heard. Required.
	Connect func(ctx context.Context) (*pgx.Conn, error)

	// Probe sends payload on channel by another connection; Publisher.Probe does. Required.
	Probe func(ctx context.Context, channel, payload string) error

	// ProbeEvery is how long a connection may be silent before the Listener sends itself a probe. Zero means
	// 20 seconds.
	ProbeEvery time.Duration

	// ProbeTimeout is how long a probe may take to be sent, and then to be heard, before the connection is
	// taken for dead and replaced. Zero means 5 seconds.
	ProbeTimeout time.Duration

	// MinBackoff and MaxBackoff bound the time before the next attempt to connect, which doubles with every
	// failure and is cut by up to a half at random. Zero means 1 and 30 seconds.
	MinBackoff, MaxBackoff time.Duration

	// DeafBackoff is the time before the next attempt once two connections in a row could LISTEN and heard
	// nothing. Zero means 5 minutes.
	DeafBackoff time.Duration

	// Logger is told when listening ends and when it works again. Nil discards.
	Logger *slog.Logger
}

// A Listener wakes subscribers when a Publisher, in this process or another, hints at what they wait for. Its
// methods are safe for concurrent use; Run may be called once at a time.
//
// Wake functions are called one at a time, with the Listener's lock held: each must return at once and
// not call the Listener. Typically it sets a flag or sends to a channel of capacity one without blocking.
type Listener struct {
	cfg   ListenerConfig
	probe string // the payload by which this Listener knows its own probes

	again          chan struct{} // connect at once
	listening      atomic.Bool
	told, toldDeaf bool // a loss, and that LISTEN is unavailable, were logged; only a session and Run use them

	mu   sync.Mutex
	work map[string]map[*func()]struct{} // by WorkPayload
	runs map[string]map[*func([]uuid.UUID)]struct{}
}

// NewListener returns a Listener that does nothing until Run.
func NewListener(cfg ListenerConfig) *Listener {
	cfg.ProbeEvery = cmp.Or(cfg.ProbeEvery, 20*time.Second)
	cfg.ProbeTimeout = cmp.Or(cfg.ProbeTimeout, 5*time.Second)
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, time.Second)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, 30*time.Second)
	cfg.DeafBackoff = cmp.Or(cfg.DeafBackoff, 5*time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Listener{
		cfg:   cfg,
		again: make(chan struct{}, 1),
		probe: "probe " + uuid.NewString(), // without a colon, so never a WorkPayload
		work:  make(map[string]map[*func()]struct{}),
		runs:  make(map[string]map[*func([]uuid.UUID)]struct{}),
	}
}

// OnWork has wake called when work of queue is due and whenever the Listener has connected, as hints may have
// been missed until then. After cancel returned, wake is not called any more.
func (l *Listener) OnWork(namespace, queue string, wake func()) (cancel func()) {
	return subscribe(&l.mu, l.work, WorkPayload(namespace, queue), wake)
}

// OnRuns has wake called with the runs of namespace whose wakeups, cancellation or end moved, and with nil,
// which means any of them, whenever the Listener has connected. Subscribers share the slice and must not change
// it. After cancel returned, wake is not called any more.
func (l *Listener) OnRuns(namespace string, wake func(ids []uuid.UUID)) (cancel func()) {
	return subscribe(&l.mu, l.runs, namespace, wake)
}

func subscribe[F any](mu *sync.Mutex, subs map[string]map[*F]struct{}, key string, wake F) (cancel func()) {
	mu.Lock()
	defer mu.Unlock()
	if subs[key] == nil {
		subs[key] = make(map[*F]struct{})
	}
	sub := &wake
	subs[key][sub] = struct{}{}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(subs[key], sub)
		if len(subs[key]) == 0 {
			delete(subs, key)
		}
	}
}

// Listening reports whether the current connection has heard the Listener's own probe. While it has not, only
// polling finds work.
func (l *Listener) Listening() bool { return l.listening.Load() }

// Retry lets Run connect at once, if it waits to connect or is about to wait: the server answers others again. It does not
// block. Where LISTEN is unavailable that changes nothing, and neither does Retry.
func (l *Listener) Retry() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Run listens until ctx ends and then returns nil. It connects again, with a growing backoff, whenever the
// connection is lost or no longer hears. All it started has ended when it returns, except that pgx may go on for
// up to 15 seconds with closing a connection whose server does not answer.
func (l *Listener) Run(ctx context.Context) error {
	var closing sync.WaitGroup
	defer waitFor(&closing, time.Second)
	b := backoff{first: l.cfg.MinBackoff, most: l.cfg.MaxBackoff, deaf: l.cfg.DeafBackoff}
	for {
		lived, err := l.session(ctx, &closing)
		if ctx.Err() != nil {
			return nil
		}
		l.logLoss(lived, err)
		pause := b.next(lived, err)
		again := l.again
		if b.isDeaf() {
			again = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			b.failures = 0
		case <-time.After(pause):
		}
	}
}

// logLoss logs the first loss since the Listener last heard itself.
func (l *Listener) logLoss(lived time.Duration, err error) {
	switch {
	case errors.Is(err, errDeaf) && lived == 0 && !l.toldDeaf:
		l.cfg.Logger.Warn("kagzi: LISTEN unavailable, polling", "error", err)
		l.told, l.toldDeaf = true, true
	case !l.told:
		l.cfg.Logger.Warn("kagzi: not listening, polling", "error", err)
		l.told = true
	}
}

func (l *Listener) logListening() {
	if l.told {
		l.cfg.Logger.Info("kagzi: listening again")
	} else {
		l.cfg.Logger.Debug("kagzi: listening")
	}
	l.told, l.toldDeaf = false, false
}

func (l *Listener) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, subs := range l.work {
		for wake := range subs {
			(*wake)()
		}
	}
	for _, subs := range l.runs {
		for wake := range subs {
			(*wake)(nil)
		}
	}
}

func (l *Listener) wakeWork(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wake := range l.work[payload] {
		(*wake)()
	}
}

func (l *Listener) wakeRuns(payload string) {
	namespace, ids := parseRuns(payload)
	if ids == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for wake := range l.runs[namespace] {
		(*wake)(ids)
	}
}
