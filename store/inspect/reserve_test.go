package inspect

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// pgx closes a connection whose call was late, and takes its leave of the server from a goroutine of its own. The next
// call on that connection leaves its buffer alone.
func TestCallOnAConnectionThatIsBeingClosed(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	conn := dbtest.Connect(t, db.DSN)
	var sent bytes.Buffer
	conn.PgConn().Frontend().Trace(&sent, pgproto3.TracerOptions{})
	late, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	b := &pgx.Batch{}
	b.Queue(`SELECT pg_sleep(10)`)
	if err := pg.Exchange(late, conn, pg.Untimed, b); err == nil || !conn.IsClosed() {
		t.Fatalf("the connection is open after %v", err)
	}
	<-conn.PgConn().CleanupDone()
	if sent.Len() == 0 {
		t.Fatal("the trace does not show what is sent")
	}
	sent.Reset()
	if _, err := newBoth(db.Pool, "test").View.Pauses(t.Context(), conn, 1); err == nil {
		t.Error("a closed connection has answered")
	}
	if sent.Len() > 0 {
		t.Errorf("the buffer got %q", sent.String())
	}
}
