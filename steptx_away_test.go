package kagzi

import (
	"context"
	"fmt"
	"log/slog"
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

// refuseRecords has the database answer the first n records of a step named books with an error.
func (k *kit) refuseRecords(code string, n int) {
	k.t.Helper()
	k.exec(`CREATE SEQUENCE public.refused`)
	k.exec(fmt.Sprintf(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('public.refused') <= %d THEN RAISE 'not now' USING ERRCODE = '%s'; END IF;
			RETURN NEW;
		END $$`, n, code))
	k.exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.step_runs FOR EACH ROW WHEN (NEW.step_id = 'books' AND NEW.status = 'COMPLETED') EXECUTE FUNCTION public.refuse()`)
}

// TestStepTxThatAlwaysLosesItsTransaction has a transactional step lose its connection, or its record wait in vain, each
// time: after a while that is counted, and the step fails.
func TestStepTxThatAlwaysLosesItsTransaction(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx context.Context, k *kit, tx pgx.Tx) error{
		"Connection": func(ctx context.Context, k *kit, tx pgx.Tx) error {
			k.endBackend(tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		},
		"Record": func(context.Context, *kit, pgx.Tx) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKitWith(t, ClientConfig{}, dbtest.Unchecked())
			k.refuseRecords("55P03", 1000)
			wf := Define[int, int]("wf", noRetry)
			w := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{})
			hooksOf(t, w).AwayPatience = 600 * time.Millisecond
			var calls atomic.Int64
			Handle(w, wf, func(ctx Context, _ int) (int, error) {
				return 0, DoTx(ctx, "books", func(ctx context.Context, tx pgx.Tx) error {
					calls.Add(1)
					return fn(ctx, k, tx)
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
		})
	}
}

// TestARecordOfAStepTxThatWaitsInVainIsNotCounted has the record of a transactional step whose function succeeds time out
// more often than the step may fail: that says nothing of the step. People are told.
func TestARecordOfAStepTxThatWaitsInVainIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{"Locked": "55P03", "Late": "57014"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const refusals = 2
			var logged logBuffer
			k := newKitWith(t, ClientConfig{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			k.refuseRecords(code, refusals)
			wf := Define[int, int]("wf", noRetry)
			var calls atomic.Int64
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				return 0, DoTx(ctx, "books", func(context.Context, pgx.Tx) error {
					calls.Add(1)
					return nil
				}, RetryPolicy{MaxAttempts: 1})
			})
			resultOf(k, begin(k, wf, 1))
			if n := calls.Load(); n != refusals+1 {
				t.Errorf("the function was called %d times, want %d", n, refusals+1)
			}
			logged.wantLine(t, "level=WARN", "the attempt is not counted", "not now")
		})
	}
}

// TestAStepTxOutwaitsAStrangersLock has somebody else's transaction lock the run of a transactional step for longer than
// the role's timeouts say: they are not the record's, and the function is called once.
func TestAStepTxOutwaitsAStrangersLock(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"lock_timeout", "statement_timeout"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			k := &kit{t: t, ctx: testContext(t), pool: db.Pool, c: newTestClient(t, db.Pool)}
			wf := Define[int, int]("wf", noRetry)
			in, goOn := make(chan bool, 10), make(chan struct{})
			var calls atomic.Int64
			w := newTestWorker(t, newTestClient(t, poolWith(t, db.DSN, setting, "500ms")), WorkerConfig{})
			Handle(w, wf, func(ctx Context, n int) (int, error) {
				return n, DoTx(ctx, "books", func(context.Context, pgx.Tx) error {
					calls.Add(1)
					in <- true
					<-goOn
					return nil
				}, RetryPolicy{MaxAttempts: 1})
			})
			startWorker(t, w)
			run := begin(k, wf, 1)
			receive(t, in)
			if err := pgx.BeginFunc(k.ctx, db.Pool, func(stranger pgx.Tx) error {
				k.signal(run, approved.With("yes"), InTx(stranger))
				close(goOn)
				waitFor(t, "the record waits for longer than the role may", func() bool {
					return k.infoOf(run).Status.Ended() || k.count(`SELECT count(*) FROM pg_stat_activity
						WHERE datname = current_database() AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '700ms'`) > 0
				})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if resultOf(k, run); calls.Load() != 1 {
				t.Errorf("the function was called %d times", calls.Load())
			}
		})
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
