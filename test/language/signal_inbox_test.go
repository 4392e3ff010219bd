package language_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// fill stores n messages of a name, of so many bytes each, as if they had been sent.
func fill(k *kit.Kit, run kagzi.RunID, name string, n, bytes int) {
	k.T.Helper()
	k.Exec(`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id, payload)
		SELECT run_id, $2, wakeups + n, namespace_id, $2 || n, convert_to('"' || repeat('x', $4) || '"', 'UTF8')
		FROM kagzi.workflow_runs, generate_series(1, $3::int) n WHERE run_id = $1`, string(run), name, n, bytes)
	k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = wakeups + $2 WHERE run_id = $1`, string(run), n)
}

// countingClient returns a client with a pool of its own, and how many bytes it has received.
func countingClient(t *testing.T, k *kit.Kit) (*kagzi.Client, *atomic.Int64) {
	t.Helper()
	received := &atomic.Int64{}
	cfg := k.Pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return counted{c, received}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return kit.NewClient(t, pool), received
}

// counted is a connection that counts the bytes that it receives.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// A run that has many messages which no branch waits for reads those that one waits for, and not the others.
func TestOnlyAwaitedMessagesAreRead(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	const most = 16 << 20                                     // in three executions, of 64 MiB that no branch waits for
	for _, name := range []string{"aapproved", "zapproved"} { // before and behind the awaited name
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			run := kit.Begin(k, wf, struct{}{}, kagzi.Delay(time.Hour))
			fill(k, run.ID(), name, 64, 1<<20)
			k.Signal(run, kit.Approved.With("a"))
			c, received := countingClient(t, k)
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, reading(3, kit.Approved))
			k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
			kit.StartWorker(t, w)
			await.True(t, "the first is read", func() bool { return k.Count(unread) == 64 })
			k.WaitStatus(run, kagzi.StatusSleeping, "signal approved")
			k.Signal(run, kit.Approved.With("b"))
			await.True(t, "the second is read", func() bool { return k.Count(unread) == 64 })
			k.Signal(run, kit.Approved.With("c"))
			if got := kit.ResultOf(k, run); got != "a b c" {
				t.Errorf("got %q", got)
			}
			if n := received.Load(); n > most {
				t.Errorf("the worker has read %d MiB", n>>20)
			}
		})
	}
	// Messages of one name are more than a page.
	t.Run("Pages", func(t *testing.T) {
		k := kit.New(t)
		const n = 5
		run := kit.Begin(k, wf, struct{}{}, kagzi.Delay(time.Hour))
		for i := range n { // the first page ends within them; one is larger than a page
			k.Signal(run, kit.Approved.With(fmt.Sprint(i)+strings.Repeat("x", []int{400, 900, 1200, 10, 600}[i]<<10)))
		}
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			order := ""
			for range n {
				s, err := kagzi.WaitSignal(ctx, kit.Approved)
				if err != nil {
					return "", err
				}
				order += s[:1]
			}
			return order, nil
		})
		k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
		if got := kit.ResultOf(k, run); got != "01234" {
			t.Errorf("got %q", got)
		}
	})
	// A message that arrives while the run is in memory, behind a full page.
	t.Run("WhileBusy", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, struct{}{}, kagzi.Delay(time.Hour))
		fill(k, run.ID(), "aapproved", 4, 1<<20)
		begun, read := make(chan struct{}), make(chan struct{})
		kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			f := kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (string, error) {
				return kagzi.Step(ctx, "s", func(context.Context) (string, error) {
					close(begun)
					<-read
					return "", nil
				})
			})
			got, err := kagzi.WaitSignal(ctx, kit.Approved)
			close(read)
			return got, errors.Join(err, kit.Second(f.Result(ctx)))
		})
		k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
		kit.WakeWorkers(t, k.Pool)
		await.Receive(t, begun)
		k.Signal(run, kit.Approved.With("a"))
		if got := kit.ResultOf(k, run); got != "a" {
			t.Errorf("got %q", got)
		}
	})
}

// A run takes no more than 10,000 messages that it has not read.
func TestFullInbox(t *testing.T) {
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	k := kit.New(t)
	run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"), kagzi.Delay(time.Hour))
	fill(k, run.ID(), "aproved", store.MostUnread-1, 1)
	k.Signal(run, kit.Approved.With("a").WithID("last"))
	full := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, kagzi.ErrInboxFull) || kagzi.KindOf(err) != kind.RateLimited ||
			!strings.Contains(err.Error(), "10000 messages that it has not read") {
			t.Errorf("%s: %v", what, err)
		}
	}
	full("a signal", k.Client.Signal(k.Ctx, run, kit.Approved.With("b")))
	full("a person's signal", k.Client.Signal(k.Ctx, run, kit.Approved.With("b"), kagzi.Actor("ada")))
	_, err := kagzi.Start(k.Ctx, k.Client, wf, struct{}{}, kagzi.ID("x"), kit.Approved.With("b"))
	full("a start", err)
	tx := k.CallersTx()
	full("in a transaction", k.Client.Signal(k.Ctx, run, kit.Approved.With("b"), kagzi.InTx(tx)))
	if _, err := tx.Exec(k.Ctx, "SELECT 1"); err != nil {
		t.Errorf("the transaction is broken: %v", err)
	}
	kit.RollbackTx(t, tx)
	k.Signal(run, kit.Approved.With("a").WithID("last")) // again: it is there

	kit.Serve(k, wf, reading(2, kit.Approved))
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now()`)
	await.True(t, "one is read", func() bool { return k.Count(unread) == store.MostUnread-1 })
	k.Signal(run, kit.Approved.With("b"))
	if got := kit.ResultOf(k, run); got != "a b" {
		t.Errorf("got %q", got)
	}
}
