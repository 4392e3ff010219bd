package language_test

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

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestStepTxThatCannotCommit has a transactional step's function report success although its transaction cannot be
// committed: this counts as a failed attempt under the policy, and not as an outage.
func TestStepTxThatCannotCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fn    func(context.Context, *kit.Kit, pgx.Tx) error
		kind  kind.Kind
		calls int64
		says  string
	}{
		{"AQueryWasCutOff", func(ctx context.Context, _ *kit.Kit, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, _ = tx.Exec(short, `SELECT pg_sleep(60)`) // "best effort": it costs the connection
			return nil
		}, kind.Database, 2, "lost its connection"},
		{"AStatementFailed", func(ctx context.Context, _ *kit.Kit, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return nil
		}, kind.Unknown, 2, "a statement of the step failed"},
		{"ItCancelsItsOwnRun", func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error {
			return k.Client.Cancel(ctx, kagzi.CurrentStep(ctx).Run, kagzi.InTx(tx))
		}, kind.BadRequest, 1, "ends its own run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if calls.Add(1) > 10 {
						return kagzi.Permanent(errors.New("it is repeated for ever"))
					}
					return tt.fn(ctx, k, tx)
				}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
			})
			re := kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
			if re.Kind != tt.kind {
				t.Errorf("the failure is of kind %s, want %s", re.Kind, tt.kind)
			}
			kit.MustContain(t, re, tt.says)
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
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					calls.Add(1)
					if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL `+level); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, 1.3 /* the attempt is shown after a second */)
					return err
				}, kagzi.RetryPolicy{MaxAttempts: 1})
			})
			kit.ResultOf(k, kit.Begin(k, wf, 1))
			if n := calls.Load(); n != 1 {
				t.Errorf("the step was executed %d times", n)
			}
		})
	}
}

func TestStepTx(t *testing.T) {
	t.Parallel()
	table := func(k *kit.Kit) {
		k.Exec(`CREATE TABLE public.orders (id int PRIMARY KEY,
			parent int REFERENCES public.orders DEFERRABLE INITIALLY DEFERRED)`)
	}
	insert := func(ctx context.Context, tx pgx.Tx, id, parent int) error {
		_, err := tx.Exec(ctx, `INSERT INTO public.orders VALUES ($1, nullif($2, 0))`, id, parent)
		return err
	}
	for _, tt := range []struct {
		name  string
		fn    func(ctx context.Context, tx pgx.Tx, attempt int) error
		kind  kind.Kind // "" if the step completes
		rows  int
		fails int // attempts that failed
	}{
		{"Commits", func(ctx context.Context, tx pgx.Tx, _ int) error { return insert(ctx, tx, 1, 0) }, "", 1, 0},
		{"AnErrorRollsBack", func(ctx context.Context, tx pgx.Tx, n int) error {
			if err := insert(ctx, tx, n, 0); err != nil || n == 2 {
				return err
			}
			return kind.Network
		}, "", 1, 1},
		{"APanicRollsBack", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_ = insert(ctx, tx, 1, 0)
			panic("ouch")
		}, kind.Panic, 0, 1},
		{"EndingItIsRefused", func(ctx context.Context, tx pgx.Tx, _ int) error {
			if err := tx.Commit(ctx); err == nil || !strings.Contains(err.Error(), "return from the function") {
				return kagzi.Permanent(fmt.Errorf("commit: %w", err))
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
		}, kind.BadRequest, 0, 1},
		{"DeferredRollbackWithoutAnErrorIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			defer func() { _ = tx.Rollback(ctx) }()
			return insert(ctx, tx, 1, 0)
		}, kind.BadRequest, 0, 1},
		{"RollbackWithAnErrorIsThatError", func(ctx context.Context, tx pgx.Tx, n int) error {
			if n == 1 {
				defer func() { _ = tx.Rollback(ctx) }()
				return errors.Join(insert(ctx, tx, 7, 0), kind.Network)
			}
			return insert(ctx, tx, 1, 0)
		}, "", 1, 1},
		{"ItsRefusalIsFinal", func(ctx context.Context, tx pgx.Tx, _ int) error {
			return fmt.Errorf("commit: %w", errors.Join(insert(ctx, tx, 1, 0), tx.Commit(ctx)))
		}, kind.BadRequest, 0, 1},
		{"EndingItInSQLIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_ = insert(ctx, tx, 1, 0)
			_, err := tx.Exec(ctx, "ROLLBACK")
			return err
		}, kind.BadRequest, 0, 1},
		{"ChainingAnotherTransactionIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_ = insert(ctx, tx, 1, 0)
			_, err := tx.Exec(ctx, "ROLLBACK AND CHAIN")
			return err
		}, kind.BadRequest, 0, 1},
		{"BeginningAnotherTransactionIsAFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_ = insert(ctx, tx, 1, 0)
			_, err := tx.Exec(ctx, "COMMIT; BEGIN")
			return err
		}, kind.BadRequest, 1, 1},
		{"ItCannotBeMadeReadOnly", func(ctx context.Context, tx pgx.Tx, _ int) error {
			_, err := tx.Exec(ctx, "SET LOCAL transaction_read_only = on")
			return err
		}, kind.BadRequest, 0, 1},
		{"AWriteAfterItIsMadeReadOnlyIsTheAttemptsFailure", func(ctx context.Context, tx pgx.Tx, n int) error {
			if n == 1 {
				if _, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY"); err != nil {
					return err
				}
			}
			return insert(ctx, tx, 1, 0)
		}, "", 1, 1},
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
		{"ADeferredConstraintIsTheAttemptsFailure", func(ctx context.Context, tx pgx.Tx, _ int) error {
			return insert(ctx, tx, 1, 99)
		}, kind.Validation, 0, 1},
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
			k := kit.New(t)
			table(k)
			wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				return 1, kagzi.DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
					return tt.fn(ctx, tx, kagzi.CurrentStep(ctx).Attempt)
				}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
			})
			run := kit.Begin(k, wf, struct{}{})
			if tt.kind == "" {
				kit.ResultOf(k, run)
			} else if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != tt.kind {
				t.Errorf("kind %q: %v", re.Kind, re)
			}
			failed := 0
			for _, s := range k.Steps(run.ID())["s"] {
				if s.Status == kagzi.StatusFailed {
					failed++
				}
			}
			if n := k.Count(`SELECT count(*) FROM public.orders`); n != tt.rows || failed != tt.fails {
				t.Errorf("%d rows after %d failed attempts; want %d after %d", n, failed, tt.rows, tt.fails)
			}
		})
	}
	t.Run("MoreThanThePoolHas", func(t *testing.T) {
		k := kit.New(t, dbtest.MaxConns(3))
		table(k)
		wf := kagzi.Define[int, int]("wf")
		kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
			for i := range 2 {
				if err := kagzi.DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
					return insert(ctx, tx, 2*n+i, 0)
				}); err != nil {
					return 0, err
				}
			}
			return n, nil
		})
		calls := make([]kagzi.Call, 50)
		for i := range calls {
			calls[i] = wf.With(i)
		}
		started, err := k.Client.StartMany(k.Ctx, calls)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range started {
			run, err := kagzi.Find(k.Ctx, k.Client, wf, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			kit.ResultOf(k, run)
		}
		if n := k.Count(`SELECT count(*) FROM public.orders`); n != 100 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("AResultAfterTheTimeoutCommitsNothing", func(t *testing.T) {
		k := kit.New(t)
		table(k)
		wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			return 0, kagzi.DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
				err := insert(context.WithoutCancel(ctx), tx, 1, 0)
				<-ctx.Done()
				return err
			}, kit.NoRetry, kagzi.Timeout(50*time.Millisecond))
		})
		re := kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed)
		if re.Kind != kind.Timeout {
			t.Errorf("kind %q: %v", re.Kind, re)
		}
		if n := k.Count(`SELECT count(*) FROM public.orders`); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("ACancelledRunCommitsNothing", func(t *testing.T) {
		k := kit.New(t)
		table(k)
		wf := kagzi.Define[struct{}, int]("wf")
		inside := make(chan struct{})
		stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			return 0, kagzi.DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
				if err := insert(ctx, tx, 1, 0); err != nil {
					return err
				}
				close(inside)
				<-ctx.Done()
				return nil
			})
		})
		run := kit.Begin(k, wf, struct{}{})
		await.Receive(t, inside)
		k.Cancel(run.ID())
		kit.FailureOf(k, run, kagzi.StatusCancelled)
		stop()
		if n := k.Count(`SELECT count(*) FROM public.orders`); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestStepTxBehindAGoexit: a step ends its goroutine, and a transactional step follows. Nothing waits for the record of
// the first step, but it exists once the transaction has committed.
func TestStepTxBehindAGoexit(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.Unmonitored)
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		f := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			return 0, kagzi.Do(ctx, "exits", func(context.Context) error { runtime.Goexit(); return nil })
		})
		if _, err := f.Result(ctx); err == nil {
			return 0, nil
		}
		return kagzi.StepTx(ctx, "charge", func(context.Context, pgx.Tx) (int, error) { return 7, nil })
	})
	hung, release := kit.HangAt(t, w, "after record")
	defer release()
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, struct{}{})
	await.Receive(t, hung)
	steps := k.Steps(run.ID())
	if a := steps["charge"]; len(a) != 1 || a[0].Status != kagzi.StatusCompleted {
		t.Errorf("INVALID: charge is recorded as %+v", a)
	}
	if a := steps["b/exits"]; len(a) != 1 || a[0].Kind != kind.Panic {
		t.Errorf("the step that ended its goroutine is recorded as %+v", a)
	}
}

// TestIsolationOfAStepTx has a signal reach the run while its transactional step has a snapshot. READ COMMITTED, which
// is the level whatever the database's default, does not notice; of a stricter one, which the step asks for, that is a
// failed attempt.
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
		opts  []kagzi.StepOption
		begin func(context.Context, pgx.Tx) error
		level string
		fails int
	}{
		{"TheDefaultIsReadCommitted", nil, none, "read committed", 0},
		{"ReadCommitted", []kagzi.StepOption{kagzi.Isolation(pgx.ReadCommitted)}, none, "read committed", 0},
		{"RepeatableRead", []kagzi.StepOption{kagzi.Isolation(pgx.RepeatableRead)}, none, "repeatable read", 1},
		{"Serializable", []kagzi.StepOption{kagzi.Isolation(pgx.Serializable)}, none, "serializable", 1},
		{
			"TheLastCounts",
			[]kagzi.StepOption{kagzi.Isolation(pgx.Serializable), kagzi.Isolation(pgx.ReadCommitted)},
			none, "read committed", 0,
		},
		{"SetInSQL", nil, set("REPEATABLE READ"), "repeatable read", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t,
				dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_isolation", "serializable")))
			k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
			wf, hello := kagzi.Define[struct{}, int]("wf", kit.NoRetry), kagzi.DefineSignal[int]("hello")
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
			var calls atomic.Int64
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				return 0, kagzi.DoTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
					if err := tt.begin(ctx, tx); err != nil {
						return err
					}
					var level string
					if err := tx.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&level); err != nil ||
						level != tt.level {
						t.Errorf("the level is %q, %v", level, err)
					}
					var now time.Time
					if err := tx.QueryRow(ctx, `SELECT now() FROM kagzi.workflow_runs`).Scan(&now); err != nil ||
						calls.Add(1) > 1 {
						return err
					}
					return k.Client.Signal(ctx, kagzi.CurrentStep(ctx).Run, hello.With(1))
				}, append(tt.opts, kit.Soon)...)
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, struct{}{})
			kit.ResultOf(k, run)
			failed := 0
			for _, s := range k.Steps(run.ID())["s"] {
				if s.Status == kagzi.StatusFailed && s.Kind == kind.Database {
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
	k := kit.New(t)
	kit.Refused(k, func(ctx kagzi.Context) (int, error) {
		nothing := func(context.Context, pgx.Tx) error { return nil }
		kit.MustContain(t, kagzi.DoTx(ctx, "s", nothing, kagzi.Isolation(pgx.ReadUncommitted)), "READ UNCOMMITTED",
			"leave Isolation out")
		kit.MustContain(t, kagzi.DoTx(ctx, "s", nothing, kagzi.Isolation("snapshot")), `no isolation level "snapshot"`,
			"pgx.Serializable")
		kit.MustContain(t, kagzi.DoTx(ctx, "s", nothing, kagzi.Isolation("")), `no isolation level ""`)
		kit.MustContain(t, kagzi.Do(ctx, "s", func(context.Context) error { return nil },
			kagzi.Isolation(pgx.Serializable)), "use StepTx or DoTx")
		return 0, nil
	})
}
