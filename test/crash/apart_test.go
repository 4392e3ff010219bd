package crash_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// TestOpenStartOfAChildsIDHoldsUpItsParentOnly has a caller's open transaction start a run with the ID of a child that
// runs of a worker start: they wait for its end, in the order of their writes, and no other run waits.
func TestOpenStartOfAChildsIDHoldsUpItsParentOnly(t *testing.T) {
	tests := map[string]bool{"Committed": true, "RolledBack": false}
	for name, commit := range tests {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			child := kagzi.Define[struct{}, string]("child")
			parent := kagzi.Define[kagzi.ID, string]("parent", kit.NoRetry)
			other := kagzi.Define[int, int]("other")
			fresh := kagzi.Define[int, int]("fresh")
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, child, func(ctx kagzi.Context, _ struct{}) (string, error) { return "done", nil })
			kagzi.Handle(w, parent, func(ctx kagzi.Context, id kagzi.ID) (string, error) {
				c, err := kagzi.StartChild(ctx, "child", child, struct{}{}, id)
				if err != nil {
					return "", err
				}
				if err := kagzi.Do(ctx, "after", func(context.Context) error { return nil }); err != nil {
					return "", err
				}
				return c.Result(ctx)
			})
			ended := make(chan struct{})
			chain := func(ctx kagzi.Context, n int) (int, error) {
				for range 5 {
					if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
						return 0, err
					}
				}
				return n, kagzi.Do(ctx, "last", func(context.Context) error {
					if n == 0 {
						await.Opened(t, ended) // of the open transaction
					}
					return nil
				})
			}
			kagzi.Handle(w, other, chain)
			kagzi.Handle(w, fresh, chain)
			flushes := make(chan bool, 1000)
			kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
				if point == "after flush" {
					select {
					case flushes <- true:
					default:
					}
				}
			})
			tx, err := k.Pool.Begin(k.Ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := kagzi.Start(k.Ctx, k.Client, other, 0, kagzi.ID("x"), kagzi.InTx(tx)); err != nil {
				t.Fatal(err)
			}
			kit.StartWorker(t, w)
			var parents []*kagzi.Run[string]
			for range 3 {
				parents = append(parents, kit.Begin(k, parent, kagzi.ID("x")))
			}
			free := kit.Begin(k, parent, kagzi.ID("y"))
			kit.CheckResults(t, kit.StartRuns(t, k.Client, fresh, 20)[1:], func(i int) int { return i + 1 })
			if got := kit.ResultOf(k, free); got != "done" {
				t.Errorf("the parent of another child returned %q", got)
			}
			for len(flushes) > 0 {
				await.Receive(t, flushes)
			}
			for range 5 { // the parents' are tried again
				await.Receive(t, flushes)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.step_runs s JOIN kagzi.workflow_runs r USING (run_id)
				WHERE r.workflow_type = 'parent' AND s.step_id = 'after'`); n != 1 {
				t.Errorf("%d parents came past the start of their child, want one", n)
			}
			if commit {
				err = tx.Commit(k.Ctx)
			} else {
				err = tx.Rollback(k.Ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			won := 0
			for _, p := range parents {
				switch got, err := p.Result(k.Ctx); {
				case err == nil && got == "done":
					won++
				case !errors.Is(err, kind.BadRequest):
					t.Errorf("%q, %v; want the child's result, or that its ID is taken", got, err)
				}
			}
			if commit && won != 0 || !commit && won == 0 {
				t.Errorf("%d parents got a child with the ID", won)
			}
			close(ended)
		})
	}
}

// TestOpenPublishOfAnIDHoldsUpItsRunsOnly has a caller's open transaction publish an event with an ID that runs of a
// worker publish: what they record afterwards waits for its end, and no other run waits.
func TestOpenPublishOfAnIDHoldsUpItsRunsOnly(t *testing.T) {
	for name, commit := range map[string]bool{"Committed": true, "RolledBack": false} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			about := topic.Define[int]("topic")
			publishing := kagzi.Define[kagzi.ID, int]("publishing", kit.NoRetry)
			other := kagzi.Define[int, int]("other")
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, publishing, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
				if err := topic.Publish(ctx, "tell", about.With(1).WithID(id)); err != nil {
					return 0, err
				}
				return 1, kagzi.Do(ctx, "after", func(context.Context) error { return nil })
			})
			kagzi.Handle(w, other, func(ctx kagzi.Context, n int) (int, error) {
				for range 5 {
					if err := topic.Publish(ctx, "tell", about.With(n)); err != nil {
						return 0, err
					}
					if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
						return 0, err
					}
				}
				return n + 1, nil
			})
			flushes := make(chan bool, 1000)
			kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
				if point == "after flush" {
					select {
					case flushes <- true:
					default:
					}
				}
			})
			tx := k.CallersTx()
			if err := topic.New(k.Client).Publish(k.Ctx, about.With(2).WithID("x"), kagzi.InTx(tx)); err != nil {
				t.Fatal(err)
			}
			kit.StartWorker(t, w)
			var held []*kagzi.Run[int]
			for range 3 {
				held = append(held, kit.Begin(k, publishing, kagzi.ID("x")))
			}
			free := kit.Begin(k, publishing, kagzi.ID("y"))
			kit.CheckResults(t, kit.StartRuns(t, k.Client, other, 20), func(i int) int { return i + 1 })
			kit.ResultOf(k, free)
			for len(flushes) > 0 {
				await.Receive(t, flushes)
			}
			for range 5 { // the held ones are tried again
				await.Receive(t, flushes)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'after'`); n != 1 {
				t.Errorf("%d runs came past the ID, want one", n)
			}
			if commit {
				kit.CommitTx(t, tx)
			} else {
				kit.RollbackTx(t, tx)
			}
			for _, run := range held {
				kit.ResultOf(k, run)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.events WHERE event_id = 'x'`); n != 1 {
				t.Errorf("%d events have the ID", n)
			}
		})
	}
}
