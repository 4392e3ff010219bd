package operations_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

func mustDelete(k *kit.Kit, ref kagzi.Ref, opts ...kagzi.ChangeOption) {
	k.T.Helper()
	if err := admin.New(k.Client).Runs.Delete(k.Ctx, ref, opts...); err != nil {
		k.T.Fatal(err)
	}
}

// "Who deleted order 42?" The record stays when the run has gone, and is found by both of its names.
func TestDelete(t *testing.T) {
	k := kit.New(t)
	for _, status := range terminal {
		name := kagzi.ID("order-" + status)
		id := ended(k, status, name)
		mustDelete(k, name, kagzi.Reason("the customer asked for it"), kagzi.Actor("ada"))
		for _, ref := range []kagzi.Ref{id, name} {
			if _, err := k.Client.Get(k.Ctx, ref); !errors.Is(err, kagzi.ErrNotFound) {
				t.Errorf("%s: %v", status, err)
			}
			k.WantEvents(ref, admin.LogEntry{
				Event: "DELETED", Reason: "the customer asked for it", Actor: "ada",
				Changes: []admin.LogChange{
					{Field: "workflow", From: "noop"},
					{Field: "status", From: string(status)},
					{Field: "id", From: string(name)},
				},
			})
		}
		if err := admin.New(k.Client).Runs.Delete(k.Ctx, id); !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("%s: %v", status, err)
		}
	}
	// Nothing keeps another run from the ID, and the ID now is that run's.
	again := kit.Begin(k, kit.Noop, 1, kagzi.ID("order-FAILED"), kagzi.RejectEnded)
	k.WantEvents(kagzi.ID("order-FAILED"))
	err := admin.New(k.Client).Runs.Delete(k.Ctx, again)
	if kit.MustContain(t, err, "cancel it first"); !errors.Is(err, kagzi.ErrRunActive) {
		t.Error(err)
	}
	if _, err := admin.New(k.Client).Runs.Log(k.Ctx, kagzi.ID("order-43")); !errors.Is(err, kagzi.ErrNotFound) {
		t.Error(err)
	}
}

// Children and compensations go with the run, and do not go without it.
func TestDeleteOfAFamily(t *testing.T) {
	k := kit.New(t)
	order := kagzi.Define[int, int]("order", kit.NoRetry)
	kit.Serve(k, kit.Noop, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kit.Serve(k, order, func(ctx kagzi.Context, n int) (int, error) {
		kagzi.Compensate(ctx, "undo", kit.Noop.With(7))
		if _, err := kagzi.RunChild(ctx, "ship", kit.Noop, n); err != nil {
			return 0, err
		}
		if _, err := kagzi.RunChild(ctx, "mail", kit.Noop, n, kagzi.Detached()); err != nil {
			return 0, err
		}
		return 0, errors.New("it fails")
	})
	run := kit.Begin(k, order, 1)
	k.WaitStatus(run, kagzi.StatusFailed)
	ship, mail, undo := k.ChildOf(run.ID(), "ship"), k.ChildOf(run.ID(), "mail"),
		k.ChildOf(run.ID(), "undo#compensation")
	for _, child := range []kagzi.RunInfo{ship, mail, undo} {
		err := admin.New(k.Client).Runs.Delete(k.Ctx, child)
		if kit.MustContain(t, err, "it is a child of run "+string(run.ID())); !errors.Is(err, admin.ErrRunNeeded) {
			t.Error(err)
		}
	}
	mustDelete(k, run, kagzi.Actor("ada"))
	for _, gone := range []kagzi.RunInfo{ship, undo} {
		if _, err := k.Client.Get(k.Ctx, gone); !errors.Is(err, kagzi.ErrNotFound) {
			t.Error(err)
		}
		k.WantEvents(gone, admin.LogEntry{
			Event: "DELETED", Actor: "ada", Other: run.ID(),
			Changes: []admin.LogChange{{Field: "workflow", From: "noop"}, {Field: "status", From: "COMPLETED"}},
		})
	}
	mustDelete(k, mail)
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`) +
		k.Count(`SELECT count(*) FROM kagzi.step_runs`); n > 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A client that waits for the result learns that there will be none: the run was resumed, and another deletes it once
// it has failed again.
func TestDeleteOfARunWhoseResultIsAwaited(t *testing.T) {
	k := kit.New(t)
	id := ended(k, kagzi.StatusFailed)
	other := kit.NewClient(t, k.Pool)
	waits := kit.Find(t, other, kit.Noop, id)
	tx := k.CallersTx()
	k.Resume(id, kagzi.InTx(tx))
	mustFail(t, admin.New(k.Client).Runs.Delete(k.Ctx, id, kagzi.InTx(tx)), kagzi.ErrRunActive)
	kit.CommitTx(t, tx)
	got := make(chan error, 1)
	go func() {
		_, err := waits.Result(context.WithoutCancel(k.Ctx))
		got <- err
	}()
	kit.WaitListening(t, k.Pool, 1)
	tx = k.CallersTx()
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, id, kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	mustDelete(k, id, kagzi.InTx(tx))
	kit.CommitTx(t, tx)
	mustFail(t, <-got, kagzi.ErrNotFound)
}

func mustFail(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// A tick whose run was deleted is not fired again.
func TestDeleteOfAScheduledRun(t *testing.T) {
	k := kit.New(t)
	if err := k.Client.Schedule(k.Ctx, kagzi.Schedule{Name: "s", Every: time.Hour, Run: kit.Noop.With(1)}); err != nil {
		t.Fatal(err)
	}
	k.Exec(`UPDATE kagzi.schedules SET next_at = now() - interval '1 minute', cursor_at = now() - interval '2 hours'`)
	coordinate := func() {
		c := kit.NewCoordinator(t, k.Client, kagzi.CoordinatorConfig{})
		ctx, cancel := context.WithCancel(k.Ctx)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		await.True(t, "the schedule to be decided", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.schedules WHERE next_at > now()`) == 1
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	coordinate()
	runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{Schedule: "s"})
	if err != nil || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	for _, run := range runs {
		k.Cancel(run)
		mustDelete(k, run)
	}
	coordinate()
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n > 0 {
		t.Errorf("%d runs began again", n)
	}
}

// The result lists each run that f selects, children that go with their parents too.
func TestDeleteAll(t *testing.T) {
	k := kit.New(t)
	order := kagzi.Define[int, int]("order", kagzi.Metadata{"tenant": "acme"})
	ship := kagzi.Define[int, int]("ship", kagzi.Metadata{"tenant": "acme"})
	kit.Serve(k, ship, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	kit.Serve(k, order, func(ctx kagzi.Context, n int) (int, error) { return kagzi.RunChild(ctx, "ship", ship, n) })
	var want []kagzi.RunID
	for n := range 3 {
		run := kit.Begin(k, order, n)
		kit.ResultOf(k, run)
		want = append(want, run.ID(), k.ChildOf(run.ID(), "ship").ID)
	}
	other := kit.Begin(k, order, 7, kagzi.Metadata{"tenant": "other"})
	kit.ResultOf(k, other)
	slices.Sort(want)
	slices.Reverse(want)

	ships, err := admin.New(k.Client).Runs.DeleteAll(k.Ctx, kagzi.RunFilter{Workflow: "ship"})
	if err != nil || ships.Matched != 4 || len(ships.Changed) != 0 || len(ships.Skipped) != 4 {
		t.Errorf("%+v, %v", ships, err)
	}
	acme := kagzi.RunFilter{Metadata: kagzi.Metadata{"tenant": "acme"}, Until: k.InfoOf(other).CreatedAt}
	for _, opts := range [][]kagzi.ChangeOption{{admin.DryRun()}, {kagzi.Reason("acme left"), kagzi.Actor("ada")}} {
		got, err := admin.New(k.Client).Runs.DeleteAll(k.Ctx, acme, opts...)
		if err != nil || got.Matched != 6 || !slices.Equal(got.Changed, want) || len(got.Skipped) != 0 {
			t.Errorf("%+v, %v; want %v", got, err, want)
		}
		if n, left := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`), 8-6*(len(opts)-1); n != left {
			t.Errorf("%d runs are left, want %d", n, left)
		}
	}
	if log, err := admin.New(k.Client).Runs.Log(k.Ctx, want[0]); err != nil || len(log) != 1 ||
		log[0].Reason != "acme left" {
		t.Errorf("%+v, %v", log, err)
	}
}
