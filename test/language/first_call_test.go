package language_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

// The first call of a client checks the schema, in the transaction that it is given, because the pool may have no other
// connection.
func TestFirstCallInTheOnlyConnection(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, dbtest.Conns(1))
	wf := kagzi.Define[int, int]("wf")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	only := func(_ any, err error) error { return err }
	for name, call := range map[string]func(context.Context, *kagzi.Client) error{
		"Start": func(ctx context.Context, c *kagzi.Client) error {
			return only(kagzi.Start(ctx, c, wf, 1, kagzi.InTx(tx)))
		},
		"Signal": func(ctx context.Context, c *kagzi.Client) error {
			return c.Signal(ctx, kagzi.ID("nobody"), kit.Approved.With("a"), kagzi.InTx(tx))
		},
		"Cancel": func(ctx context.Context, c *kagzi.Client) error {
			return c.Cancel(ctx, kagzi.ID("nobody"), kagzi.InTx(tx))
		},
		"Runs.CancelAll": func(ctx context.Context, c *kagzi.Client) error {
			return only(admin.New(c).Runs.CancelAll(ctx, kagzi.RunFilter{Workflow: "nothing"}, kagzi.InTx(tx)))
		},
		"Schedules.Pause": func(ctx context.Context, c *kagzi.Client) error {
			return admin.New(c).Schedules.Pause(ctx, "none", kagzi.InTx(tx))
		},
		"Workers.DrainQueue": func(ctx context.Context, c *kagzi.Client) error {
			return only(admin.New(c).Workers.DrainQueue(ctx, "nothing", kagzi.InTx(tx)))
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := call(ctx, kit.NewClient(t, pool)); err != nil && kagzi.KindOf(err) != kind.NotFound {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// The first call, like every call, returns an error if no connection becomes free.
func TestFirstCallWithoutAConnection(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, dbtest.Conns(1))
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	_, err = kit.NewClient(t, pool).List(kit.Context(t), kagzi.RunFilter{})
	kit.MustContain(t, err, "no connection of the pool became free", "all 1 are in use")
	if kagzi.HTTPStatus(err) != http.StatusServiceUnavailable {
		t.Errorf("status %d for %v", kagzi.HTTPStatus(err), err)
	}
}

// A worker that starts while the server does not answer logs that, and begins when it answers.
func TestWorkerStartsBeforeTheServerAnswers(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	proxy.Freeze()
	t.Cleanup(proxy.Unfreeze)
	c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(4)))
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kit.StartWorker(t, w)
	logged.WantLine(t, "the database does not answer")
	proxy.Unfreeze()
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	if got := kit.ResultOf(k, kit.Begin(k, wf, 7)); got != 7 {
		t.Errorf("got %d", got)
	}
}

// Every call that changes runs refuses a caller's transaction that does not see concurrent commits, even if it does not
// see the run.
func TestStricterTransactionIsRefused(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	tx, err := k.Pool.BeginTx(k.Ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(k.Ctx))
	if _, err := tx.Exec(k.Ctx, `SELECT count(*) FROM kagzi.workflow_runs`); err != nil {
		t.Fatal(err)
	}
	later := kit.Begin(k, wf, 1, kagzi.ID("later"), kagzi.Delay(time.Hour)) // after the transaction's snapshot
	only := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"Cancel":         k.Client.Cancel(k.Ctx, kagzi.ID("later"), kagzi.InTx(tx)),
		"CancelByRun":    k.Client.Cancel(k.Ctx, later, kagzi.InTx(tx)),
		"Runs.Terminate": admin.New(k.Client).Runs.Terminate(k.Ctx, kagzi.ID("later"), kagzi.InTx(tx)),
		"Runs.Resume":    admin.New(k.Client).Runs.Resume(k.Ctx, kagzi.ID("later"), kagzi.InTx(tx)),
		"Runs.Restart":   only(admin.New(k.Client).Runs.Restart(k.Ctx, kagzi.ID("later"), kagzi.InTx(tx))),
		"Runs.Fork":      only(admin.New(k.Client).Runs.Fork(k.Ctx, kagzi.ID("later"), "step", kagzi.InTx(tx))),
		"Runs.CancelAll": only(admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{Workflow: "wf"},
			kagzi.InTx(tx))),
		"CancelAllDryRun": only(admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{Workflow: "wf"},
			kagzi.InTx(tx),
			admin.DryRun())),
	} {
		if kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("%s: %v, of kind %q", name, err, kagzi.KindOf(err))
		}
		kit.MustContain(t, err, "READ COMMITTED")
	}
}

// The error for an unusable transaction, or a server that accepts no writes, says what to do, whether or not the client
// has checked the schema before.
func TestTransactionsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	db, other := dbtest.Database(t), dbtest.Database(t, dbtest.Empty())
	begin := func(pool *pgxpool.Pool, mode pgx.TxAccessMode) pgx.Tx {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: mode})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	wf := kagzi.Define[int, int]("wf")
	nobody := kagzi.RunID(uuid.NewString())
	for name, tt := range map[string]struct {
		begin func() pgx.Tx
		says  string
		kind  kind.Kind
	}{
		"ReadOnly": {
			func() pgx.Tx { return begin(db.Pool, pgx.ReadOnly) }, "begin the transaction READ WRITE",
			kind.Database,
		},
		"OfAnotherDatabase": {
			func() pgx.Tx { return begin(other.Pool, pgx.ReadWrite) },
			"or give InTx a transaction of the client's database", kind.Unavailable,
		},
		"Ended": {func() pgx.Tx {
			tx := begin(db.Pool, pgx.ReadWrite)
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			return tx
		}, "the transaction given with InTx has ended: begin another", kind.BadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			for _, warm := range []bool{false, true} {
				for op, call := range map[string]func(*kagzi.Client, pgx.Tx) error{
					"start wf: ": func(c *kagzi.Client, tx pgx.Tx) error {
						return kit.Second(kagzi.Start(t.Context(), c, wf, 1, kagzi.InTx(tx)))
					},
					"cancel ": func(c *kagzi.Client, tx pgx.Tx) error {
						return c.Cancel(t.Context(), nobody, kagzi.InTx(tx))
					},
					"restart ": func(c *kagzi.Client, tx pgx.Tx) error {
						return kit.Second(admin.New(c).Runs.Restart(t.Context(), nobody, kagzi.InTx(tx)))
					},
					`pause schedule "none": `: func(c *kagzi.Client, tx pgx.Tx) error {
						return admin.New(c).Schedules.Pause(t.Context(), "none", kagzi.InTx(tx))
					},
					`drain queue "none": `: func(c *kagzi.Client, tx pgx.Tx) error {
						return kit.Second(admin.New(c).Workers.DrainQueue(t.Context(), "none", kagzi.InTx(tx)))
					},
				} {
					c, tx := kit.NewClient(t, db.Pool), tt.begin()
					if warm {
						if _, err := c.List(t.Context(), kagzi.RunFilter{}); err != nil {
							t.Fatal(err)
						}
					}
					err := call(c, tx)
					kit.MustContain(t, err, "kagzi: "+op, tt.says)
					if kagzi.KindOf(err) != tt.kind {
						t.Errorf("%v: kind %s, want %s", err, kagzi.KindOf(err), tt.kind)
					}
					_ = tx.Rollback(t.Context())
				}
			}
		})
	}
	_, err := kagzi.Start(t.Context(),
		kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_read_only", "on"))), wf, 1)
	kit.MustContain(t, err, "kagzi: start wf: the server takes no writes: ",
		"connect to the primary (target_session_attrs=read-write)")
	if kagzi.HTTPStatus(err) != http.StatusServiceUnavailable {
		t.Errorf("status %d for %v", kagzi.HTTPStatus(err), err)
	}
}
