package kagzi

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
)

// TestOpenStartOfAChildsIDHoldsUpItsParentOnly has somebody's open transaction start a run with the ID of a child that
// runs of a worker start: they wait for its end, in the order of what they write, and nobody else does.
func TestOpenStartOfAChildsIDHoldsUpItsParentOnly(t *testing.T) {
	tests := map[string]bool{"Committed": true, "RolledBack": false}
	for name, commit := range tests {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			child := Define[struct{}, string]("child")
			parent := Define[ID, string]("parent", noRetry)
			other := Define[int, int]("other")
			fresh := Define[int, int]("fresh")
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, child, func(ctx Context, _ struct{}) (string, error) { return "done", nil })
			Handle(w, parent, func(ctx Context, id ID) (string, error) {
				c, err := StartChild(ctx, "child", child, struct{}{}, id)
				if err != nil {
					return "", err
				}
				if err := Do(ctx, "after", func(context.Context) error { return nil }); err != nil {
					return "", err
				}
				return c.Result(ctx)
			})
			ended := make(chan struct{})
			chain := func(ctx Context, n int) (int, error) {
				for range 5 {
					if err := Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
						return 0, err
					}
				}
				return n, Do(ctx, "last", func(context.Context) error {
					if n == 0 {
						<-ended // of the open transaction
					}
					return nil
				})
			}
			Handle(w, other, chain)
			Handle(w, fresh, chain)
			flushes := make(chan bool, 1000)
			failpoint(t, w, func(point string, _ uuid.UUID) {
				if point == "after flush" {
					select {
					case flushes <- true:
					default:
					}
				}
			})
			tx, err := k.pool.Begin(k.ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := Start(k.ctx, k.c, other, 0, ID("x"), InTx(tx)); err != nil {
				t.Fatal(err)
			}
			startWorker(t, w)
			var parents []*Run[string]
			for range 3 {
				parents = append(parents, begin(k, parent, ID("x")))
			}
			free := begin(k, parent, ID("y"))
			checkResults(t, startRuns(t, k.c, fresh, 20)[1:], func(i int) int { return i + 1 })
			if got := resultOf(k, free); got != "done" {
				t.Errorf("the parent of another child returned %q", got)
			}
			for len(flushes) > 0 {
				<-flushes
			}
			for range 5 { // the parents' are tried again
				receive(t, flushes)
			}
			if n := k.count(`SELECT count(*) FROM kagzi.step_runs s JOIN kagzi.workflow_runs r USING (run_id) WHERE r.workflow_type = 'parent' AND s.step_id = 'after'`); n != 1 {
				t.Errorf("%d parents came past the start of their child, want one", n)
			}
			if commit {
				err = tx.Commit(k.ctx)
			} else {
				err = tx.Rollback(k.ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			won := 0
			for _, p := range parents {
				switch got, err := p.Result(k.ctx); {
				case err == nil && got == "done":
					won++
				case !errors.Is(err, KindBadRequest):
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
