package kagzi

import (
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A lossy database is behind a proxy that loses answers, which the server gives after the commit, or requests, which the
// server does not see.
type lossy struct {
	proxy    *pgproxy.Proxy
	db       *dbtest.DB // past the proxy
	requests bool       // are lost, and not answers
}

func newLossy(t *testing.T, requests bool) *lossy {
	t.Helper()
	db := dbtest.Database(t)
	return &lossy{proxy: pgproxy.Start(t, db.DSN), db: db, requests: requests}
}

// eachLoss runs a test for lost answers, and for lost requests.
func eachLoss(t *testing.T, test func(t *testing.T, l *lossy)) {
	t.Parallel()
	for name, requests := range map[string]bool{"Answer": false, "Request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newLossy(t, requests))
		})
	}
}

// lose loses the first statement that matches, or the answer to it.
func (l *lossy) lose(m pgproxy.Match) *pgproxy.Drop {
	if l.requests {
		return l.proxy.DropRequest(m)
	}
	return l.proxy.DropAck(m)
}

// client is a client of the database through the proxy.
func (l *lossy) client(t *testing.T, conns int32) *Client {
	t.Helper()
	return newTestClient(t, openPool(t, l.proxy.DSN(), conns))
}
