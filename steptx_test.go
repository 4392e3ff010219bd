package kagzi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestStepTxThatCannotCommit has a transactional step's function report success although its transaction cannot be
// committed: that is a failed attempt, of which the policy allows so many, and no outage to be waited out.
func TestStepTxThatCannotCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fn    func(context.Context, *kit, pgx.Tx) error
		kind  Kind
		calls int64
		says  string
	}{
		{"AQueryWasCutOff", func(ctx context.Context, _ *kit, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, _ = tx.Exec(short, `SELECT pg_sleep(60)`) // "best effort": it costs the connection
			return nil
		}, KindDatabase, 2, "lost its connection"},
		{"AStatementFailed", func(ctx context.Context, _ *kit, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return nil
		}, KindUnknown, 2, "a statement of the step failed"},
		{"ItCancelsItsOwnRun", func(ctx context.Context, k *kit, tx pgx.Tx) error {
			return k.c.Cancel(ctx, CurrentStep(ctx).Run, InTx(tx))
		}, KindBadRequest, 1, "ends its own run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			var calls atomic.Int64
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				return 0, DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if calls.Add(1) > 10 {
						return Permanent(errors.New("it is repeated for ever"))
					}
					return tt.fn(ctx, k, tx)
				}, RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
			})
			re := failureOf(k, begin(k, wf, 1), StatusFailed)
			if re.Kind != tt.kind {
				t.Errorf("the failure is of kind %s, want %s", re.Kind, tt.kind)
			}
			mustContain(t, re, tt.says)
			if n := calls.Load(); n != tt.calls {
				t.Errorf("the step was executed %d times, want %d", n, tt.calls)
			}
		})
	}
}

// TestLongStepTxOfAStricterIsolation has a transactional step take longer than it takes for a step to be shown in the
// table. In its snapshot the row would not be there, and its record would fail, each time anew.
func TestLongStepTxOfAStricterIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			var calls atomic.Int64
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				return 0, DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					calls.Add(1)
					if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL `+level); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, (visibleAfter + 300*time.Millisecond).Seconds())
					return err
				}, RetryPolicy{MaxAttempts: 1})
			})
			resultOf(k, begin(k, wf, 1))
			if n := calls.Load(); n != 1 {
				t.Errorf("the step was executed %d times", n)
			}
		})
	}
}
