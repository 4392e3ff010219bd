package inspect

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// Health reads a number of rows that does not grow with the backlog: of a hundred thousand due runs it reads as many as
// it counts, and of sleeping runs one for each queue and workflow. The same holds for Stranded, which reads both.
func TestHealthReadsLittle(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	load := func(namespace, queue, typ, status, at string, n int) {
		exec(t, s.pool, `
			INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
			SELECT gen_random_uuid(), $1, $2, $3, $4, now() + $5::interval
				FROM generate_series(1, $6::int)`, namespace, queue, typ, status, at, n)
	}
	load("other", "queue", "type", store.Sleeping, "1 day", campaign.Size(6_000, 20_000))
	load("test", "queue", "asleep", store.Sleeping, "1 day", campaign.Size(6_000, 20_000))
	load("test", "queue", "type", store.Pending, "-1 hour", campaign.Size(15_000, 50_000))
	load("test", "zoo", "type", store.Pending, "-1 hour", 2)
	// Clean up as VACUUM does, so that only the statement's own rows are counted.
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)

	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	for _, p := range []struct {
		name, sql string
		args      []any
		most      int
		buffers   int
	}{
		{"activeQueues", activeQueues, []any{clause.MaxQueues}, 1, 50},
		{"activeTypes", clause.ActiveTypes, []any{s.namespace, []string{"queue", "zoo"}, clause.MaxQueues}, 1, 80},
		{"dueWork", dueWork, []any{
			s.namespace,
			[]string{"queue", "queue", "zoo"},
			[]string{"asleep", "type", "type"},
			maxDueCounted,
		}, maxDueCounted, 3 * maxDueCounted},
	} {
		plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, p.sql, p.args...)
		if rows := plan.MaxRows("workflow_runs"); rows > float64(p.most) {
			t.Errorf("%s read %v rows at once, want %d at most\n%s", p.name, rows, p.most, plan.Text)
		}
		if n := plan.Buffers(); n > p.buffers {
			t.Errorf("%s read %d buffers\n%s", p.name, n, plan.Text)
		}
	}
	plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, activeWork, s.namespace,
		[]string{"queue", "queue", "zoo"}, []string{"asleep", "type", "type"}, maxDueCounted)
	if rows, n := plan.MaxRows("workflow_runs"), plan.Buffers(); rows > maxDueCounted || n > 6*maxDueCounted {
		t.Errorf("activeWork read %v rows at once, and %d buffers\n%s", rows, n, plan.Text)
	}
	due, err := s.DueWork(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range due {
		got = append(got, fmt.Sprint(d.Queue, " ", d.Type, " ", d.Versions[0].Due, " ", d.More))
	}
	if want := []string{"queue type 1000 true", "zoo type 2 false"}; !slices.Equal(got, want) {
		t.Errorf("due %q, want %q", got, want)
	}
}

// If there are many workflows, fewer runs of each are counted.
func TestDueWorkOfManyWorkflows(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue-' || g % 20, 'type-' || g % 500, 'PENDING', now()
			FROM generate_series(0, 14999) AS g`)
	due, err := s.DueWork(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(due) != 500 {
		t.Fatalf("%d pairs of queue and workflow, want 500", len(due))
	}
	for _, d := range due {
		if len(d.Versions) != 1 || d.Versions[0].Due != 20 || !d.More || d.Versions[0].Waiting < 0 {
			t.Errorf("%+v", d)
		}
	}
}

// If the tables may be distributed, the queues are searched in one namespace, with the same result.
func TestDueWorkOnCitus(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := newBoth(db.Pool, "test")
	start(t, s, newRun(), newRun(func(r *store.NewRun) { r.Queue = "zoo" }))
	start(t, newBoth(db.Pool, "other"), newRun(func(r *store.NewRun) { r.Queue = "others" }))
	citus := newBoth(pretendCitus(t, db), "test")
	if yes, err := pg.IsOnCitus(t.Context(), citus.pool); err != nil || !yes {
		t.Fatalf("INVALID: on Citus: %t, error %v", yes, err)
	}
	queues, err := citus.Health.activeQueues(t.Context(), citus.pool)
	if err != nil || !slices.Equal(queues, []string{"queue", "zoo"}) {
		t.Errorf("queues %q, error %v", queues, err)
	}
	plain, err := s.DueWork(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	due, err := citus.DueWork(t.Context(), citus.pool)
	if err != nil || len(due) != 2 || len(plain) != 2 || due[0].Queue != plain[0].Queue ||
		due[1].Queue != plain[1].Queue {
		t.Errorf("due %+v, without Citus %+v, error %v", due, plain, err)
	}
}

// pretendCitus returns a pool whose connections have the setting by which the store detects Citus.
func pretendCitus(t *testing.T, db *dbtest.DB) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, db.DSN, dbtest.LooksLikeCitus)
}
