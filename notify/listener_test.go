package notify

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is how long a test waits for an event that must come.
const patience = time.Minute

// logs keeps log messages without their attributes.
type logs struct {
	mu       sync.Mutex
	messages []string
	told     chan struct{}
}

func (l *logs) logger() *slog.Logger                     { l.told = make(chan struct{}, 1); return slog.New(l) }
func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, r.Level.String()+" "+r.Message)
	select {
	case l.told <- struct{}{}:
	default:
	}
	return nil
}

func (l *logs) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.messages)
}

// await returns once message was logged n times.
func (l *logs) await(t *testing.T, n int, message string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		found := 0
		for _, m := range l.all() {
			if strings.HasSuffix(m, message) {
				found++
			}
		}
		if found >= n {
			return
		}
		select {
		case <-l.told:
		case <-timeout:
			t.Fatalf("%q was not logged %d times: %q", message, n, l.all())
		}
	}
}

// A lab is a running Listener, a Publisher, and the means to disturb them.
type lab struct {
	*Listener
	pub  *Publisher
	pool *pgxpool.Pool
	logs logs
	conn atomic.Pointer[pgx.Conn] // the Listener's newest
	deaf atomic.Bool              // probes go nowhere
	stop func()                   // ends Run and waits for it
}

// start runs a Listener with cfg, completed to listen to the test's database, and returns when it listens.
func start(t *testing.T, cfg ListenerConfig, deaf bool) *lab {
	t.Helper()
	l := &lab{pool: dbtest.Pool(t)}
	l.deaf.Store(deaf)
	l.pub = NewPublisher(l.pool, nil)
	cfg.Logger = l.logs.logger()
	cfg.Connect = func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig)
		if err == nil {
			l.conn.Store(conn)
		}
		return conn, err
	}
	cfg.Probe = func(ctx context.Context, channel, payload string) error {
		if l.deaf.Load() {
			return nil
		}
		return l.pub.Send(ctx, channel, payload)
	}
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff, cfg.MaxBackoff = time.Millisecond, 5*time.Millisecond
	}
	l.Listener = NewListener(cfg)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not return")
		}
		if l.Listening() {
			t.Error("Listening after Run has returned")
		}
	})
	t.Cleanup(l.stop)
	if !deaf {
		l.logs.await(t, 1, "kagzi: listening")
		if !l.Listening() {
			t.Error("not Listening after its probe was heard")
		}
	}
	return l
}

// A mailbox gathers wakes: the keys it was subscribed with, and IDs.
type mailbox chan string

func (m mailbox) work(key string) func() { return func() { m <- key } }

func (m mailbox) runs(key string) func([]uuid.UUID) {
	return func(ids []uuid.UUID) {
		if ids == nil {
			m <- key + " all"
		}
		for _, id := range ids {
			m <- key + " " + id.String()
		}
	}
}

// expect reads as many wakes as wanted, in any order.
func (m mailbox) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	timeout := time.After(patience)
	for len(got) < len(want) {
		select {
		case key := <-m:
			got = append(got, key)
		case <-timeout:
			t.Fatalf("woken %q, want %q", got, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("woken %q, want %q", got, want)
	}
}

func TestWakesThoseConcerned(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{}, false)
	woken := make(mailbox, 1000)
	l.OnWork("acme", "default", woken.work("1"))
	cancel := l.OnWork("acme", "default", woken.work("2"))
	l.OnWork("acme", "mail", woken.work("mail"))
	l.OnWork("other", "default", woken.work("other"))
	l.OnRuns("acme", woken.runs("acme"))
	l.OnRuns("other", woken.runs("other"))

	l.pub.Work(t.Context(), "acme", "default")
	woken.expect(t, "1", "2")

	cancel()
	l.pub.Work(t.Context(), "acme", "default")
	l.pub.Wait()
	l.pub.Work(t.Context(), "nobody", "default")
	l.pub.Work(t.Context(), "other", "default")
	woken.expect(t, "1", "other")

	ids := newIDs(450)
	var want []string
	for _, id := range ids {
		want = append(want, "acme "+id.String())
	}
	l.pub.Run(t.Context(), "acme", ids...)
	woken.expect(t, want...)
}

func TestIgnoresWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{}, false)
	woken := make(mailbox, 100)
	l.OnWork("acme", "default", woken.work("work"))
	l.OnRuns("acme", woken.runs("runs"))
	for _, channel := range []string{WorkChannel, RunChannel} {
		for _, payload := range []string{"", ":", "acme", "acme:", "acme:default,", "acme:\x01", "probe", "acme:" +
			uuid.NewString() + ",x", strings.Repeat("x", maxPayload)} {
			if err := l.pub.Send(t.Context(), channel, payload); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.pub.Work(t.Context(), "acme", "default")
	woken.expect(t, "work")
}

func TestNotifyTxIsTransactional(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{}, false)
	woken := make(mailbox, 100)
	l.OnWork("acme", "rolled back", woken.work("rolled back"))
	l.OnWork("acme", "committed", woken.work("committed"))
	rollback := errors.New("roll back")
	for queue, end := range map[string]error{"rolled back": rollback, "committed": nil} {
		err := pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error {
			if err := NotifyTx(t.Context(), tx, WorkChannel, WorkPayload("acme", queue)); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	l.OnRuns("acme", woken.runs("runs"))
	id := uuid.New()
	l.pub.Run(t.Context(), "acme", id) // comes after all before
	woken.expect(t, "committed", "runs "+id.String())
}

func TestLostConnectionWakesAll(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{}, false)
	woken := make(mailbox, 100)
	l.OnWork("acme", "default", woken.work("work"))
	l.OnRuns("acme", woken.runs("runs"))
	for i := range 3 {
		if _, err := l.pool.Exec(t.Context(), `SELECT pg_terminate_backend($1::int)`,
			l.conn.Load().PgConn().PID()); err != nil {
			t.Fatal(err)
		}
		woken.expect(t, "work", "runs all")
		l.logs.await(t, i+1, "kagzi: listening again")
		l.pub.Work(t.Context(), "acme", "default")
		woken.expect(t, "work")
	}
	// with how long it was away: see TestListenerSaysHowLongItWasAway
	const lost, again = "WARN kagzi: not listening, polling", "INFO kagzi: listening again"
	want := []string{"DEBUG kagzi: listening", lost, again, lost, again, lost, again}
	if got := l.logs.all(); !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// A connection may stay open and never say anything again, whether its server froze or, as here, what leads to
// it did.
func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{ProbeEvery: 10 * time.Millisecond, ProbeTimeout: time.Second}, false)
	woken := make(mailbox, 100)
	l.OnWork("acme", "default", woken.work("work"))
	l.deaf.Store(true)
	woken.expect(t, "work")
	l.deaf.Store(false)
	l.logs.await(t, 1, "kagzi: listening again")
	l.OnWork("acme", "mail", woken.work("mail"))
	l.pub.Work(t.Context(), "acme", "mail")
	for key := range woken { // it may have been replaced more than once
		if key == "mail" {
			return
		}
	}
}

// Behind a transaction pooler LISTEN succeeds and nothing is ever heard.
func TestWithoutListen(t *testing.T) {
	t.Parallel()
	const unavailable = "kagzi: LISTEN unavailable, polling"
	l := start(t, ListenerConfig{ProbeTimeout: time.Second / 10, DeafBackoff: time.Millisecond}, true)
	connected := make(mailbox, 1000)
	l.OnWork("acme", "default", connected.work("work"))
	connected.expect(t, "work", "work", "work")
	if l.Listening() {
		t.Error("Listening without having heard itself")
	}
	l.logs.await(t, 1, unavailable)
	if got := l.logs.all(); len(got) != 1 {
		t.Errorf("logged %q, want one message", got)
	}
	l.deaf.Store(false)
	l.logs.await(t, 1, "kagzi: listening again")
}

// Several times a hint, never a probe: the others' notifications show that the connection hears.
func TestHearingOthersSparesProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		var s *connection
		l := NewListener(ListenerConfig{Probe: func(context.Context, string, string) error {
			probes.Add(1)
			s.hear(s.l.probe)
			return nil
		}})
		s = newConnection(l)
		close(s.listens)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.guard(ctx) }()
		for range 100 {
			time.Sleep(15 * time.Second)
			s.hear("acme:default")
		}
		synctest.Wait()
		if n := probes.Load(); n != 1 {
			t.Errorf("%d probes while others were heard, want the first", n)
		}
		time.Sleep(time.Minute + time.Second)
		if n := probes.Load(); n != 4 {
			t.Errorf("%d probes after a silent minute, want 3 more", n-1)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestUnsentProbeDoesNotCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *connection
		var down atomic.Bool
		down.Store(true)
		l := NewListener(ListenerConfig{Probe: func(ctx context.Context, _, _ string) error {
			if down.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil // sent and not heard
		}})
		s = newConnection(l)
		close(s.listens)
		done := make(chan error, 1)
		go func() { done <- s.guard(t.Context()) }()
		time.Sleep(time.Hour)
		select {
		case err := <-done:
			t.Errorf("ended with %v", err)
		default:
		}
		down.Store(false)
		if err := <-done; !errors.Is(err, errDeaf) {
			t.Errorf("ended with %v, want %v", err, errDeaf)
		}
	})
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &logs{}
		var attempts atomic.Int32
		l := NewListener(ListenerConfig{
			Connect: func(context.Context) (*pgx.Conn, error) { attempts.Add(1); return nil, errors.New("refused") },
			Logger:  logs.logger(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(time.Hour)
		// 1, 2, 4, 8, 16 s and then 30 s, each down to its half.
		if n := attempts.Load(); n < 120 || n > 250 {
			t.Errorf("%d attempts in an hour, want 124 to 247", n)
		}
		start := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(start) != 0 {
			t.Errorf("Run returned %v after %v", err, time.Since(start))
		}
		if got := logs.all(); !slices.Equal(got, []string{"WARN kagzi: not listening, polling"}) {
			t.Errorf("logged %q", got)
		}
	})
}

// A listener that never heard anything says so once, and once how long it was away, also if another call of Run brings
// it back.
func TestListenerSaysHowLongItWasAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		l := NewListener(ListenerConfig{
			Connect: func(context.Context) (*pgx.Conn, error) { return nil, errors.New("refused") },
			Logger:  slog.New(slog.NewTextHandler(&lines, nil)),
		})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
		s := newConnection(l)
		close(s.listens)
		l.cfg.Probe = func(context.Context, string, string) error { s.hear(l.probe); return nil }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.guard(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		got := lines.String()
		if strings.Count(got, "\n") != 2 ||
			!strings.Contains(got, `level=WARN msg="kagzi: not listening, polling" error="connect: refused"`) ||
			!strings.Contains(got, `level=INFO msg="kagzi: listening again" after=2h0m0s`) {
			t.Errorf("logged %s", got)
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := backoff{shortest: time.Second, longest: 30 * time.Second, deaf: 5 * time.Minute}
	lost := errors.New("lost")
	for i, tc := range []struct {
		lived    time.Duration
		err      error
		min, max time.Duration
	}{
		{0, lost, 500 * time.Millisecond, time.Second},
		{time.Second, lost, time.Second, 2 * time.Second},
		{time.Second, errDeaf, 2 * time.Second, 4 * time.Second},
		{time.Hour, errDeaf, 0, 100 * time.Millisecond}, // was healthy
		{time.Second, lost, 500 * time.Millisecond, time.Second},
		{0, errDeaf, time.Second, 2 * time.Second},
		{0, errDeaf, 5 * time.Minute, 5 * time.Minute},
		{0, errDeaf, 5 * time.Minute, 5 * time.Minute},
		{0, lost, 8 * time.Second, 16 * time.Second},
		{0, lost, 15 * time.Second, 30 * time.Second},
		{0, lost, 15 * time.Second, 30 * time.Second},
		{stableAfter, lost, 0, 100 * time.Millisecond},
	} {
		if d := b.next(tc.lived, tc.err); d < tc.min || d > tc.max {
			t.Errorf("%d: waits %v after %v of %v, want %v to %v", i, d, tc.err, tc.lived, tc.min, tc.max)
		}
	}
}

func TestStopClosesTheConnection(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{ProbeEvery: time.Hour, ProbeTimeout: time.Hour}, false)
	begin := time.Now()
	l.stop()
	if d := time.Since(begin); d > patience/10 {
		t.Errorf("stopping took %v", d)
	}
	if !l.conn.Load().IsClosed() {
		t.Error("the connection was left open")
	}
}
