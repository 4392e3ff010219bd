package notify

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	sendTimeout = 2 * time.Second
	maxHints    = 10_000
)

// DB is what a Publisher sends with; a *pgxpool.Pool is one.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A Publisher tells the Listeners of all processes where to look. It sends at most one statement per
// Interval, because every transaction that notifies takes a database-wide lock at commit.
//
// A hint is not a promise: those of a statement that fails are dropped, as are the oldest when more than
// 10,000 wait to be sent, and those who poll find the work later. A Publisher has no goroutine while it has
// nothing to send, so it need not be closed. It is safe for concurrent use.
type Publisher struct {
	// Interval is the least time between the end of one statement and the next; hints that come meanwhile are
	// gathered. It must not be changed once the Publisher is used. Zero means 5 ms.
	Interval time.Duration

	db  DB
	log *slog.Logger

	mu      sync.Mutex
	idle    sync.Cond
	pending hints
	sending bool      // a goroutine sends, or waits to
	failing bool      // the last statement failed
	sent    time.Time // end of the last statement
}

// NewPublisher returns a Publisher that sends with db. A nil logger discards.
func NewPublisher(db DB, logger *slog.Logger) *Publisher {
	p := &Publisher{db: db, log: cmp.Or(logger, slog.New(slog.DiscardHandler))}
	p.idle.L = &p.mu
	return p
}

// Work hints that work of queue is due. If nothing was sent for an Interval, the hint is sent at once and Work
// returns when it is, when ctx ends or after 2 seconds; the statement itself goes on without ctx. Else Work
// returns immediately.
func (p *Publisher) Work(ctx context.Context, namespace, queue string) {
	p.publish(ctx, hint{channel: WorkChannel, payload: WorkPayload(namespace, queue)})
}

// Run hints that the wakeups, the cancellation or the end of the runs ids moved. It waits as Work does.
func (p *Publisher) Run(ctx context.Context, namespace string, ids ...uuid.UUID) {
	hs := make([]hint, len(ids))
	for i, id := range ids {
		hs[i] = hint{channel: RunChannel, payload: namespace, run: id}
	}
	p.publish(ctx, hs...)
}

// Wait returns once nothing is pending or being sent.
func (p *Publisher) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.sending {
		p.idle.Wait()
	}
}

// Probe sends payload at once, whatever is pending. It serves as a ListenerConfig's Probe.
func (p *Publisher) Probe(ctx context.Context, channel, payload string) error {
	_, err := p.db.Exec(ctx, notifyAll, []string{channel}, []string{payload})
	return err
}

func (p *Publisher) publish(ctx context.Context, hs ...hint) {
	p.mu.Lock()
	for _, h := range hs {
		p.pending.add(h)
	}
	if p.sending || p.pending.empty() {
		p.mu.Unlock()
		return
	}
	p.sending = true
	quiet := max(0, p.interval()-time.Since(p.sent))
	wait := quiet == 0 && !p.failing // in an outage nobody is held up
	p.mu.Unlock()

	// A goroutine of its own, as cancelling a statement costs the pool a connection.
	first := make(chan struct{})
	go p.run(context.WithoutCancel(ctx), quiet, first)
	if wait {
		select {
		case <-first:
		case <-ctx.Done():
		}
	}
}

// run sends after quiet, and then what has gathered each Interval until nothing has.
func (p *Publisher) run(ctx context.Context, quiet time.Duration, first chan<- struct{}) {
	for {
		time.Sleep(quiet)
		p.mu.Lock()
		taken := p.pending
		p.pending = hints{}
		p.mu.Unlock()

		err := p.send(ctx, taken)

		p.mu.Lock()
		p.logChange(err)
		p.sent = time.Now()
		p.sending = !p.pending.empty()
		if !p.sending {
			p.idle.Broadcast()
		}
		more := p.sending
		p.mu.Unlock()
		if first != nil {
			close(first)
			first = nil
		}
		if !more {
			return
		}
		quiet = p.interval()
	}
}

// send sends hs. It leaves synchronous_commit alone: a transaction that only notifies flushes no WAL.
func (p *Publisher) send(ctx context.Context, hs hints) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	channels, payloads := hs.payloads()
	_, err := p.db.Exec(ctx, notifyAll, channels, payloads)
	return err
}

// logChange logs the first failure of an outage and its end. Its caller holds mu.
func (p *Publisher) logChange(err error) {
	switch {
	case err != nil && !p.failing:
		p.log.Warn("kagzi: notifications cannot be sent, others find work by polling", "error", err)
	case err == nil && p.failing:
		p.log.Info("kagzi: notifications are sent again")
	}
	p.failing = err != nil
}

func (p *Publisher) interval() time.Duration {
	return cmp.Or(p.Interval, 5*time.Millisecond)
}

// A hint is one thing to look at.
type hint struct {
	channel string
	payload string    // of WorkChannel; the namespace if of RunChannel
	run     uuid.UUID // of RunChannel
}

// hints is a set that remembers the order and has room for maxHints.
type hints struct {
	order []hint
	has   map[hint]struct{}
}

func (hs *hints) empty() bool { return len(hs.order) == 0 }

// add puts h in, for the oldest if there is no room. One that Postgres would refuse is left out, as the
// others of its statement would be lost with it.
func (hs *hints) add(h hint) {
	if _, ok := hs.has[h]; ok || len(h.payload) > maxPayload-idLen {
		return
	}
	if len(hs.order) == maxHints {
		delete(hs.has, hs.order[0])
		hs.order = hs.order[1:]
	}
	if hs.has == nil {
		hs.has = make(map[hint]struct{})
	}
	hs.has[h] = struct{}{}
	hs.order = append(hs.order, h)
}

// payloads returns what to send on which channel: the runs of a namespace together.
func (hs *hints) payloads() (channels, payloads []string) {
	runs := make(map[string][]uuid.UUID)
	for _, h := range hs.order {
		if h.channel == RunChannel {
			runs[h.payload] = append(runs[h.payload], h.run)
			continue
		}
		channels, payloads = append(channels, h.channel), append(payloads, h.payload)
	}
	for namespace, ids := range runs {
		for _, payload := range RunPayload(namespace, ids) {
			channels, payloads = append(channels, RunChannel), append(payloads, payload)
		}
	}
	return channels, payloads
}
