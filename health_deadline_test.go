package kagzi

import (
	"context"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestHealthDeadline asks for the health, within less than the longest wait for a connection, while the application has all
// of the pool's in use: Health leaves itself the time to open one of its own, and reports what is the matter with the pool.
func TestHealthDeadline(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.MaxConns(1))
	c := quietClient(t, pool)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), healthAcquire)
	defer cancel()
	r, err := c.Health(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Check("pool"); got.Status != Degraded { // what the other checks find in the rest of the time, a busy machine decides
		t.Errorf("the pool is %+v; %+v", got, r.Checks)
	}
}
