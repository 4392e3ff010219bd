package kagzi

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// The first call of a client looks at the schema. It does so over the transaction that it is given: the pool may have no
// other connection.
func TestFirstCallInTheOnlyConnection(t *testing.T) {
	t.Parallel()
	pool := openPool(t, dbtest.Database(t).DSN, 1)
	wf := Define[int, int]("wf")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	only := func(_ any, err error) error { return err }
	for name, call := range map[string]func(context.Context, *Client) error{
		"Start": func(ctx context.Context, c *Client) error { return only(Start(ctx, c, wf, 1, InTx(tx))) },
		"Signal": func(ctx context.Context, c *Client) error {
			return c.Signal(ctx, ID("nobody"), approved.With("a"), InTx(tx))
		},
		"Cancel": func(ctx context.Context, c *Client) error { return c.Cancel(ctx, ID("nobody"), InTx(tx)) },
		"CancelAll": func(ctx context.Context, c *Client) error {
			return only(c.CancelAll(ctx, RunFilter{Workflow: "nothing"}, InTx(tx)))
		},
		"PauseSchedule": func(ctx context.Context, c *Client) error { return c.PauseSchedule(ctx, "none", InTx(tx)) },
		"DrainQueue":    func(ctx context.Context, c *Client) error { return only(c.DrainQueue(ctx, "nothing", InTx(tx))) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := call(ctx, newTestClient(t, pool)); err != nil && KindOf(err) != KindNotFound {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// The first call ends, as every call, when no connection becomes free.
func TestFirstCallWithoutAConnection(t *testing.T) {
	t.Parallel()
	pool := openPool(t, dbtest.Database(t).DSN, 1)
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	_, err = newTestClient(t, pool).List(testContext(t), RunFilter{})
	mustContain(t, err, "no connection of the pool became free", "all 1 are in use")
	if HTTPStatus(err) != http.StatusServiceUnavailable {
		t.Errorf("status %d for %v", HTTPStatus(err), err)
	}
}

// A worker that starts while the server says nothing tells so, and begins when it does.
func TestWorkerStartsBeforeTheServerAnswers(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	proxy.Freeze()
	t.Cleanup(proxy.Unfreeze)
	c, logged := loggedClient(t, openPool(t, proxy.DSN(), 4))
	wf := Define[int, int]("wf")
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, wf, func(_ Context, n int) (int, error) { return n, nil })
	startWorker(t, w)
	logged.wantLine(t, "the database does not answer")
	proxy.Unfreeze()
	k := &kit{t: t, ctx: testContext(t), pool: db.Pool, c: newTestClient(t, db.Pool)}
	if got := resultOf(k, begin(k, wf, 7)); got != 7 {
		t.Errorf("got %d", got)
	}
}

// A caller's transaction that does not see what others commit meanwhile is refused by whatever changes runs, also where it
// does not see the run.
func TestStricterTransactionIsRefused(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf")
	tx, err := k.pool.BeginTx(k.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(k.ctx))
	if _, err := tx.Exec(k.ctx, `SELECT count(*) FROM kagzi.workflow_runs`); err != nil {
		t.Fatal(err)
	}
	later := begin(k, wf, 1, ID("later"), Delay(time.Hour)) // after the transaction's snapshot
	only := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"Cancel":          k.c.Cancel(k.ctx, ID("later"), InTx(tx)),
		"CancelByRun":     k.c.Cancel(k.ctx, later, InTx(tx)),
		"Terminate":       k.c.Terminate(k.ctx, ID("later"), InTx(tx)),
		"Resume":          k.c.Resume(k.ctx, ID("later"), InTx(tx)),
		"Restart":         only(k.c.Restart(k.ctx, ID("later"), InTx(tx))),
		"Fork":            only(k.c.Fork(k.ctx, ID("later"), "step", InTx(tx))),
		"CancelAll":       only(k.c.CancelAll(k.ctx, RunFilter{Workflow: "wf"}, InTx(tx))),
		"CancelAllDryRun": only(k.c.CancelAll(k.ctx, RunFilter{Workflow: "wf"}, InTx(tx), DryRun())),
	} {
		if KindOf(err) != KindBadRequest {
			t.Errorf("%s: %v, of kind %q", name, err, KindOf(err))
		}
		mustContain(t, err, "READ COMMITTED")
	}
}

// A transaction that cannot be used, and a server that takes no writes, are told with what to do about it, whether the client
// has looked at the schema before or not.
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
	wf := Define[int, int]("wf")
	nobody := RunID(uuid.NewString())
	for name, tt := range map[string]struct {
		begin func() pgx.Tx
		says  string
		kind  Kind
	}{
		"ReadOnly":          {func() pgx.Tx { return begin(db.Pool, pgx.ReadOnly) }, "begin the transaction READ WRITE", KindDatabase},
		"OfAnotherDatabase": {func() pgx.Tx { return begin(other.Pool, pgx.ReadWrite) }, "or give InTx a transaction of the client's database", KindUnavailable},
		"Ended": {func() pgx.Tx {
			tx := begin(db.Pool, pgx.ReadWrite)
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			return tx
		}, "the transaction given with InTx has ended: begin another", KindBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			for _, warm := range []bool{false, true} {
				for op, call := range map[string]func(*Client, pgx.Tx) error{
					"start wf: ":              func(c *Client, tx pgx.Tx) error { return second(Start(t.Context(), c, wf, 1, InTx(tx))) },
					"cancel ":                 func(c *Client, tx pgx.Tx) error { return c.Cancel(t.Context(), nobody, InTx(tx)) },
					"restart ":                func(c *Client, tx pgx.Tx) error { return second(c.Restart(t.Context(), nobody, InTx(tx))) },
					`pause schedule "none": `: func(c *Client, tx pgx.Tx) error { return c.PauseSchedule(t.Context(), "none", InTx(tx)) },
					`drain queue "none": `:    func(c *Client, tx pgx.Tx) error { return second(c.DrainQueue(t.Context(), "none", InTx(tx))) },
				} {
					c, tx := newTestClient(t, db.Pool), tt.begin()
					if warm {
						if _, err := c.List(t.Context(), RunFilter{}); err != nil {
							t.Fatal(err)
						}
					}
					err := call(c, tx)
					mustContain(t, err, "kagzi: "+op, tt.says)
					if KindOf(err) != tt.kind {
						t.Errorf("%v: kind %s, want %s", err, KindOf(err), tt.kind)
					}
					_ = tx.Rollback(t.Context())
				}
			}
		})
	}
	_, err := Start(t.Context(), newTestClient(t, poolWith(t, db.DSN, "default_transaction_read_only", "on")), wf, 1)
	mustContain(t, err, "kagzi: start wf: the server takes no writes: ", "connect to the primary (target_session_attrs=read-write)")
	if HTTPStatus(err) != http.StatusServiceUnavailable {
		t.Errorf("status %d for %v", HTTPStatus(err), err)
	}
}
