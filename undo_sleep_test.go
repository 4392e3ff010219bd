package kagzi

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A transactional step commits after a sleep, the worker dies before it writes anything else, and the run is cancelled:
// who undoes it must come past the step.
func TestUndoAfterSleepAndStepTx(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	wf := Define[struct{}, string]("wf", RetryPolicy{MaxAttempts: 1})
	hangs, release := make(chan bool, 1), make(chan bool)
	fn := func(ctx Context, _ struct{}) (string, error) {
		var payment string
		Compensate(ctx, "refund", func(ctx context.Context) error { j.add("refund:" + payment); return nil })
		if err := Sleep(ctx, "cooling-off", 400*time.Millisecond); err != nil {
			return "", err
		}
		var err error
		payment, err = StepTx(ctx, "capture", func(context.Context, pgx.Tx) (string, error) { return "payment7", nil })
		if err != nil {
			return "", err
		}
		return "", Do(ctx, "mail", func(context.Context) error {
			hangs <- true
			<-release
			return nil
		})
	}
	_, _ = serveWith(k, told, wf, fn)
	run := begin(k, wf, struct{}{})
	<-hangs
	// The first worker is dead from here on.
	if _, err := k.c.store.Cancel(k.ctx, nil, uuid.MustParse(string(run.ID())), ""); err != nil {
		t.Fatal(err)
	}
	k.exec(`UPDATE kagzi.workflow_runs SET available_at = now(), task_queue = 'rescue'`)
	cfg := told
	cfg.Queue = "rescue"
	serveWith(k, cfg, wf, fn)
	_, err := run.Result(k.ctx)
	t.Log(err)
	close(release)
	if got := j.String(); got != "refund:payment7" {
		t.Errorf("undone: %q", got)
	}
	for id, a := range k.steps(run.ID()) {
		for _, s := range a {
			t.Log(id, s.Attempt, s.Status, string(s.Output))
		}
	}
}
