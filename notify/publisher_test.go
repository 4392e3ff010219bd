package notify

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// statements stands between a Publisher and db, if there is one, and records the statements.
type statements struct {
	db   DB
	exec func(ctx context.Context) error // in place of db

	mu       sync.Mutex
	payloads [][]string // by statement
	at       []time.Time
}

func (s *statements) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s.mu.Lock()
	s.payloads = append(s.payloads, args[1].([]string))
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	if s.db == nil {
		return pgconn.CommandTag{}, s.exec(ctx)
	}
	return s.db.Exec(ctx, sql, args...)
}

func TestPublisherSendsOncePerIntervalOnAverage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &statements{exec: func(context.Context) error { return nil }}
		p := NewPublisher(s, nil)
		id := uuid.New()

		start := time.Now()
		for i := range 10 {
			p.Work(t.Context(), "acme", "default") // quiet: sent when Work returns
			if len(s.payloads) != i+1 || time.Since(start) != 0 {
				t.Fatalf("%d statements after %v, want %d at once", len(s.payloads), time.Since(start), i+1)
			}
		}
		for range 1000 {
			p.Work(t.Context(), "acme", "default")
			p.Work(t.Context(), "acme", "mail")
			p.Run(t.Context(), "acme", id)
		}
		if time.Since(start) != 0 {
			t.Errorf("a busy publisher held up its callers for %v", time.Since(start))
		}
		p.Wait()
		time.Sleep(time.Millisecond)
		p.Run(t.Context(), "acme") // of no run
		p.Work(t.Context(), "acme", "mail")
		p.Wait()
		time.Sleep(time.Minute)
		p.Work(t.Context(), "acme", "mail")
		p.Wait()

		want := [][]string{
			{"acme:default", "acme:mail", "acme:" + id.String()},
			{"acme:mail"},
			{"acme:mail"},
		}
		if !slices.EqualFunc(s.payloads[10:], want, slices.Equal) {
			t.Errorf("sent %v, want %v", s.payloads[10:], want)
		}
		for i, want := range []time.Duration{2 * time.Millisecond, 4 * time.Millisecond, 4*time.Millisecond +
			time.Minute} {
			if got := s.at[10+i].Sub(start); got != want {
				t.Errorf("statement %d was sent after %v, want %v", 10+i, got, want)
			}
		}
	})
}

func TestPublisherSendsWhatComesDuringAStatement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &statements{exec: func(context.Context) error { time.Sleep(time.Second); return nil }}
		p := NewPublisher(s, nil)
		go p.Work(t.Context(), "acme", "default")
		synctest.Wait()
		p.Work(t.Context(), "acme", "default") // it may have become due after the statement was seen
		p.Wait()
		if len(s.payloads) != 2 {
			t.Errorf("%d statements, want 2", len(s.payloads))
		}
	})
}

func TestPublisherReturnsWhenContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended error
		s := &statements{exec: func(ctx context.Context) error { <-ctx.Done(); ended = ctx.Err(); return ended }}
		p := NewPublisher(s, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		p.Work(ctx, "acme", "default")
		if d := time.Since(start); d != time.Second {
			t.Errorf("Work returned after %v, want its context's 1s", d)
		}
		p.Wait()
		if d := time.Since(start); d != 2*time.Second || !errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("the statement ended after %v with %v, want its own deadline of 2s", d, ended)
		}
	})
}

func TestPublisherOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down error
		s := &statements{exec: func(context.Context) error { time.Sleep(time.Second); return down }}
		logs := &logs{}
		p := NewPublisher(s, logs.logger())
		for outage := range 2 {
			down = errors.New("down")
			for i := range 3 {
				start := time.Now()
				p.Work(t.Context(), "acme", "default")
				if held := time.Since(start) > 0; held != (i == 0) {
					t.Errorf("outage %d, hint %d: its caller was held up: %v", outage, i, held)
				}
				p.Wait()
				time.Sleep(time.Minute)
			}
			down = nil
			for range 2 {
				p.Work(t.Context(), "acme", "default")
				p.Wait()
				time.Sleep(time.Minute)
			}
		}
		const lost, back = "WARN kagzi: notifications cannot be sent, others find work by polling",
			"INFO kagzi: notifications are sent again"
		if want := []string{lost, back, lost, back}; !slices.Equal(logs.all(), want) {
			t.Errorf("logged %q, want %q", logs.all(), want)
		}
	})
}

func TestPublisherDropsTheOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &statements{exec: func(context.Context) error { time.Sleep(time.Second); return nil }}
		p := NewPublisher(s, nil)
		go p.Work(t.Context(), "acme", "default")
		synctest.Wait()
		ids := newIDs(maxHints + 5)
		p.Run(t.Context(), "acme", ids...)
		p.Run(t.Context(), "acme", ids[len(ids)-1], ids[len(ids)-2])
		p.Wait()
		var sent []uuid.UUID
		for _, payload := range s.payloads[1] {
			_, some := parseRuns(payload)
			sent = append(sent, some...)
		}
		if !slices.Equal(sent, ids[5:]) {
			t.Errorf("sent %d runs, want the newest %d", len(sent), maxHints)
		}
	})
}

// The sums of what the payloads of one statement may hold are Postgres' to judge.
func TestPublisherStatementIsAccepted(t *testing.T) {
	t.Parallel()
	s := &statements{db: dbtest.Pool(t)}
	logs := &logs{}
	p := NewPublisher(s, logs.logger())
	p.Interval = time.Millisecond
	long := make([]byte, maxPayload)
	for i := range long {
		long[i] = 'n'
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			p.Run(t.Context(), "acme", newIDs(250)...)
			p.Run(t.Context(), string(long[:4000+100*i]), newIDs(250)...)
			p.Work(t.Context(), string(long), "too long for Postgres, left out")
		})
	}
	wg.Wait()
	p.Wait()
	if got := logs.all(); got != nil {
		t.Errorf("logged %q", got)
	}
}

func TestPublisherKeepsConnectionsOfCancelledCallers(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	p := NewPublisher(pool, nil)
	p.Work(t.Context(), "acme", "default")
	before := pool.Stat().NewConnsCount()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		p.Work(ctx, "acme", "default")
		p.Wait()
	}
	if n := pool.Stat().NewConnsCount() - before; n != 0 {
		t.Errorf("%d connections were replaced", n)
	}
}
