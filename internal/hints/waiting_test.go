package hints_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// A process without a worker listens once it has waited for results for a while, and still does for the next call. It
// does not replace the connection if that is lost while there are no waiters.
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
	await.Receive(t, done)
	if !h.Listening() {
		t.Error("the process does not listen any more when the first waiter has left")
	}
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND query ILIKE 'listen %'`)
	await.True(t, "the listener is closed", func() bool { return h.ListenerUsers() == 0 })
}

// The loss of a connection that no caller needed any more is logged, and so is that it is back for those who wait
// later.
func TestLaterWaitersListenAgain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	logged := &testlog.Buffer{}
	h := hints.New(store.New(db.Pool, "default"), logged.Logger(), func(context.Context) error { return nil })
	run, err := kagzi.Start(t.Context(), kit.NewClient(t, db.Pool), kagzi.Define[int, int]("nobody's"), 1)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(until func()) {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := h.Result(ctx, uuid.MustParse(string(run.ID())))
			done <- err
		}()
		until()
		leave()
		await.Opened(t, done)
	}
	wait(func() { await.True(t, "the process listens", h.Listening) })
	dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND query ILIKE 'listen %'`)
	logged.WantLine(t, "level=WARN", "not listening, polling")
	await.True(t, "the listener is closed", func() bool { return h.ListenerUsers() == 0 })
	wait(func() { logged.WantLine(t, "level=INFO", "listening again", "after=") })
}
