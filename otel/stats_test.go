package kagziotel_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// The metrics of a namespace are those of Client.Stats. Workflows beyond the bound are one, with their sum and the
// greatest age.
func TestBacklogMetrics(t *testing.T) {
	k := kit.New(t)
	p := newProbe(t, kagziotel.Config{MaxNames: 2})
	stop, err := p.tel.Observe(k.Client)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		wf := kagzi.Define[int, int](fmt.Sprint("wf-", i))
		for range i + 1 {
			kit.Begin(k, wf, 0)
		}
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() - CASE workflow_type WHEN 'wf-2' THEN interval '2 hours'
		ELSE interval '1 hour' END WHERE workflow_type <> 'wf-0'`)
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'SLEEPING', available_at = 'infinity' WHERE workflow_type = 'wf-0'`)
	if err := admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Workflow: "wf-1"}); err != nil {
		t.Fatal(err)
	}
	const first, second, others = "queue.name=default workflow.name=wf-0", "queue.name=default workflow.name=wf-1",
		"queue.name=default workflow.name=_OTHER"
	p.wantPoints("kagzi.queue.due", map[string]float64{first: 0, second: 0, others: 7})
	p.wantPoints("kagzi.queue.sleeping", map[string]float64{first: 1, second: 0, others: 0})
	p.wantPoints("kagzi.queue.paused", map[string]float64{first: 0, second: 2, others: 0})
	age := p.points("kagzi.queue.due_age")
	if len(age) != 3 || age[first] != 0 || age[second] != 0 || age[others] < 7200 || age[others] > 7200+
		time.Hour.Seconds() {
		t.Errorf("ages %v", age)
	}
	k.Exec(`DELETE FROM kagzi.workflow_runs WHERE workflow_type = 'wf-3'`)
	await.True(t, "the next second has other numbers", func() bool { return p.points("kagzi.queue.due")[others] == 3 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := p.points("kagzi.queue.due"); len(got) > 0 {
		t.Errorf("the backlog is observed after stop: %v", got)
	}
}

// Without statistics, nothing is asked of the database.
func TestNoStats(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{NoStats: true})
	c := kit.NewClient(t, kit.Unreachable(t))
	if _, err := p.tel.Observe(c); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"kagzi.queue.due", "kagzi.queue.due_age", "kagzi.queue.sleeping",
		"kagzi.queue.paused",
	} {
		p.wantPoints(name, map[string]float64{}) // Collect would return the error of a query
	}
}
