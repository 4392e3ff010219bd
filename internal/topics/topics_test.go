package topics

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const insertion = "INSERT INTO kagzi.events "

type fixture struct {
	t      *testing.T
	db     *dbtest.DB
	proxy  *pgproxy.Proxy
	topics *Topics
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	pool := dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(10), func(cfg *pgxpool.Config) {
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	for range 6 { // a shared statement does not wait long for a connection
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	return &fixture{t: t, db: db, proxy: proxy, topics: newTopics(t, pool)}
}

func newTopics(t *testing.T, pool *pgxpool.Pool) *Topics {
	s := store.New(pool, "default")
	return New(s, hints.New(s, testlog.New(t), func(context.Context) error { return nil }))
}

func event(id string, named bool) *store.NewEvent {
	return &store.NewEvent{Topic: "a", ID: id, Named: named, Payload: []byte(`1`)}
}

// publish publishes the event, and returns once it is in the batcher, with a channel for the call's error.
func (f *fixture) publish(ctx context.Context, e *store.NewEvent) <-chan error {
	f.t.Helper()
	w := waits{ctx, new(sync.Once), make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- f.topics.Publish(w, nil, []*store.NewEvent{e}) }()
	await.Receive(f.t, w.begun)
	return ended
}

// waits is a context that tells when its caller waits for the batcher.
type waits struct {
	context.Context
	once  *sync.Once
	begun chan struct{}
}

func (w waits) Done() <-chan struct{} {
	w.once.Do(func() { close(w.begun) })
	return w.Context.Done()
}

// busy makes the batcher busy until release is called.
func (f *fixture) busy() (release func()) {
	f.t.Helper()
	hold := f.proxy.HoldAck(pgproxy.Contains(insertion))
	first := f.publish(f.t.Context(), event("first", false))
	await.True(f.t, "the first statement is under way", hold.Holds)
	return func() {
		hold.Release()
		if err := await.Receive(f.t, first); err != nil {
			f.t.Error(err)
		}
	}
}

// statements counts the statements that insert from now on.
func (f *fixture) statements() func() int {
	var mu sync.Mutex
	n := 0
	f.proxy.DropAck(func(_ int, sql string) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(sql, insertion) {
			n++
		}
		return false
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func (f *fixture) wantEvents(want int) {
	f.t.Helper()
	if n := dbtest.QueryOne[int](f.t, f.db.Pool, `SELECT count(*) FROM kagzi.events`); n != want {
		f.t.Errorf("%d events, want %d", n, want)
	}
}

func TestConcurrentCallsShareAStatement(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	n := f.statements()
	var calls []<-chan error
	for i := range 20 {
		calls = append(calls, f.publish(t.Context(), event(strconv.Itoa(i/2), true)))
	}
	release()
	for _, c := range calls {
		if err := await.Receive(t, c); err != nil {
			t.Error(err)
		}
	}
	if n() != 1 {
		t.Errorf("%d statements", n())
	}
	f.wantEvents(11)
}

// If the shared statement's answer is lost, each call repeats its own event, which is stored once.
func TestLostAnswerOfASharedStatement(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	calls := []<-chan error{f.publish(t.Context(), event("made", false)), f.publish(t.Context(), event("named", true))}
	f.proxy.DropAck(pgproxy.Contains(insertion))
	release()
	for _, c := range calls {
		if err := await.Receive(t, c); err != nil {
			t.Error(err)
		}
	}
	f.wantEvents(3)
}

// An event whose ID an open transaction has holds up no other.
func TestHeldIDHoldsUpNoOther(t *testing.T) {
	f := newFixture(t)
	tx, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := newTopics(t, f.db.Pool).Publish(t.Context(), tx, []*store.NewEvent{event("held", true)}); err != nil {
		t.Fatal(err)
	}
	release := f.busy()
	held := f.publish(t.Context(), event("held", true))
	others := []<-chan error{f.publish(t.Context(), event("made", false)), f.publish(t.Context(), event("named", true))}
	release()
	for _, c := range others {
		if err := await.Receive(t, c); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-held:
		t.Errorf("the held event did not wait: %v", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, held); err != nil {
		t.Error(err)
	}
	f.wantEvents(4)
}

func TestCallThatGivesUp(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	ctx, cancel := context.WithCancel(t.Context())
	unsent := f.publish(ctx, event("unsent", false))
	cancel()
	if err := await.Receive(t, unsent); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "nothing was published") {
		t.Errorf("got %v", err)
	}
	release()
	hold := f.proxy.HoldAck(pgproxy.Contains(insertion))
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	late := f.publish(ctx, event("late", false))
	if err := await.Receive(t, late); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	hold.Release()
	f.topics.shared.Wait()
	if n := dbtest.QueryOne[int](t, f.db.Pool, `SELECT count(*) FROM kagzi.events WHERE event_id = 'unsent'`); n != 0 {
		t.Error("the event of a call that gave up was published")
	}
}
