package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ListenerConfig says how a Listener connects, and how it detects that its connection is dead.
type ListenerConfig struct {
	// Connect opens a connection for the Listener alone, which closes it. It must lead to the server itself: behind a
	// pooler in transaction mode no notification arrives. Required.
	Connect func(ctx context.Context) (*pgx.Conn, error)

	// Probe sends payload on channel over another connection, as Publisher.Send does. Required.
	Probe func(ctx context.Context, channel, payload string) error

	// ProbeEvery is how long a connection may be silent before the Listener sends itself a probe. Zero means
	// 20 seconds.
	ProbeEvery time.Duration

	// ProbeTimeout is how long sending a probe may take, and then its arrival, before the Listener replaces the
	// connection. Zero means 5 seconds.
	ProbeTimeout time.Duration

	// MinBackoff and MaxBackoff are the limits of the pause before the next attempt to connect. The pause doubles with
	// every failure, and is shortened by up to a half at random. Zero means 1 and 30 seconds.
	MinBackoff, MaxBackoff time.Duration

	// DeafBackoff is the pause before the next attempt once LISTEN succeeded on two connections in a row and no
	// notification arrived on either. Zero means 5 minutes.
	DeafBackoff time.Duration

	// Logger logs when listening ends and when it works again. Nil discards.
	Logger *slog.Logger
}

// A Listener wakes its subscribers when a Publisher, of this process or another, sends a hint for them. Its methods are
// safe for concurrent use; Run may be called once at a time, and again after it has returned.
//
// The Listener calls wake functions one at a time, with its lock held: each must return at once and not call the
// Listener. Typically it sets a flag, or sends to a channel of capacity one without blocking.
type Listener struct {
	cfg   ListenerConfig
	probe string // the payload of this Listener's own probes

	retry     chan struct{} // connect at once
	listening atomic.Bool

	// Run's goroutines use these in turn. A further Run goes on with them, so what one has logged as lost is logged as
	// back by the next.
	lost       time.Time // when a loss was logged; zero if none was since the last probe arrived
	deafLogged bool      // that LISTEN is unavailable was logged since the last probe arrived

	mu   sync.Mutex
	work map[string]map[*func()]struct{} // by WorkPayload
	runs map[string]map[*func([]uuid.UUID)]struct{}
	lead map[string]map[*func(string)]struct{} // all under ""
	all  map[string]map[*func(string, string)]struct{}
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
		retry: make(chan struct{}, 1),
		probe: "probe " + uuid.NewString(), // without a colon, so never a WorkPayload
		work:  make(map[string]map[*func()]struct{}),
		runs:  make(map[string]map[*func([]uuid.UUID)]struct{}),
		lead:  make(map[string]map[*func(string)]struct{}),
		all:   make(map[string]map[*func(string, string)]struct{}),
	}
}

// OnWork subscribes wake to the work of queue: the Listener calls it when a run is due, and whenever it has connected,
// because it may have missed hints before. It does not call wake after cancel has returned.
func (l *Listener) OnWork(namespace, queue string, wake func()) (cancel func()) {
	return subscribe(&l.mu, l.work, WorkPayload(namespace, queue), wake)
}

// OnAllWork subscribes hear to the work of all namespaces and queues: the Listener calls it with the names of both when
// a run is due, and with empty ones, which mean any, whenever it has connected. The Listener does not call hear after
// cancel has returned.
func (l *Listener) OnAllWork(hear func(namespace, queue string)) (cancel func()) {
	return subscribe(&l.mu, l.all, "", hear)
}

// OnRuns subscribes wake to the runs of namespace: the Listener calls it with the IDs of runs that got wake-ups, were
// cancelled or ended, and with nil, which means any run, whenever it has connected. Subscribers share the slice and
// must not change it. The Listener does not call wake after cancel has returned.
func (l *Listener) OnRuns(namespace string, wake func(ids []uuid.UUID)) (cancel func()) {
	return subscribe(&l.mu, l.runs, namespace, wake)
}

// OnLead subscribes hear to the payloads of LeadChannel. The Listener does not call hear after cancel has returned.
func (l *Listener) OnLead(hear func(payload string)) (cancel func()) {
	return subscribe(&l.mu, l.lead, "", hear)
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

// Listening reports whether the Listener's own probe has arrived on the current connection. Until it has, only polling
// finds work.
func (l *Listener) Listening() bool { return l.listening.Load() }

// Retry makes Run connect at once if it waits to connect, or is about to wait. Call it when the server answers others
// again. It does not block. It does nothing where LISTEN is unavailable.
func (l *Listener) Retry() {
	select {
	case l.retry <- struct{}{}:
	default:
	}
}

// Run listens until ctx ends and then returns nil. It connects again, with a growing backoff, whenever the connection
// is lost or its own probe does not arrive. All that it started has ended when it returns, except that pgx may take up
// to 15 seconds to close a connection whose server does not answer.
func (l *Listener) Run(ctx context.Context) error {
	var closing sync.WaitGroup
	defer waitFor(&closing, time.Second)
	b := backoff{shortest: l.cfg.MinBackoff, longest: l.cfg.MaxBackoff, deaf: l.cfg.DeafBackoff}
	for {
		lived, err := l.listenOnce(ctx, &closing)
		if ctx.Err() != nil {
			return nil
		}
		l.logLoss(lived, err)
		pause := b.next(lived, err)
		again := l.retry
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

// logLoss logs the first loss of a connection since the Listener's probe last arrived.
func (l *Listener) logLoss(lived time.Duration, err error) {
	switch {
	case errors.Is(err, errDeaf) && lived == 0 && !l.deafLogged:
		l.cfg.Logger.Warn("kagzi: LISTEN unavailable, polling", "error", err)
		l.deafLogged = true
	case l.lost.IsZero():
		l.cfg.Logger.Warn("kagzi: not listening, polling", "error", err)
	}
	if l.lost.IsZero() {
		l.lost = time.Now()
	}
}

// logListening logs that notifications arrive, and how long they have not.
func (l *Listener) logListening() {
	if l.lost.IsZero() {
		l.cfg.Logger.Debug("kagzi: listening")
	} else {
		l.cfg.Logger.Info("kagzi: listening again", "after", time.Since(l.lost).Round(time.Millisecond))
	}
	l.lost, l.deafLogged = time.Time{}, false
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
	for hear := range l.all[""] {
		(*hear)("", "")
	}
}

func (l *Listener) wakeWork(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wake := range l.work[payload] {
		(*wake)()
	}
	namespace, queue, ours := strings.Cut(payload, ":") // the name of a namespace has no colon
	for hear := range l.all[""] {
		if ours {
			(*hear)(namespace, queue)
		}
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

func (l *Listener) wakeLead(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for hear := range l.lead[""] {
		(*hear)(payload)
	}
}
