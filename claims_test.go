package kagzi

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// TestUnreadableInputCostsNobodyElse claims ten runs together with one whose input is damaged: the ten are executed, and the
// one waits as if its history could not be read. Repaired, it begins.
func TestUnreadableInputCostsNobodyElse(t *testing.T) {
	k := newKit(t)
	wf := Define[string, int]("wf")
	bad := begin(k, wf, "")
	k.exec(`UPDATE kagzi.workflow_payloads SET input = convert_to(` + outOfLine + `, 'UTF8')`)
	var others []*Run[int]
	for range 10 {
		others = append(others, begin(k, wf, "x"))
	}
	setReadable(t, k.pool, "workflow_payloads", false)
	serve(k, wf, func(_ Context, in string) (int, error) { return len(in), nil })
	checkResults(t, others, func(int) int { return 1 })
	for failures := 1; failures <= 2; failures++ {
		k.waitRow(bad.ID(), fmt.Sprintf("status = 'PENDING' AND waiting_on = 'history' AND load_failures >= %d", failures))
	}
	setReadable(t, k.pool, "workflow_payloads", true)
	if n := resultOf(k, bad); n != 32_000 {
		t.Errorf("the function was given %d bytes, want 32000", n)
	}
}

// TestUnreadableInputIsGivenBack has a claim without an answer take a run whose input is damaged: nobody executes that, so it
// is due again, and its lease need not end.
func TestUnreadableInputIsGivenBack(t *testing.T) {
	k := newKit(t)
	wf := Define[string, int]("wf")
	bad := begin(k, wf, "")
	k.exec(`UPDATE kagzi.workflow_payloads SET input = convert_to(` + outOfLine + `, 'UTF8')`)
	setReadable(t, k.pool, "workflow_payloads", false)
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, func(Context, string) (int, error) { return 0, nil })
	s := newSession(w.session())
	req := store.ClaimRequest{
		Queue: "default", Types: s.cfg.Types, Limit: 5, Worker: s.id, Lease: uuid.New(), Visibility: w.cfg.LeaseTimeout,
	}
	if claim := s.take(context.Background(), req); len(claim.Runs) != 1 {
		t.Fatalf("claimed %d runs, want 1", len(claim.Runs))
	}
	if left, err := s.giveBack(lookOfDrain, req); left || err != nil {
		t.Fatal(left, err)
	}
	k.waitRow(bad.ID(), "status = 'PENDING' AND waiting_on = 'worker' AND available_at <= now()")
}

// waitRow waits until the condition holds of the run's row: Get would read its input, too.
func (k *kit) waitRow(id RunID, condition string) {
	k.t.Helper()
	waitFor(k.t, condition, func() bool {
		return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND `+condition, string(id)) == 1
	})
}
