package language_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A decline is the details of a failure.
type decline struct {
	Reason string `json:"reason"`
	Left   int    `json:"left"`
}

const declined kind.Kind = "declined"

// declineIn returns the details of err as a text.
func declineIn(err error) string {
	d, ok := kind.Details[decline](err)
	if !ok {
		return "none"
	}
	return fmt.Sprint(d.Reason, " ", d.Left)
}

func refusing() (int, error) {
	return 0, fmt.Errorf("pay: %w", kind.WithDetails(kagzi.Permanent(declined), decline{"limit", 5}))
}

// The details of a failure go from a step to its workflow, from a child to its parent, and to the caller of Result. A
// replay sees them, too.
func TestDetailsOfAFailure(t *testing.T) {
	for name, newKit := range map[string]func(*testing.T) *kit.Kit{
		"Plain": func(t *testing.T) *kit.Kit { return kit.New(t) }, "Sealed": newSealedKit,
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			checkDetails(t, k)
			readable := k.Count(`SELECT
				(SELECT count(*) FROM kagzi.workflow_runs WHERE encode(output, 'escape') LIKE '%limit%') +
				(SELECT count(*) FROM kagzi.step_runs WHERE encode(output, 'escape') LIKE '%limit%')`)
			if (readable > 0) == (name == "Sealed") {
				t.Errorf("%d rows have details that can be read without the key", readable)
			}
		})
	}
}

func checkDetails(t *testing.T, k *kit.Kit) {
	t.Helper()
	pay := kagzi.Define[string, string]("pay", kit.NoRetry)
	order := kagzi.Define[string, string]("order", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, pay, func(ctx kagzi.Context, how string) (string, error) {
		var err error
		switch how {
		case "step":
			_, err = kagzi.Step(ctx, "pay", func(context.Context) (int, error) { return refusing() })
		case "tx":
			_, err = kagzi.StepTx(ctx, "pay", func(context.Context, pgx.Tx) (int, error) { return refusing() })
		case "branch":
			err = kagzi.Parallel(ctx, "all", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error {
					_, err := kagzi.Step(ctx, "pay", func(context.Context) (int, error) { return refusing() })
					return err
				},
			})
		default:
			_, err = refusing()
			return "", err
		}
		live := declineIn(err)
		if err := kagzi.Sleep(ctx, "replays", time.Millisecond); err != nil {
			return "", err
		}
		if live != declineIn(err) || live != "limit 5" || !errors.Is(err, declined) {
			return "", fmt.Errorf("the details are %s, and in a replay %s: %w", live, declineIn(err), err)
		}
		return "", fmt.Errorf("order: %w", err)
	})
	kagzi.Handle(w, order, func(ctx kagzi.Context, how string) (string, error) {
		_, err := kagzi.RunChild(ctx, "pay", pay, how)
		live := declineIn(err)
		if err := kagzi.Sleep(ctx, "replays", time.Millisecond); err != nil {
			return "", err
		}
		if live != "limit 5" || live != declineIn(err) {
			return "", fmt.Errorf("the details are %s, and in a replay %s: %w", live, declineIn(err), err)
		}
		return "", err
	})
	kit.StartWorker(t, w)
	for _, how := range []string{"step", "tx", "branch", "run"} {
		run := kit.Begin(k, order, how)
		err := kit.FailureOf(k, run, kagzi.StatusFailed)
		if got := declineIn(err); got != "limit 5" || !errors.Is(err, declined) {
			t.Errorf("%s: the details are %s: %v", how, got, err)
		}
		if info := k.InfoOf(run); string(info.Output) != `{"reason":"limit","left":5}` {
			t.Errorf("%s: the run is shown with %s", how, info.Output)
		}
		steps, listing := k.Client.Steps(k.Ctx, run)
		if listing != nil || len(steps) == 0 {
			t.Fatal(steps, listing)
		}
		if got := string(steps[0].Output); got != `{"reason":"limit","left":5}` {
			t.Errorf("%s: the child's step is shown with %s", how, got)
		}
	}
}

// A run keeps the details of its failure while its compensations run, and until it is resumed.
func TestDetailsOfACompensatedRun(t *testing.T) {
	k := kit.New(t)
	wf, undo := kagzi.Define[int, int]("wf", kit.NoRetry), kagzi.Define[int, int]("undo", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	var fails atomic.Bool // the compensation of run 1, and run 2
	kagzi.Handle(w, undo, func(_ kagzi.Context, n int) (int, error) {
		if n == 1 && fails.Load() {
			return 0, errors.New("not undone")
		}
		return 0, nil
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		if n < 2 {
			kagzi.Compensate(ctx, "undo", undo.With(n))
		}
		if n == 2 && !fails.Load() {
			return 7, nil
		}
		return refusing()
	})
	kit.StartWorker(t, w)
	for n := range 3 {
		fails.Store(true)
		run := kit.Begin(k, wf, n)
		if got := declineIn(kit.FailureOf(k, run, kagzi.StatusFailed)); got != "limit 5" {
			t.Errorf("run %d has the details %s", n, got)
		}
		if n == 0 { // it is compensated, and not resumed
			continue
		}
		fails.Store(false)
		tx := dbtest.Begin(t, k.Pool)
		if err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID(), kagzi.InTx(tx)); err != nil {
			t.Fatal(err)
		}
		var kept bool
		err := tx.QueryRow(k.Ctx, `SELECT output IS NOT NULL FROM kagzi.workflow_runs WHERE run_id = $1`,
			string(run.ID())).Scan(&kept)
		if err != nil || kept != (n == 1) {
			t.Errorf("run %d, which is resumed, keeps the details: %t, %v", n, kept, err)
		}
		kit.CommitTx(t, tx)
		if n == 2 {
			if got := kit.ResultOf(k, run); got != 7 {
				t.Errorf("the resumed run returned %d", got)
			}
		} else {
			if got := declineIn(kit.FailureOf(k, run, kagzi.StatusFailed)); got != "limit 5" {
				t.Errorf("the compensated run has the details %s", got)
			}
		}
	}
}

// Details that cannot be stored leave their failure as it is, with a text that says so.
func TestDetailsThatCannotBeStored(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		var with any = make(chan int)
		switch n {
		case 1:
			with = strings.Repeat("x", 5<<20)
		case 2:
			with = panicsInJSON{}
		}
		return 0, kagzi.Do(ctx, "fails", func(context.Context) error {
			return kind.WithDetails(kagzi.Permanent(declined), with)
		})
	})
	kit.StartWorker(t, w)
	for n := range 3 {
		err := kit.FailureOf(k, kit.Begin(k, wf, n), kagzi.StatusFailed)
		kit.MustContain(t, err, "declined", "without its details")
		if _, ok := kind.Details[any](err); ok || !errors.Is(err, declined) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

type panicsInJSON struct{}

func (panicsInJSON) MarshalJSON() ([]byte, error) { panic("no") }
