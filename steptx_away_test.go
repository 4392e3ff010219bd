package kagzi

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// endBackend ends the connection of tx from outside of it.
func (k *kit) endBackend(tx pgx.Tx) {
	k.exec(`SELECT pg_terminate_backend($1)`, int32(tx.Conn().PgConn().PID()))
}

// TestConnectionsLostInAStepTxAreNotCounted ends the connection of a transactional step more often than the step may fail:
// that is the database's trouble. What is the function's own is counted, whatever it looks like.
func TestConnectionsLostInAStepTxAreNotCounted(t *testing.T) {
	t.Parallel()
	const losses = 3
	elsewhere := fmt.Errorf("ask another database: %w", &pgconn.PgError{Code: "57P01", Severity: "FATAL", Message: "terminating connection"})
	for _, tt := range []struct {
		name  string
		fn    func(ctx context.Context, k *kit, tx pgx.Tx) error
		calls int64
		fails bool
	}{
		{"InAQuery", func(ctx context.Context, k *kit, tx pgx.Tx) error {
			k.endBackend(tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return fmt.Errorf("book: %w", err)
		}, losses + 1, false},
		{"BeforeTheCommit", func(_ context.Context, k *kit, tx pgx.Tx) error {
			k.endBackend(tx)
			return nil
		}, losses + 1, false},
		{"OfAnotherDatabase", func(context.Context, *kit, pgx.Tx) error { return elsewhere }, 1, true},
		{"ItCutsItsOwnQueryOff", func(ctx context.Context, _ *kit, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(short, `SELECT pg_sleep(60)`)
			return err
		}, 1, true},
		{"Permanent", func(ctx context.Context, k *kit, tx pgx.Tx) error {
			k.endBackend(tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return Permanent(err)
		}, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			var calls atomic.Int64
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				return 0, DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if n := calls.Add(1); CurrentStep(ctx).Attempt != 1 {
						t.Errorf("call %d is attempt %d", n, CurrentStep(ctx).Attempt)
					}
					if calls.Load() > losses {
						return nil
					}
					return tt.fn(ctx, k, tx)
				}, RetryPolicy{MaxAttempts: 1})
			})
			run := begin(k, wf, 1)
			if tt.fails {
				failureOf(k, run, StatusFailed)
			} else {
				resultOf(k, run)
			}
			if n := calls.Load(); n != tt.calls {
				t.Errorf("the function was called %d times, want %d", n, tt.calls)
			}
		})
	}
}

// TestStepTxThatAlwaysLosesItsConnection has a transactional step lose its connection each time: after a while that is
// counted, and the step fails.
func TestStepTxThatAlwaysLosesItsConnection(t *testing.T) {
	t.Parallel()
	k := newKitWith(t, ClientConfig{}, dbtest.Unchecked())
	wf := Define[int, int]("wf", noRetry)
	w := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{})
	w.awayPatience = 600 * time.Millisecond
	var calls atomic.Int64
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		return 0, DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
			calls.Add(1)
			k.endBackend(tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}, RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	startWorker(t, w)
	run := begin(k, wf, 1)
	re := failureOf(k, run, StatusFailed)
	if calls.Load() < 2 {
		t.Errorf("%v after %d calls", re, calls.Load())
	}
	if got := k.steps(run.ID())["books"]; len(got) != 2 {
		t.Errorf("attempts %+v, want 2", got)
	}
}

// TestAReadOnlyConnectionOfAStepTxIsNotKept has the transaction of a step be read-only, as on a server that is a standby
// since: the step is repeated on another connection, and that one is closed.
func TestAReadOnlyConnectionOfAStepTxIsNotKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fn   func(ctx context.Context, tx pgx.Tx) error
	}{
		{"InAQuery", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TABLE public.t ()`)
			return err
		}},
		{"AtTheRecord", func(context.Context, pgx.Tx) error { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			var first atomic.Uint32 // the connection of the first call
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				return 0, DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if !first.CompareAndSwap(0, tx.Conn().PgConn().PID()) {
						return nil
					}
					if _, err := tx.Exec(ctx, `SET TRANSACTION READ ONLY`); err != nil {
						return err
					}
					return tt.fn(ctx, tx)
				}, RetryPolicy{MaxAttempts: 1})
			})
			resultOf(k, begin(k, wf, 1))
			waitFor(t, "the connection is closed", func() bool {
				return k.count(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, int32(first.Load())) == 0
			})
		})
	}
}
