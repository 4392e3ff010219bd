package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// preparedOn counts the statements that are prepared on conn.
func preparedOn(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements`, pgx.QueryExecModeExec).
		Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPrepareHeartbeats shows that heartbeats have nothing to prepare on a connection of PrepareHeartbeats, so each
// statement is one round trip, and that no trouble with a statement keeps the connection from being used.
func TestPrepareHeartbeats(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := New(db.Pool, "test")
	w, conn := connected(t, s, db.DSN)
	before := preparedOn(t, conn)
	beat(t, s, conn, w)
	if after := preparedOn(t, conn); after != before {
		t.Errorf("heartbeats had %d statements prepared", after-before)
	}
	t.Run("LockedTable", func(t *testing.T) {
		tx := dbtest.BeginWith(t, db.Pool, `LOCK TABLE kagzi.pauses IN ACCESS EXCLUSIVE MODE`)
		again, conn := connected(t, s, db.DSN)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		beat(t, s, conn, again)
	})
	t.Run("ReadOnly", func(t *testing.T) {
		conn := dbtest.Connect(t, db.DSN)
		exec(t, conn, `SET default_transaction_read_only = on`)
		if b, err := s.Workers.PrepareHeartbeats(t.Context(), conn); err != nil || b.PID == 0 {
			t.Errorf("backend %+v, error %v", b, err)
		}
		exec(t, conn, `SET default_transaction_read_only = off`)
		w.Number = 2
		w.Backend = Backend{}
		beat(t, s, conn, w)
	})
}

// beat sends all statements of a heartbeat of w over conn, and one of a worker that was declared dead.
func beat(t *testing.T, s *Store, conn *pgx.Conn, w Worker) {
	t.Helper()
	held := []HeldRun{{uuid.New(), uuid.New()}}
	if _, err := s.Workers.Heartbeat(t.Context(), conn, Heartbeat{
		Number: w.Number + 1, Worker: w.ID, Queues: w.Queues,
		Backend: w.Backend,
	}); err != nil {
		t.Error(err)
	}
	if _, err := s.Workers.Heartbeat(t.Context(), conn, Heartbeat{Worker: uuid.New()}); err == nil {
		t.Error("a worker that is not registered sends heartbeats")
	}
	if _, err := s.Leases.HeldStates(t.Context(), conn, held, nil); err != nil {
		t.Error(err)
	}
	if _, err := s.Leases.Extend(t.Context(), conn, held, time.Minute, nil); err != nil {
		t.Error(err)
	}
}
