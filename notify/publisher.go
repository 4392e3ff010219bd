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
	atOnce      = 10 // statements that are sent without a pause after as many Intervals of silence
)

// A DB sends a Publisher's statements; a *pgxpool.Pool is one.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A Publisher sends hints to the Listeners of all processes. It sends at most one statement per Interval on average,
// because every transaction that notifies takes a database-wide lock at commit. A Publisher that has sent little lately
// sends at once.
//
// A hint may be lost: a Publisher drops the hints of a statement that fails, and the oldest ones when more than 10,000
// wait to be sent. Polling finds the work later. A Publisher has no goroutine while it has nothing to send, so it need
// not be closed. It is safe for concurrent use.
type Publisher struct {
	// Interval is the least time between two statements on average. A statement sends all hints that came since the
	// last. It must not be changed once the Publisher is used. Zero means 2 ms.
	Interval time.Duration

	db  DB
	log *slog.Logger

	mu      sync.Mutex
	idle    sync.Cond
	pending hints // to send with the next statement
	sending bool  // a goroutine is in run: it sends, or waits to send; publish sets it, run clears it
	failing bool  // the last statement failed
	// each statement moves it by an Interval, and is not sent before it; quiet keeps it from falling far behind
	turn time.Time
}

// NewPublisher returns a Publisher that sends with db. A nil logger discards.
func NewPublisher(db DB, logger *slog.Logger) *Publisher {
	p := &Publisher{db: db, log: cmp.Or(logger, slog.New(slog.DiscardHandler))}
	p.idle.L = &p.mu
	return p
}

// Work sends the hint that work of queue is due. If little was sent lately, it sends the hint at once, and returns
// once it is sent, ctx ends or 2 seconds have passed; the end of ctx does not end the statement. Otherwise it returns
// immediately.
func (p *Publisher) Work(ctx context.Context, namespace, queue string) {
	p.publish(ctx, hint{channel: WorkChannel, payload: WorkPayload(namespace, queue)})
}

// Run sends the hint that the runs ids got wake-ups, were cancelled or ended. It waits as Work does.
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

// Send sends payload at once, whatever is pending. It can be a ListenerConfig's Probe.
func (p *Publisher) Send(ctx context.Context, channel, payload string) error {
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
	quiet := p.quiet()
	wait := quiet == 0 && !p.failing // in an outage no caller waits
	p.mu.Unlock()

	// The goroutine does not end with ctx, because cancelling a statement costs the pool a connection.
	first := make(chan struct{})
	go p.run(context.WithoutCancel(ctx), quiet, first)
	if wait {
		select {
		case <-first:
		case <-ctx.Done():
		}
	}
}

// quiet returns the pause before the next statement, and counts that. Its caller holds mu.
func (p *Publisher) quiet() time.Duration {
	now, interval := time.Now(), cmp.Or(p.Interval, 2*time.Millisecond)
	if earliest := now.Add(-atOnce * interval); p.turn.Before(earliest) {
		p.turn = earliest
	}
	p.turn = p.turn.Add(interval)
	return max(0, p.turn.Sub(now))
}

// run sends the pending hints after quiet, and goes on as long as some are pending. It closes first after the
// first statement.
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
		p.sending = !p.pending.empty()
		if p.sending {
			quiet = p.quiet()
		} else {
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
	}
}

// send sends hs. It does not switch synchronous_commit off: a transaction that only notifies flushes no WAL.
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

// A hint names a queue or a run.
type hint struct {
	channel string
	payload string    // for WorkChannel the payload; for RunChannel the namespace
	run     uuid.UUID // for RunChannel
}

// hints is an ordered set of at most maxHints.
type hints struct {
	order []hint
	has   map[hint]struct{}
}

func (hs *hints) empty() bool { return len(hs.order) == 0 }

// add adds h, and drops the oldest hint if the set is full. It ignores a hint that Postgres would refuse, because the
// others of the same statement would be lost with it.
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

// payloads returns the payloads to send, and the channel of each. The runs of a namespace share payloads.
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
