package pg_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A call that gets no connection says whether all are in use, or the server lets none be opened.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		most, taken int32
	}{
		"all 1 are in use":                                {1, 1},
		"all 2 are in use":                                {2, 2},
		"no connection could be opened in time: ":         {2, 1},
		"no connection could be opened in time: context ": {1, 0},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var opened atomic.Int32
			over := make(chan struct{})
			pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, dbtest.Conns(c.most), func(cfg *pgxpool.Config) {
				cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
					if opened.Add(1) > c.taken {
						<-over
					}
					return nil
				}
			})
			defer close(over)
			for range c.taken {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
			}
			_, err := pg.AcquireWithin(t.Context(), pool, time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}
