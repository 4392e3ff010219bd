package kit

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/localpg"
)

// OwnServer starts a Postgres server with a migrated database for one test, which may crash the server.
func OwnServer(ctx context.Context, t *testing.T, conns int32) (*localpg.Cluster, *pgxpool.Pool) {
	t.Helper()
	server, err := localpg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := dbtest.OpenPool(t, server.DSN(), dbtest.Conns(conns))
	if err := kagzi.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	return server, pool
}
