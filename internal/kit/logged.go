package kit

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testlog"
)

// LoggedClient returns a client and the buffer that it logs to.
func LoggedClient(t *testing.T, pool *pgxpool.Pool) (*kagzi.Client, *testlog.Buffer) {
	t.Helper()
	logged := &testlog.Buffer{}
	return NewClientWith(t, pool, kagzi.ClientConfig{Logger: logged.Logger()}), logged
}
