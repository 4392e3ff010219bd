package hints_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A process without a worker listens once it has waited for results for a while, and still does for the next call. It does
// not replace the connection if that is lost while nobody waits.
func TestWaitersKeepTheListener(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	h := newHints(t, db.Pool)
	run, err := kagzi.Start(t.Context(), kit.NewClient(t, db.Pool), kagzi.Define[int, int]("nobody's"), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.Result(ctx, uuid.MustParse(string(run.ID())))
		done <- err
	}()
	await.True(t, "the process listens", h.Listening)
	leave()
	<-done
	if !h.Listening() {
		t.Error("the process does not listen any more when the first waiter has left")
	}
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %'`)
	await.True(t, "the listener is closed", func() bool { return h.ListenerUsers() == 0 })
}

// The loss of a connection that nobody needed any more is logged, and so is that it is back for those who wait later.
func TestLaterWaitersListenAgain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	client, logged := kit.LoggedClient(t, db.Pool)
	run, err := kagzi.Start(t.Context(), client, kagzi.Define[int, int]("nobody's"), 1)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(until func()) {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := run.Result(ctx)
			done <- err
		}()
		until()
		leave()
		<-done
	}
	wait(func() { kit.WaitListening(t, db.Pool, 1) })
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %'`)
	logged.WantLine(t, "not listening, polling")
	wait(func() { logged.WantLine(t, "listening again", "after=") })
}
