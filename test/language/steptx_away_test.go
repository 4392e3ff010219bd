package language_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

// endBackend terminates the connection of tx.
func endBackend(k *kit.Kit, tx pgx.Tx) {
	k.Exec(`SELECT pg_terminate_backend($1)`, int32(tx.Conn().PgConn().PID()))
}

// A transactional step loses its connection more often than it may fail. These attempts do not count. Failures of the
// function itself count, even if they look similar.
func TestConnectionsLostInAStepTxAreNotCounted(t *testing.T) {
	t.Parallel()
	const losses = 3
	elsewhere := fmt.Errorf("ask another database: %w", &pgconn.PgError{
		Code: "57P01", Severity: "FATAL",
		Message: "terminating connection",
	})
	for _, tt := range []struct {
		name  string
		fn    func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error
		calls int64
		fails bool
	}{
		{"InAQuery", func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error {
			endBackend(k, tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return fmt.Errorf("book: %w", err)
		}, losses + 1, false},
		{"BeforeTheCommit", func(_ context.Context, k *kit.Kit, tx pgx.Tx) error {
			endBackend(k, tx)
			return nil
		}, losses + 1, false},
		{"OfAnotherDatabase", func(context.Context, *kit.Kit, pgx.Tx) error { return elsewhere }, 1, true},
		{"ItCutsItsOwnQueryOff", func(ctx context.Context, _ *kit.Kit, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(short, `SELECT pg_sleep(60)`)
			return err
		}, 1, true},
		{"Permanent", func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error {
			endBackend(k, tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return kagzi.Permanent(err)
		}, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if n := calls.Add(1); kagzi.CurrentStep(ctx).Attempt != 1 {
						t.Errorf("call %d is attempt %d", n, kagzi.CurrentStep(ctx).Attempt)
					}
					if calls.Load() > losses {
						return nil
					}
					return tt.fn(ctx, k, tx)
				}, kagzi.RetryPolicy{MaxAttempts: 1})
			})
			run := kit.Begin(k, wf, 1)
			if tt.fails {
				kit.FailureOf(k, run, kagzi.StatusFailed)
			} else {
				kit.ResultOf(k, run)
			}
			if n := calls.Load(); n != tt.calls {
				t.Errorf("the function was called %d times, want %d", n, tt.calls)
			}
		})
	}
}

// refuseRecords makes the database refuse the first n records of a step named books.
func refuseRecords(k *kit.Kit, code string, n int) {
	k.T.Helper()
	k.Exec(`CREATE SEQUENCE public.refused`)
	k.Exec(fmt.Sprintf(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('public.refused') <= %d THEN RAISE 'not now' USING ERRCODE = '%s'; END IF;
			RETURN NEW;
		END $$`, n, code))
	k.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.step_runs FOR EACH ROW
		WHEN (NEW.step_id = 'books' AND NEW.status = 'COMPLETED') EXECUTE FUNCTION public.refuse()`)
}

// A transactional step loses its connection, or its record times out, each time. After a while these attempts count,
// and the step fails.
func TestStepTxThatAlwaysLosesItsTransaction(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error{
		"Connection": func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error {
			endBackend(k, tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		},
		"Record": func(context.Context, *kit.Kit, pgx.Tx) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kit.NewWith(t, kagzi.ClientConfig{}, dbtest.Unchecked())
			refuseRecords(k, "55P03", 1000)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{})
			kit.HooksOf(t, w).UncountedTime = 600 * time.Millisecond
			var calls atomic.Int64
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					calls.Add(1)
					return fn(ctx, k, tx)
				}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, 1)
			re := kit.FailureOf(k, run, kagzi.StatusFailed)
			if calls.Load() < 2 {
				t.Errorf("%v after %d calls", re, calls.Load())
			}
			if got := k.Steps(run.ID())["books"]; len(got) != 2 {
				t.Errorf("attempts %+v, want 2", got)
			}
		})
	}
}

// The function of a transactional step succeeds, but its record times out more often than the step may fail. These
// attempts do not count. The failure is logged.
func TestARecordOfAStepTxThatWaitsInVainIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{"Locked": "55P03", "Late": "57014"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const refusals = 2
			var logged testlog.Buffer
			k := kit.NewWith(t, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			refuseRecords(k, code, refusals)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(context.Context, pgx.Tx) error {
					calls.Add(1)
					return nil
				}, kagzi.RetryPolicy{MaxAttempts: 1})
			})
			kit.ResultOf(k, kit.Begin(k, wf, 1))
			if n := calls.Load(); n != refusals+1 {
				t.Errorf("the function was called %d times, want %d", n, refusals+1)
			}
			logged.WantLine(t, "level=WARN", "the attempt is not counted", "not now")
		})
	}
}

// Another transaction locks the run of a transactional step for longer than the timeouts of the role. They do not apply
// to the record, and the function is called once.
func TestAStepTxOutwaitsAStrangersLock(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"lock_timeout", "statement_timeout"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			in, goOn := make(chan bool, 10), make(chan struct{})
			var calls atomic.Int64
			w := kit.NewWorker(t, kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting(setting, "500ms"))),
				kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
				return n, kagzi.DoTx(ctx, "books", func(context.Context, pgx.Tx) error {
					calls.Add(1)
					in <- true
					await.Opened(t, goOn)
					return nil
				}, kagzi.RetryPolicy{MaxAttempts: 1})
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, 1)
			await.Receive(t, in)
			if err := pgx.BeginFunc(k.Ctx, db.Pool, func(stranger pgx.Tx) error {
				k.Signal(run, kit.Approved.With("yes"), kagzi.InTx(stranger))
				close(goOn)
				await.True(t, "the record waits for longer than the role may", func() bool {
					return k.InfoOf(run).Status.Ended() || k.Count(`SELECT count(*) FROM pg_stat_activity
						WHERE datname = current_database() AND wait_event_type = 'Lock'
							AND clock_timestamp() - query_start > interval '700ms'`) > 0
				})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if kit.ResultOf(k, run); calls.Load() != 1 {
				t.Errorf("the function was called %d times", calls.Load())
			}
		})
	}
}

// The transaction of a step is read-only, because the server has become a standby. The step is repeated on another
// connection, and the first is closed.
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
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var first atomic.Uint32 // the connection of the first call
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if !first.CompareAndSwap(0, tx.Conn().PgConn().PID()) {
						return nil
					}
					for _, sql := range []string{`COMMIT`, `SET default_transaction_read_only = on`, `BEGIN`} {
						if _, err := tx.Exec(ctx, sql); err != nil {
							return err
						}
					}
					return tt.fn(ctx, tx)
				}, kagzi.RetryPolicy{MaxAttempts: 1})
			})
			kit.ResultOf(k, kit.Begin(k, wf, 1))
			await.True(t, "the connection is closed", func() bool {
				return k.Count(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, int32(first.Load())) == 0
			})
		})
	}
}

// The function of a transactional step leaves a statement_timeout that is too short for the record. That is a failure
// of the attempt like any other, and says what happened.
func TestAShortTimeoutOfAStepTxIsItsFailure(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	var helper sync.WaitGroup
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
			if kagzi.CurrentStep(ctx).Attempt > 1 {
				return nil
			}
			stranger := k.CallersTx() // makes the next statement of the step wait
			if _, err := stranger.Exec(ctx, `LOCK TABLE kagzi.workflow_runs IN ACCESS EXCLUSIVE MODE`); err != nil {
				return err
			}
			var pid int32
			var begun time.Time
			if err := tx.QueryRow(ctx, `SELECT pg_backend_pid(), now() FROM
				set_config('statement_timeout', '300ms', true)`).Scan(&pid, &begun); err != nil {
				return err
			}
			helper.Go(func() {
				defer kit.RollbackTx(t, stranger)
				await.True(t, "the step's record is given up", func() bool {
					return k.Count(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND xact_start = $2`,
						pid, begun) == 0
				})
			})
			return nil
		}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	run := kit.Begin(k, wf, 1)
	kit.ResultOf(k, run)
	helper.Wait()
	if got := k.Steps(run)["books"]; len(got) != 2 || !strings.Contains(got[0].Error, "statement_timeout") {
		t.Errorf("attempts %+v, want 2, of which the first failed because of its statement_timeout", got)
	}
}

// The function of a transactional step sets an idle_in_transaction_session_timeout, and does something else for longer.
// That is a failure of the attempt, wherever it is noticed, and not an outage.
func TestAnIdleStepTxIsItsFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		then string // the function's next statement
	}{{"AtItsNextStatement", `SELECT 1`}, {"AtTheRecord", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var calls atomic.Int32
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
				return 0, kagzi.DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					if calls.Add(1); kagzi.CurrentStep(ctx).Attempt > 1 {
						return nil
					}
					if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '50ms'`); err != nil {
						return err
					}
					pid := int32(tx.Conn().PgConn().PID())
					await.True(t, "the transaction is ended", func() bool {
						return k.Count(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) == 0
					})
					if tt.then == "" {
						return nil
					}
					_, err := tx.Exec(ctx, tt.then)
					return err
				}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
			})
			run := kit.Begin(k, wf, 1)
			kit.ResultOf(k, run)
			if got := k.Steps(run)["books"]; calls.Load() != 2 || len(got) != 2 ||
				!strings.Contains(got[0].Error, "idle") {
				t.Errorf("%d calls, attempts %+v, want 2, of which the first failed because it was idle",
					calls.Load(), got)
			}
		})
	}
}
