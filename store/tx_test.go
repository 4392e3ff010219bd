package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// strictly returns a store whose connections have level as their default isolation level.
func strictly(t *testing.T, db *dbtest.DB, level string) *Store {
	t.Helper()
	return New(poolWith(t, db.DSN, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
	}), "test")
}

var levels = []string{"read committed", "repeatable read", "serializable"}

// Our transactions begin with our settings, whatever the defaults are, and leave the connection as it was.
func TestOurTransactionsBeginAlike(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	for _, level := range levels {
		pool := poolWith(t, db.DSN, func(cfg *pgxpool.Config) {
			cfg.MaxConns = 1
			for name, value := range map[string]string{
				"default_transaction_isolation": level, "statement_timeout": "7s", "lock_timeout": "6s",
				"idle_in_transaction_session_timeout": "0", "enable_seqscan": "on", "jit": "on",
			} {
				cfg.ConnConfig.RuntimeParams[name] = value
			}
		})
		const settings = `SELECT concat_ws(' ', current_setting('transaction_isolation'),
			CASE WHEN current_setting('lock_timeout')::interval > '30s' THEN 'long'
			ELSE current_setting('lock_timeout') END, current_setting('idle_in_transaction_session_timeout'),
			current_setting('enable_seqscan'), current_setting('synchronous_commit'),
				current_setting('statement_timeout')::interval BETWEEN '40s' AND '54s')`
		for _, mode := range []struct {
			pg.Mode
			want string
		}{
			{pg.Untimed, "read committed long 5s off on t"},
			{pg.Brief, "read committed 100ms 5s off on t"},
			{pg.Relaxed, "read committed 100ms 5s off off t"},
			{pg.Listing, "read committed long 5s on on t"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var got [2]string
			read := func(i int) func(pgx.Rows) error {
				return func(rows pgx.Rows) (err error) {
					got[i], err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
					return err
				}
			}
			b := &pgx.Batch{}
			b.Queue(settings)
			if err := pg.Exchange(ctx, pool, mode.Mode, b, read(0)); err != nil {
				t.Error(err)
			}
			if err := pg.Transact(ctx, pool, mode.Mode, func(tx pgx.Tx) error {
				return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return pg.Ask(ctx, tx, settings, nil, read(1)) })
			}); err != nil {
				t.Error(err)
			}
			for _, got := range got {
				if got != mode.want {
					t.Errorf("at %s: %s, want %s", level, got, mode.want)
				}
			}
			cancel()
		}
		before := one[int](t, pool, `SELECT pg_backend_pid()`)
		if err := pg.Ask(t.Context(), pool, `SELECT 1 / 0`, nil, nil); pg.Code(err) != "22012" {
			t.Errorf("error %v", err)
		}
		after := one[string](t, pool, `SELECT concat_ws(' ', pg_backend_pid(), current_setting('transaction_isolation'),
			current_setting('statement_timeout'), current_setting('enable_seqscan'))`)
		if want := fmt.Sprintf("%d %s 7s on", before, level); after != want {
			t.Errorf("the connection after an error: %s, want %s", after, want)
		}
	}
}

// A cancel that waits for the record of a compensation or of a child's start sees the record, whatever the default
// isolation level is.
func TestCancelSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			s, strict := New(db.Pool, "test"), strictly(t, db, level)

			r := running(t, s, 1)[0]
			tx := begin(t, s)
			if c, err := s.Records.WriteIn(t.Context(), tx, nil, record(r, "booking", "x"),
				registering(r, "booking", 1)); err != nil || !c.Written {
				t.Fatalf("registered %t, %v", c.Written, err)
			}
			meetsLock(t, s, func(ctx context.Context) {
				got, err := strict.Runs.Cancel(ctx, nil, r.RunID, Why{}, 0)
				if err != nil || len(got.Marked) != 1 || len(got.Ended) != 0 {
					t.Errorf("cancelled %+v, %v: the compensation was missed", got, err)
				}
			}, func() { commit(t, tx) })

			parent := running(t, s, 1)[0]
			tx = begin(t, s)
			// as the statement that records the start does
			exec(t, tx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR SHARE`, parent.RunID)
			child := newRun(withParent(parent.RunID))
			if _, err := s.Starts.Start(t.Context(), tx, []NewRun{child}); err != nil {
				t.Fatal(err)
			}
			meetsLock(t, s, func(ctx context.Context) {
				got, err := strict.Runs.Cancel(ctx, nil, parent.RunID, Why{}, 0)
				if err != nil || len(got.Ended) != 2 {
					t.Errorf("cancelled %+v, %v: the child was missed", got, err)
				}
			}, func() { commit(t, tx) })
		})
	}
}

// A call that reads after it has locked refuses a caller's transaction that does not see the commits of others, and
// changes nothing.
func TestStricterTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	over := running(t, s, 1)[0]
	flush(t, s,
		&Flush{Finishes: []*Finish{{RunID: over.RunID, Lease: over.Lease, Status: Failed, ErrorKind: "unknown"}}})
	active := start(t, s, newRun(withID("active")))[0]
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable, pgx.ReadCommitted} {
		for name, act := range map[string]func(context.Context, pgx.Tx) error{
			"Cancel": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Runs.Cancel(ctx, tx, active, Why{}, 0)
				return err
			},
			"Terminate": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Runs.Terminate(ctx, tx, active, Why{})
				return err
			},
			"Resume": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Runs.Resume(ctx, tx, over.RunID, Why{})
				return err
			},
			"Restart": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Runs.Restart(ctx, tx, Restart{Run: over.RunID, New: uuid.New()})
				return err
			},
			"Replace": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Starts.Start(ctx, tx, []NewRun{newRun(withID("active"), ifActive(ReplaceActive))})
				return err
			},
			"Update": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Runs.Update(ctx, tx, active, RunUpdate{Priority: 1}, Why{})
				return err
			},
			"Delete": func(ctx context.Context, tx pgx.Tx) error {
				_, err := s.Deletions.Delete(ctx, tx, over.RunID, Why{}, false)
				return err
			},
			"Several": func(ctx context.Context, tx pgx.Tx) error {
				return s.DryRun(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
					_, err := s.Runs.Cancel(ctx, tx, active, Why{}, 0)
					return err
				})
			},
		} {
			tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			err = act(t.Context(), tx)
			if refused := errors.Is(err, pg.ErrIsolation); refused != (level != pgx.ReadCommitted) || !refused &&
				err != nil {
				t.Errorf("%s at %s: %v", name, level, err)
			}
			exec(t, tx, `SELECT 1`) // the transaction is not aborted
			rollback(t, tx)
		}
	}
	if got := readRow(t, s.pool, active); got.Status != Pending {
		t.Errorf("the run is %s", got.Status)
	}
}

// The server releases the locks of a process that is frozen between two statements of ours.
func TestAFrozenTransactionKeepsNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := start(t, s, newRun())[0]
	thaw, frozen := make(chan struct{}), make(chan error, 1)
	locked := make(chan struct{}, 100)
	go func() {
		frozen <- s.change(t.Context(), nil, func(ctx context.Context, tx pgx.Tx) error {
			if err := s.lock(ctx, tx, id); err != nil {
				return err
			}
			locked <- struct{}{}
			<-thaw
			_, err := s.status(ctx, tx, id)
			return errors.Join(err, errGrown) // once: a try whose connection ended is repeated
		})
	}()
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.pool.Exec(ctx, `UPDATE kagzi.workflow_runs SET metadata = '{}' WHERE run_id = $1`, id); err != nil {
		t.Errorf("the lock is kept: %v", err)
	}
	close(thaw)
	if err := <-frozen; err == nil {
		t.Error("the frozen transaction went on")
	}
}

// On Citus the nodes get the short lock_timeout, too, but for the simple protocol, and no plan is generic.
func TestOurTransactionsOnCitus(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the test compares with transactions where there is none")
	db := dbtest.Database(t)
	start(t, New(db.Pool, "test"), many(1000)...) // for an empty table the server keeps no plan anyway
	pool := poolWith(t, db.DSN, dbtest.LooksLikeCitus)
	simple := poolWith(t, db.DSN, func(cfg *pgxpool.Config) {
		dbtest.LooksLikeCitus(cfg)
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	for _, p := range []*pgxpool.Pool{pool, simple, db.Pool} {
		want := map[time.Duration]string{
			0: "long, force_custom_plan", pg.BriefLockWait: "100ms, force_custom_plan, local",
			time.Minute: "1s, force_custom_plan, local",
		}
		if p == simple {
			want = map[time.Duration]string{
				0: "long, force_custom_plan", pg.BriefLockWait: "100ms, force_custom_plan",
				time.Minute: "1min, force_custom_plan",
			}
		}
		if p == db.Pool {
			want = map[time.Duration]string{
				0: "long, force_generic_plan", pg.BriefLockWait: "100ms, force_generic_plan",
				time.Minute: "1min, force_generic_plan",
			}
		}
		for locks, want := range want {
			const settings = `SELECT concat_ws(', ', CASE WHEN current_setting('lock_timeout')::interval BETWEEN '5s'
				AND '9s' THEN 'long' ELSE current_setting('lock_timeout') END, current_setting('plan_cache_mode'),
				NULLIF(current_setting('citus.propagate_set_commands', true), ''))`
			var got [2]string
			b := &pgx.Batch{}
			b.Queue(settings)
			read := func(i int) func(pgx.Rows) error {
				return func(rows pgx.Rows) (err error) {
					got[i], err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
					return err
				}
			}
			if err := pg.Exchange(t.Context(), p, pg.Mode{Locks: locks}, b, read(0)); err != nil {
				t.Error(err)
			}
			if err := pg.Transact(t.Context(), p, pg.Mode{Locks: locks}, func(tx pgx.Tx) error {
				return pg.Ask(t.Context(), tx, settings, nil, read(1))
			}); err != nil {
				t.Error(err)
			}
			if got[0] != want || got[1] != want {
				t.Errorf("locks for %v: %q, want %q", locks, got, want)
			}
		}
	}
}

// If all connections of the pool are in use, the error does not say that the database is away.
func TestABusyPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := New(poolWith(t, db.DSN, func(cfg *pgxpool.Config) { cfg.MaxConns = 2 }), "test")
	for range 2 {
		tx := begin(t, s)
		defer func() { _ = tx.Rollback(t.Context()) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Runs.Get(ctx, uuid.New())
	if pg.Classify(err) != pg.ClassBusy || !strings.Contains(err.Error(), "all 2 are in use") {
		t.Errorf("class %d, error %v", pg.Classify(err), err)
	}
}

// No other function of the package begins a transaction, or sends a statement to the pool.
func TestOneFunctionBeginsTransactions(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(
		`BeginTx|\.Begin\(|BeginFunc\(ctx, (s\.pool|db)\b|(s\.pool|\bdb)\.(Exec|Query|QueryRow|SendBatch)\(`)
	allowed := map[string]bool{
		"tx.go": true, "rights.go": true, // the schema may not be there yet
		"doctor.go": true, // reads in the caller's
	}
	lines := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") || allowed[e.Name()] {
			continue
		}
		source, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(source), "\n") {
			lines++
			if begins.MatchString(line) && !strings.Contains(line, "databaseTime") {
				t.Errorf("%s:%d: %s: use transact, ask or exchange", e.Name(), i+1, strings.TrimSpace(line))
			}
		}
	}
	if lines < 3000 {
		t.Errorf("looked at %d lines only", lines)
	}
}
