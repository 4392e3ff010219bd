package language_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store"
)

// TestRecordsTellOfWhatHappensToTheRun cancels and pauses a run while a step is under way. No notification says so, and
// the worker sends no heartbeats. The answer to the step's record says it, and no other step begins.
func TestRecordsTellOfWhatHappensToTheRun(t *testing.T) {
	t.Parallel()
	cancel := func(ctx context.Context, s *store.Store, id uuid.UUID) error {
		_, err := s.Runs.Cancel(ctx, nil, id, store.Why{Reason: "a test"}, store.CancelGrace)
		return err
	}
	pause := func(ctx context.Context, s *store.Store, id uuid.UUID) error {
		return s.Pauses.PauseRun(ctx, nil, id, store.Why{Reason: "a test"})
	}
	for _, tc := range []struct {
		name string
		do   func(context.Context, *store.Store, uuid.UUID) error
		tx   bool
		over string // how the execution ends
	}{
		{"CancelInAStep", cancel, false, `status = 'CANCELLED'`},
		{"CancelInAStepTx", cancel, true, `status = 'CANCELLED'`},
		{"PauseInAStep", pause, false, `status = 'PENDING' AND waiting_on = '[{"kind": "pause"}]'`},
		{"PauseInAStepTx", pause, true, `status = 'PENDING' AND waiting_on = '[{"kind": "pause"}]'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := kit.New(t)
			wf, undo := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("undo")
			var steps atomic.Int64
			w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kit.NotifiedOnly)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				_, err := kagzi.Step(ctx, "reserve", func(context.Context) (int, error) { return 1, nil },
					kagzi.UndoneBy(undo))
				id := uuid.MustParse(string(ctx.RunID()))
				step := func(i int) error {
					if steps.Add(1); i == 2 {
						return tc.do(k.Ctx, store.New(k.Pool, "default"), id)
					}
					return nil
				}
				for i := 0; i < 10 && err == nil; i++ {
					if tc.tx {
						err = kagzi.DoTx(ctx, fmt.Sprint("s", i), func(context.Context, pgx.Tx) error {
							return step(i)
						})
					} else {
						err = kagzi.Do(ctx, fmt.Sprint("s", i), func(context.Context) error { return step(i) })
					}
				}
				return 1, err
			})
			kagzi.Handle(w, undo, func(kagzi.Context, int) (int, error) { return 1, nil })
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, 1)
			await.True(t, "the execution is over", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND `+tc.over, run.ID()) == 1
			})
			if n := steps.Load(); n != 3 {
				t.Errorf("%d steps were executed, want 3", n)
			}
		})
	}
}
