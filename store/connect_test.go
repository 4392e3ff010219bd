package store

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestConnect(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	failure := errors.New("failure")
	var before, after error
	var opened *pgx.Conn
	pool := poolWith(t, db.DSN, func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.RuntimeParams["application_name"] += " before"
			return before
		}
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			opened = conn
			_, err := conn.Exec(ctx,
				`SELECT set_config('application_name', current_setting('application_name') || ' after', false)`)
			return errors.Join(err, after)
		}
	})
	named := func(c *pgx.ConnConfig) { c.RuntimeParams["application_name"] = "changed" }
	conn, err := Connect(t.Context(), pool, named)
	if err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, conn, `SELECT current_setting('application_name')`); got != "changed before after" {
		t.Errorf("the connection is named %q", got)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if stat := pool.Stat(); stat.TotalConns() != 0 {
		t.Errorf("the pool has %d connections", stat.TotalConns())
	}

	before = failure
	_, err = Connect(t.Context(), pool, named)
	wantError(t, err, failure)
	before, after = nil, failure
	_, err = Connect(t.Context(), pool, named)
	wantError(t, err, failure)
	if !opened.IsClosed() {
		t.Error("the connection for which the pool's hook returned an error is open")
	}
}
