//go:build unix

package dbtest

import (
	"testing"

	"github.com/kagzi/kagzi/internal/pgbouncer"
)

// Pooler starts pgbouncer in transaction mode in front of db, and returns the DSN of pgbouncer. It ends with the test.
func Pooler(t testing.TB, db *DB) string {
	t.Helper()
	p, err := pgbouncer.Start(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pgbouncer said:\n%s", p.Log())
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p.DSN
}
