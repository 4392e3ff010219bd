//go:build unix

package kagzi

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestClaimAnsweredWhileTheWorkerIsBornAnew lets the answer to a claim come while the worker, which was declared dead, ends
// what it executes: what was claimed under the ID that is dead must not begin.
func TestClaimAnsweredWhileTheWorkerIsBornAnew(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	cfg := quick
	cfg.NoCoordinator, cfg.LeaseTimeout = true, time.Minute
	w := newTestWorker(t, c, cfg)
	g := newGate()
	g.handle(w)
	running := func() int {
		return queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'`)
	}
	claimed, answer := hangAt(t, w, "after claim", func() bool { return running() == 2 })
	first := startRuns(t, c, g.wf, 1)
	startLocal(t, w)
	t.Cleanup(answer)
	receive(t, g.begun)
	second := startRuns(t, c, g.wf, 1)
	receive(t, claimed)
	s := theSession(c)
	s.mu.Lock()
	e := s.executing[uuid.MustParse(string(first[0].ID()))]
	s.mu.Unlock()
	e.mu.Lock() // to end it takes a while
	execSQL(t, db.Pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`)
	waitFor(t, "the worker ends all", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stops > 0
	})
	answer()
	waitFor(t, "what was claimed is given back", func() bool {
		return queryOne[bool](t, db.Pool, `SELECT status = 'PENDING' FROM kagzi.workflow_runs WHERE run_id = $1`, string(second[0].ID()))
	})
	e.mu.Unlock()
	close(g.open)
	checkResults(t, second, func(int) string { return "opened" })
}
