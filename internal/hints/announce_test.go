package hints_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// The runs that a worker has ended, and those that have answered or set a value, are announced to other processes only
// while one of these waits. Parents are announced in any case: the worker that executes one waits for its child.
func TestAnnouncedOnlyToThoseWhoWait(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	ctx := kit.Context(t)
	h := newHints(t, pool)
	t.Cleanup(h.Listen())
	await.True(t, "the worker's process listens", h.Listening)
	h.ForgetDemand()
	announced := hearRuns(t, pool)
	announces := map[string]func(run uuid.UUID){
		"the end": func(run uuid.UUID) { h.Ended(ctx, []uuid.UUID{run}, nil) },
		"an answer": func(run uuid.UUID) {
			h.Replied(ctx, []store.Answer{{RequestKey: store.RequestKey{RunID: run, ID: "request"}}})
		},
		"a value": func(run uuid.UUID) { h.Valued(ctx, []uuid.UUID{run}) },
	}
	for of, announce := range announces {
		if announced(h, announce) {
			t.Errorf("%s is announced, but no process waits", of)
		}
	}
	if !announced(h, func(run uuid.UUID) { h.Ended(ctx, []uuid.UUID{uuid.New()}, []uuid.UUID{run}) }) {
		t.Error("the parent of a run that has ended is not announced")
	}

	run, err := kagzi.Start(ctx, kit.NewClient(t, pool), kagzi.Define[int, int]("unserved"), 1)
	if err != nil {
		t.Fatal(err)
	}
	waits, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = newHints(t, pool).Result(waits, uuid.MustParse(string(run.ID()))) // only leave ends it
	}()
	for of, announce := range announces {
		await.True(t, of+" is announced while a process waits", func() bool { return announced(h, announce) })
	}
	leave()
	await.Opened(t, left)
}

// Until a process has listened for a while, it does not know whether others wait, and announces everything.
func TestAnnouncedByThoseWhoDoNotListen(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	ctx := kit.Context(t)
	h := newHints(t, pool)
	announced := hearRuns(t, pool)
	end := func(run uuid.UUID) { h.Ended(ctx, []uuid.UUID{run}, nil) }
	if !announced(h, end) {
		t.Error("the end is not announced by a process that does not listen")
	}
	t.Cleanup(h.Listen())
	await.True(t, "it listens", h.Listening)
	if !announced(h, end) {
		t.Error("the end is not announced by a process that may have missed that others wait")
	}
}

// hearRuns listens as another process does. It returns a function that reports whether the hints announce a run.
func hearRuns(t *testing.T, pool *pgxpool.Pool) func(h *hints.Hints, announce func(run uuid.UUID)) bool {
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	if _, err := conn.Exec(t.Context(), "LISTEN "+notify.RunChannel); err != nil {
		t.Fatal(err)
	}
	return func(h *hints.Hints, announce func(run uuid.UUID)) bool {
		run, last := uuid.New(), uuid.New()
		announce(run)
		h.Flush()
		if err := h.Changed(t.Context(), nil, last); err != nil {
			t.Fatal(err)
		}
		var heard []string
		for !strings.Contains(strings.Join(heard, " "), last.String()) {
			n, err := conn.Conn().WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			heard = append(heard, n.Payload)
		}
		return slices.ContainsFunc(heard, func(s string) bool { return strings.Contains(s, run.String()) })
	}
}
