package worker_test

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
)

// TestUnreadableInputCostsNobodyElse claims ten runs together with one whose input is damaged: the ten are executed,
// and the damaged one waits like a run whose history cannot be read. Once its input is repaired, it begins.
func TestUnreadableInputCostsNobodyElse(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[string, int]("wf")
	bad := kit.Begin(k, wf, "")
	k.Exec(`UPDATE kagzi.workflow_runs SET input = convert_to(` + kit.OutOfLine + `, 'UTF8')`)
	var others []*kagzi.Run[int]
	for range 10 {
		others = append(others, kit.Begin(k, wf, "x"))
	}
	kit.SetReadable(t, k.Pool, "workflow_runs", false)
	kit.Serve(k, wf, func(_ kagzi.Context, in string) (int, error) { return len(in), nil })
	kit.CheckResults(t, others, func(int) int { return 1 })
	for failures := 1; failures <= 2; failures++ {
		waitRow(k, bad.ID(), fmt.Sprintf("status = 'PENDING' AND waiting_on = '[{\"kind\": \"history\"}]' AND "+
			"load_failures >= %d", failures))
	}
	kit.SetReadable(t, k.Pool, "workflow_runs", true)
	if n := kit.ResultOf(k, bad); n != 32_000 {
		t.Errorf("the function was given %d bytes, want 32000", n)
	}
}

// TestUnreadableInputIsYielded resolves a claim without an answer that has taken a run with a damaged input: the worker
// cannot execute the run, so it is yielded, and is due again before its lease ends.
func TestUnreadableInputIsYielded(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[string, int]("wf")
	bad := kit.Begin(k, wf, "")
	k.Exec(`UPDATE kagzi.workflow_runs SET input = convert_to(` + kit.OutOfLine + `, 'UTF8')`)
	kit.SetReadable(t, k.Pool, "workflow_runs", false)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(kagzi.Context, string) (int, error) { return 0, nil })
	claimed, left, err := worker.ClaimUnanswered(t.Context(), worker.New(configOf(t, w)), 5)
	if claimed != 1 {
		t.Fatalf("claimed %d runs, want 1", claimed)
	}
	if left || err != nil {
		t.Fatal(left, err)
	}
	waitRow(k, bad.ID(), "status = 'PENDING' AND waiting_on = '[{\"kind\": \"worker\"}]' AND available_at <= now()")
}

// waitRow waits until the condition holds for the run's row. Get would read the run's input, too.
func waitRow(k *kit.Kit, id kagzi.RunID, condition string) {
	k.T.Helper()
	await.True(k.T, condition, func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND `+condition, string(id)) == 1
	})
}
