//go:build unix

package crash_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Coordinators are killed while they end runs that are over their Timeout: each ends once, and its parent is notified
// once.
func TestKilledCoordinatorsEndOverdueRuns(t *testing.T) {
	parents, each := 20, campaign.Size(30, 150)
	k := kit.New(t)
	kit.WaitTurn(t)
	wf := kagzi.Define[int, int]("wf", kagzi.Queue("nobody's"))
	calls := make([]kagzi.Call, parents*(each+1))
	for i := range calls {
		calls[i] = wf.With(i, kagzi.Timeout(time.Hour))
	}
	if _, err := k.Client.StartMany(k.Ctx, calls); err != nil {
		t.Fatal(err)
	}
	k.Exec(`
		WITH n AS (SELECT run_id, row_number() OVER () AS n FROM kagzi.workflow_runs),
		p AS (UPDATE kagzi.workflow_runs r SET status = 'SLEEPING', available_at = 'infinity', deadline_at = NULL,
			wakeups_awaited = $2 FROM n WHERE n.run_id = r.run_id AND n.n <= $1)
		UPDATE kagzi.workflow_runs r SET parent_run_id = p.run_id, deadline_at = now() + CASE n.n % 2 WHEN 0
			THEN interval '1 hour' ELSE interval '-1 hour' END
		FROM n JOIN n p ON p.n = 1 + n.n % $1 WHERE n.n > $1 AND n.run_id = r.run_id`, parents, each)
	dbtest.Audit(t, k.Pool)
	ended := func() int { return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'FAILED'`) }
	spec := workerSpec{
		DSN: k.Pool.Config().ConnString(), Ledger: filepath.Join(t.TempDir(), "ledger"),
		Coordinate: true,
	}
	kills := 0
	for _, late := range []int{parents * each / 2, parents * each} { // the second half is late when the first has ended
		for before := ended(); before < late; before = ended() {
			p := startProcess(t, spec)
			await.True(t, "runs end", func() bool { return ended() > before })
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.killed(t)
			kills++
		}
		k.Exec(`UPDATE kagzi.workflow_runs SET deadline_at = now() - interval '1 hour' WHERE deadline_at > now()`)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING' AND wakeups = $1
		AND available_at <= now()`, each); n != parents {
		t.Errorf("%d of %d parents were notified of each end", n, parents)
	}
	t.Logf("%d processes were killed", kills)
}
