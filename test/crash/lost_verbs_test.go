//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A lossPoint is a statement that is lost, or whose answer is: in turn the nth of those that match.
type lossPoint struct {
	match func() pgproxy.Match
	nths  []int
}

func executions(part string, nths ...int) lossPoint {
	return lossPoint{func() pgproxy.Match { return pgproxy.Contains(part) }, nths}
}

// commitsOf are the commits of a connection that has executed such a statement.
func commitsOf(part string, nths ...int) lossPoint {
	return lossPoint{
		func() pgproxy.Match { return pgproxy.After(pgproxy.Contains(part), pgproxy.Exactly("commit")) },
		nths,
	}
}

// eachLossPoint runs a test for each of the statements, losing the answer to it, and in a long campaign also losing the
// statement. The test calls lose when what it has prepared is there.
func eachLossPoint(t *testing.T, points map[string]lossPoint, test func(t *testing.T, k *kit.Kit, l *kit.Lossy,
	lose func() *pgproxy.Drop),
) {
	for name, p := range points {
		for _, nth := range campaign.Some(p.nths, 1) {
			for _, request := range campaign.Some([]bool{false, true}, 1) {
				t.Run(lossName(fmt.Sprint(name, nth), request), func(t *testing.T) {
					t.Parallel()
					l := kit.NewLossy(t, request)
					k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
					test(t, k, l, func() *pgproxy.Drop { return l.Lose(pgproxy.Nth(nth, p.match())) })
				})
			}
		}
	}
}

func lossName(name string, request bool) string {
	if request {
		name += "Request"
	}
	return name
}

// A statement of an UpdateAll or Update is lost, or the answer to it: each run is changed, and says so once.
func TestLostAnswersToUpdates(t *testing.T) {
	t.Parallel()
	const set = "SET task_queue = planned.queue"
	eachLossPoint(t, map[string]lossPoint{
		"Lock":   executions("AND q.namespace_id = $1\nFOR UPDATE", 1, 3),
		"Set":    executions(set, 2, 4),
		"Record": executions("INSERT INTO kagzi.run_events", 1, 4),
		"Commit": commitsOf(set, 1, 2, 3, 4),
	}, func(t *testing.T, k *kit.Kit, l *kit.Lossy, lose func() *pgproxy.Drop) {
		var ids []kagzi.RunID
		for i := range 4 {
			ids = append(ids, kit.Begin(k, kit.Noop, i, kagzi.Metadata{"all": fmt.Sprint(i < 3)}).ID())
		}
		c := l.Client(t, 2)
		drop := lose()
		all, err := admin.New(c).Runs.UpdateAll(k.Ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"all": "true"}},
			kagzi.Queue("other"),
			kagzi.Actor("ada"))
		slices.Sort(all.Changed)
		if err != nil || !slices.Equal(all.Changed, ids[:3]) || len(all.Skipped) > 0 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := admin.New(c).Runs.Update(k.Ctx, ids[3], kagzi.Queue("other"), kagzi.Actor("ada")); err != nil {
			t.Error(err)
		}
		await.Receive(t, drop.Done())
		for _, id := range ids {
			if info := k.InfoOf(id); info.Queue != "other" {
				t.Errorf("run %s is in queue %q", id, info.Queue)
			}
			k.WantEvents(id, admin.LogEntry{
				Event: "UPDATED", Actor: "ada",
				Changes: []admin.LogChange{{Field: "queue", From: "default", To: "other"}},
			})
		}
	})
}

// A statement of a DeleteAll is lost, or the answer to it. One of the runs is deleted in several transactions, and each
// has a child.
func TestLostAnswersToDeletes(t *testing.T) {
	t.Parallel()
	const (
		record  = "INSERT INTO kagzi.run_events"
		mark    = `SET waiting_on = '[{"kind": "deletion"}]'`
		portion = "DELETE FROM kagzi.step_runs t"
		remove  = "DELETE FROM kagzi.workflow_runs r"
	)
	eachLossPoint(t, map[string]lossPoint{
		"Lock":    executions("EXCEPT\nSELECT k.run_id", 1, 2, 3),
		"Record":  executions(record, 1, 3),
		"Mark":    executions(mark, 1),
		"Marked":  commitsOf(mark, 1, 2),
		"Portion": executions(portion, 1, 3, 4),
		"Remove":  executions(remove, 1, 2, 3),
		"Commit":  commitsOf(record, 1, 2, 3, 9),
	}, func(t *testing.T, k *kit.Kit, l *kit.Lossy, lose func() *pgproxy.Drop) {
		var ids []kagzi.RunID
		for _, steps := range []int{longSteps, longSteps / 2, 1} { // the last one is deleted first
			parent, child := failedFamily(t, l.Db, steps)
			ids = append(ids, parent, child)
		}
		c := l.Client(t, 2)
		drop := lose()
		all, err := admin.New(c).Runs.DeleteAll(k.Ctx, kagzi.RunFilter{Workflow: "order"}, kagzi.Actor("ada"))
		slices.Sort(all.Changed)
		if err != nil || !slices.Equal(all.Changed, []kagzi.RunID{ids[0], ids[2], ids[4]}) || len(all.Skipped) > 0 {
			t.Errorf("%+v, %v", all, err)
		}
		await.Receive(t, drop.Done())
		for _, id := range ids {
			if got := leftOf(t, l.Db, id); got != (remnant{deletions: 1}) {
				t.Errorf("left %+v of run %s", got, id)
			}
			if log, err := admin.New(c).Runs.Log(k.Ctx, id); err != nil || len(log) != 1 || log[0].Actor != "ada" {
				t.Errorf("%+v, %v", log, err)
			}
		}
	})
}

// The write that changes a run's tags is lost, or the answer to it: the tags are those of the code, above those that
// another client has set.
func TestLostAnswersToSetMetadata(t *testing.T) {
	t.Parallel()
	eachLossPoint(t, map[string]lossPoint{"Change": executions("|| given.tags", 1, 2, 3)},
		func(t *testing.T, k *kit.Kit, l *kit.Lossy, lose func() *pgproxy.Drop) {
			wf := kagzi.Define[int, kagzi.Metadata]("tagging")
			w := kit.NewWorker(t, l.Client(t, 5), kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (kagzi.Metadata, error) {
				for i, tags := range []kagzi.Metadata{
					{"stage": "one", "page": "7"},
					{"stage": "two", "page": ""},
					{"stage": "three"},
				} {
					name := fmt.Sprint("tag-", i)
					if err := kagzi.SetMetadata(ctx, name, tags); err != nil {
						return nil, err
					}
					if err := kagzi.Do(ctx, "after-"+name, func(context.Context) error { return nil }); err != nil {
						return nil, err
					}
				}
				return ctx.Metadata(), nil
			})
			run := kit.Begin(k, wf, 1, kagzi.Metadata{"tenant": "acme"})
			if err := admin.New(k.Client).Runs.Update(k.Ctx, run, kagzi.Metadata{"tenant": "other"}); err != nil {
				t.Fatal(err)
			}
			drop := lose()
			kit.StartLocal(t, w)
			if got := kit.ResultOf(k, run); !maps.Equal(got, kagzi.Metadata{"tenant": "acme", "stage": "three"}) {
				t.Errorf("the code saw %v", got)
			}
			await.Receive(t, drop.Done())
			if got := k.InfoOf(run).Metadata; !maps.Equal(got, kagzi.Metadata{"tenant": "other", "stage": "three"}) {
				t.Errorf("tags %v", got)
			}
			if n := dbtest.QueryOne[int](t, l.Db.Pool, `SELECT count(*) FROM kagzi.step_runs
				WHERE step_kind = 'METADATA'`); n != 3 {
				t.Errorf("%d records, want 3", n)
			}
		})
}
