package language_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// A history whose first steps have exactly as many bytes as the limit of a shared read is not taken for the whole.
func TestHistoryAtTheLimitOfASharedRead(t *testing.T) {
	k := kit.New(t)
	const steps = 2100
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	run := kit.Begin(k, wf, 1, kagzi.Delay(time.Hour))
	out := `"` + fmt.Sprintf("%0210d", 0) + `"` // 300 and 212 bytes: 2048 steps are sharedEach
	k.Exec(`INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
		first_attempt, output, started_at, finished_at)
		SELECT run_id, 's' || to_char(n, 'FM00000'), 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1,
			convert_to($2, 'UTF8'), now(), now()
		FROM kagzi.workflow_runs, generate_series(0, $3::int - 1) n WHERE run_id = $1`, string(run.ID()), out, steps)
	k.Exec(`UPDATE kagzi.workflow_runs SET started_at = now(), version = 1, available_at = now() WHERE run_id = $1`,
		string(run.ID()))
	var calls atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		for n := range steps {
			if _, err := kagzi.Step(ctx, fmt.Sprintf("s%05d", n), kit.Once(&calls, json.RawMessage(out))); err != nil {
				return 0, err
			}
		}
		return steps, nil
	})
	if kit.ResultOf(k, run); calls.Load() != 0 {
		t.Errorf("%d steps whose results are recorded were executed again", calls.Load())
	}
}

// Messages whose first ones have exactly as many bytes as the limit are not taken for all.
func TestMessagesAtTheLimitOfASharedRead(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, string]("wf", kit.NoRetry)
	run := kit.Begin(k, wf, 1, kagzi.Delay(time.Hour))
	fill := `"` + strings.Repeat("x", 822) + `"` // 200 and 824 bytes: 1024 messages are sharedEach
	k.Exec(`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id, payload, received_at)
		SELECT run_id, 'a', n, namespace_id, 'm' || n, convert_to($2, 'UTF8'), now() FROM kagzi.workflow_runs,
			generate_series(1, 1024) n WHERE run_id = $1`, string(run.ID()), fill)
	k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = 1024 WHERE run_id = $1`, string(run.ID()))
	k.Signal(run, kit.Approved.With("yes"))
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(run.ID()))
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, kit.Approved) })
	if got := kit.ResultOf(k, run); got != "yes" {
		t.Errorf("got %q", got)
	}
}
