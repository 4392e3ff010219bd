package kit

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A Lossy is a database behind a proxy that loses requests, or answers to committed requests.
type Lossy struct {
	Proxy    *pgproxy.Proxy
	Db       *dbtest.DB // past the proxy
	Requests bool       // the proxy loses requests; otherwise answers
}

// NewLossy returns a database behind a proxy that loses requests if requests is set, and otherwise answers.
func NewLossy(t *testing.T, requests bool) *Lossy {
	t.Helper()
	db := dbtest.Database(t)
	return &Lossy{Proxy: pgproxy.Start(t, db.DSN), Db: db, Requests: requests}
}

// EachLoss runs a test for lost answers and for lost requests.
func EachLoss(t *testing.T, test func(t *testing.T, l *Lossy)) {
	t.Parallel()
	for name, requests := range map[string]bool{"Answer": false, "Request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, NewLossy(t, requests))
		})
	}
}

// Lose makes the proxy lose the next statement that m matches, or the answer to it.
func (l *Lossy) Lose(m pgproxy.Match) *pgproxy.Drop {
	if l.Requests {
		return l.Proxy.DropRequest(m)
	}
	return l.Proxy.DropAck(m)
}

// Client returns a client of the database through the proxy.
func (l *Lossy) Client(t *testing.T, conns int32) *kagzi.Client {
	t.Helper()
	return NewClient(t, dbtest.OpenPool(t, l.Proxy.DSN(), dbtest.Conns(conns)))
}
