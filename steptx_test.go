package kagzi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
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
					_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, 1.3 /* the attempt is shown after a second */)
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

func TestStepTx(t *testing.T) {
	t.Parallel()
	table := func(k *kit) {
		k.exec(`CREATE TABLE public.orders (id int PRIMARY KEY, parent int REFERENCES public.orders DEFERRABLE INITIALLY DEFERRED)`)
	}
	insert := func(ctx context.Context, tx pgx.Tx, id, parent int) error {
		_, err := tx.Exec(ctx, `INSERT INTO public.orders VALUES ($1, nullif($2, 0))`, id, parent)
		return err
	}
	for _, tt := range []struct {
		name  string
		fn    func(ctx context.Context, tx pgx.Tx, attempt int) error
		kind  Kind // "" if the step completes
		rows  int
		fails int // attempts that failed
	}{
		{"Commits", func(ctx context.Context, tx pgx.Tx, _ int) error { return insert(ctx, tx, 1, 0) }, "", 1, 0},
		{"AnErrorRollsBack", func(ctx context.Context, tx pgx.Tx, n int) error {
			if err := insert(ctx, tx, n, 0); err != nil || n == 2 {
				return err
			}
			return KindNetwork
		}, "", 1, 1},
		{"APanicRollsBack", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_ = insert(ctx, tx, 1, 0)
			panic("ouch")
		}, KindPanic, 0, 1},
		{"EndingItIsRefused", func(ctx context.Context, tx pgx.Tx, _ int) error {
			if err := tx.Commit(ctx); err == nil || !strings.Contains(err.Error(), "return from the function") {
				return Permanent(fmt.Errorf("commit: %w", err))
			}
			return insert(ctx, tx, 1, 0)
		}, "", 1, 0},
		{"RollbackWithoutAnErrorIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			if err := insert(ctx, tx, 1, 0); err != nil {
				return err
			}
			if err := tx.Rollback(ctx); err == nil {
				return errors.New("the engine's transaction is rolled back")
			}
			return nil
		}, KindBadRequest, 0, 1},
		{"DeferredRollbackWithoutAnErrorIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			defer func() { _ = tx.Rollback(ctx) }()
			return insert(ctx, tx, 1, 0)
		}, KindBadRequest, 0, 1},
		{"RollbackWithAnErrorIsThatError", func(ctx context.Context, tx pgx.Tx, n int) error {
			if n == 1 {
				defer func() { _ = tx.Rollback(ctx) }()
				return errors.Join(insert(ctx, tx, 7, 0), KindNetwork)
			}
			return insert(ctx, tx, 1, 0)
		}, "", 1, 1},
		{"ItsRefusalIsFinal", func(ctx context.Context, tx pgx.Tx, _ int) error {
			return fmt.Errorf("commit: %w", errors.Join(insert(ctx, tx, 1, 0), tx.Commit(ctx)))
		}, KindBadRequest, 0, 1},
		{"EndingItInSQLIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_ = insert(ctx, tx, 1, 0)
			_, err := tx.Exec(ctx, "ROLLBACK")
			return err
		}, KindBadRequest, 0, 1},
		{"SavepointsAreFine", func(ctx context.Context, tx pgx.Tx, _ int) error {
			return errors.Join(pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return insert(ctx, tx, 1, 0) }),
				func() error {
					sub, err := tx.Begin(ctx)
					if err != nil {
						return err
					}
					return errors.Join(insert(ctx, sub, 2, 0), sub.Rollback(ctx))
				}())
		}, "", 1, 0},
		{"ADeferredConstraintIsTheAttemptsFailure", func(ctx context.Context, tx pgx.Tx, _ int) error { return insert(ctx, tx, 1, 99) }, KindValidation, 0, 1},
		{"AnAbortedTransactionIsTheAttemptsFailure", func(ctx context.Context, tx pgx.Tx, n int) error {
			if err := insert(ctx, tx, 1, 0); err != nil {
				return err
			}
			if n == 1 {
				_, _ = tx.Exec(ctx, "SELECT 1/0") // and ignores it
			}
			return nil
		}, "", 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			table(k)
			wf := Define[struct{}, int]("wf", noRetry)
			serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
				return 1, DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
					return tt.fn(ctx, tx, CurrentStep(ctx).Attempt)
				}, RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
			})
			run := begin(k, wf, struct{}{})
			if tt.kind == "" {
				resultOf(k, run)
			} else if re := failureOf(k, run, StatusFailed); re.Kind != tt.kind {
				t.Errorf("kind %q: %v", re.Kind, re)
			}
			failed := 0
			for _, s := range k.steps(run.ID())["s"] {
				if s.Status == StatusFailed {
					failed++
				}
			}
			if n := k.count(`SELECT count(*) FROM public.orders`); n != tt.rows || failed != tt.fails {
				t.Errorf("%d rows after %d failed attempts; want %d after %d", n, failed, tt.rows, tt.fails)
			}
		})
	}
	t.Run("MoreThanThePoolHas", func(t *testing.T) {
		k := newKit(t, dbtest.MaxConns(3))
		table(k)
		wf := Define[int, int]("wf")
		serve(k, wf, func(ctx Context, n int) (int, error) {
			for i := range 2 {
				if err := DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error { return insert(ctx, tx, 2*n+i, 0) }); err != nil {
					return 0, err
				}
			}
			return n, nil
		})
		calls := make([]Call, 50)
		for i := range calls {
			calls[i] = wf.With(i)
		}
		started, err := k.c.StartMany(k.ctx, calls)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range started {
			run, err := Find(k.ctx, k.c, wf, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			resultOf(k, run)
		}
		if n := k.count(`SELECT count(*) FROM public.orders`); n != 100 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("AResultAfterTheTimeoutCommitsNothing", func(t *testing.T) {
		k := newKit(t)
		table(k)
		wf := Define[struct{}, int]("wf", noRetry)
		serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			return 0, DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
				err := insert(context.WithoutCancel(ctx), tx, 1, 0)
				<-ctx.Done()
				return err
			}, noRetry, Timeout(50*time.Millisecond))
		})
		re := failureOf(k, begin(k, wf, struct{}{}), StatusFailed)
		if re.Kind != KindTimeout {
			t.Errorf("kind %q: %v", re.Kind, re)
		}
		if n := k.count(`SELECT count(*) FROM public.orders`); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("ACancelledRunCommitsNothing", func(t *testing.T) {
		k := newKit(t)
		table(k)
		wf := Define[struct{}, int]("wf")
		inside := make(chan struct{})
		stop := serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
			return 0, DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
				if err := insert(ctx, tx, 1, 0); err != nil {
					return err
				}
				close(inside)
				<-ctx.Done()
				return nil
			})
		})
		run := begin(k, wf, struct{}{})
		<-inside
		k.cancel(run.ID())
		failureOf(k, run, StatusCancelled)
		stop()
		if n := k.count(`SELECT count(*) FROM public.orders`); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestStepTxBehindAGoexit: a step ends its goroutine, and a transactional one follows from that. The record of the first,
// for which nobody waits, is there once the transaction has committed.
func TestStepTxBehindAGoexit(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, int]("wf", noRetry)
	w := newTestWorker(t, newTestClient(t, k.pool), unwatched)
	Handle(w, wf, func(ctx Context, _ struct{}) (int, error) {
		f := Go(ctx, "b", func(ctx Context) (int, error) {
			return 0, Do(ctx, "exits", func(context.Context) error { runtime.Goexit(); return nil })
		})
		if _, err := f.Result(ctx); err == nil {
			return 0, nil
		}
		return StepTx(ctx, "charge", func(context.Context, pgx.Tx) (int, error) { return 7, nil })
	})
	hung, release := hangAt(t, w, "after record")
	defer release()
	startWorker(t, w)
	run := begin(k, wf, struct{}{})
	<-hung
	steps := k.steps(run.ID())
	if a := steps["charge"]; len(a) != 1 || a[0].Status != StatusCompleted {
		t.Errorf("INVALID: charge is recorded as %+v", a)
	}
	if a := steps["b/exits"]; len(a) != 1 || a[0].Kind != KindPanic {
		t.Errorf("the step that ended its goroutine is recorded as %+v", a)
	}
}

// TestIsolationOfAStepTx has a signal reach the run while its transactional step has a snapshot. READ COMMITTED, which is the
// level whatever the database's default, does not notice; of a stricter one, which the step asks for, that is a failed attempt.
func TestIsolationOfAStepTx(t *testing.T) {
	t.Parallel()
	set := func(level string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL `+level)
			return err
		}
	}
	none := func(context.Context, pgx.Tx) error { return nil }
	for _, tt := range []struct {
		name  string
		opts  []StepOption
		begin func(context.Context, pgx.Tx) error
		level string
		fails int
	}{
		{"TheDefaultIsReadCommitted", nil, none, "read committed", 0},
		{"ReadCommitted", []StepOption{Isolation(pgx.ReadCommitted)}, none, "read committed", 0},
		{"RepeatableRead", []StepOption{Isolation(pgx.RepeatableRead)}, none, "repeatable read", 1},
		{"Serializable", []StepOption{Isolation(pgx.Serializable)}, none, "serializable", 1},
		{"TheLastCounts", []StepOption{Isolation(pgx.Serializable), Isolation(pgx.ReadCommitted)}, none, "read committed", 0},
		{"SetInSQL", nil, set("REPEATABLE READ"), "repeatable read", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := newTestClient(t, poolWith(t, db.DSN, "default_transaction_isolation", "serializable"))
			k := &kit{t: t, ctx: testContext(t), pool: db.Pool, c: newTestClient(t, db.Pool)}
			wf, hello := Define[struct{}, int]("wf", noRetry), DefineSignal[int]("hello")
			w := newTestWorker(t, c, WorkerConfig{})
			var calls atomic.Int64
			Handle(w, wf, func(ctx Context, _ struct{}) (int, error) {
				return 0, DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
					if err := tt.begin(ctx, tx); err != nil {
						return err
					}
					var level string
					if err := tx.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&level); err != nil || level != tt.level {
						t.Errorf("the level is %q, %v", level, err)
					}
					var now time.Time
					if err := tx.QueryRow(ctx, `SELECT now() FROM kagzi.workflow_runs`).Scan(&now); err != nil || calls.Add(1) > 1 {
						return err
					}
					return k.c.Signal(ctx, CurrentStep(ctx).Run, hello.With(1))
				}, append(tt.opts, soon)...)
			})
			startWorker(t, w)
			run := begin(k, wf, struct{}{})
			resultOf(k, run)
			failed := 0
			for _, s := range k.steps(run.ID())["s"] {
				if s.Status == StatusFailed && s.Kind == KindDatabase {
					failed++
				}
			}
			if n := int(calls.Load()); failed != tt.fails || n != tt.fails+1 {
				t.Errorf("%d executions, of which %d are recorded as failed; want %d failures", n, failed, tt.fails)
			}
		})
	}
}

func TestBadIsolation(t *testing.T) {
	k := newKit(t)
	refused(k, func(ctx Context) (int, error) {
		nothing := func(context.Context, pgx.Tx) error { return nil }
		mustContain(t, DoTx(ctx, "s", nothing, Isolation(pgx.ReadUncommitted)), "READ UNCOMMITTED", "leave Isolation out")
		mustContain(t, DoTx(ctx, "s", nothing, Isolation("snapshot")), `no isolation level "snapshot"`, "pgx.Serializable")
		mustContain(t, DoTx(ctx, "s", nothing, Isolation("")), `no isolation level ""`)
		mustContain(t, Do(ctx, "s", func(context.Context) error { return nil }, Isolation(pgx.Serializable)), "use StepTx or DoTx")
		return 0, nil
	})
}
