package inspect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// Health and Stranded read a bounded number of the runs of each key, of each line, and none of a workflow
// that is paused as a whole.
func TestHealthReadsLittleOfKeys(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	rows := campaign.Size(8_000, 20_000)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at, run_key,
			key_scope)
		SELECT gen_random_uuid(), 'test', 'queue', 'type', 'PENDING', now() - interval '1 hour', CASE WHEN g <= $1::int
			THEN 'a' ELSE 'key ' || g END, 'queue'
		FROM generate_series(1, $1::int + 1000) AS g`, rows)
	exec(t, s.pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		SELECT DISTINCT key_scope, run_key, 'test', now() - interval '1 hour' FROM kagzi.workflow_runs`)
	exec(t, s.pool, `INSERT INTO kagzi.key_changes (key_scope, run_key, namespace_id) SELECT key_scope, run_key, 'test'
		FROM kagzi.workflow_runs`)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue', 'paused', 'PENDING', now() - interval '1 hour'
			FROM generate_series(1, $1::int)`, rows)
	if _, err := s.Pauses.Pause(t.Context(), nil, store.Pause{Queue: "queue", Type: "paused"}); err != nil {
		t.Fatal(err)
	}
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs, kagzi.run_keys, kagzi.key_changes`)
	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	var toClaim, waiting foundKeys
	read(t, tx, toClaim.read, keysToClaim, s.namespace, clause.MaxQueues, keysPerLine)
	read(t, tx, waiting.read, keysWithWaiting, s.namespace, maxStandingKeys)
	for _, p := range []struct {
		name, sql string
		args      []any
		most      int // rows of workflow_runs that a search reads
		buffers   int
	}{
		{"keysToClaim", keysToClaim, []any{s.namespace, clause.MaxQueues, keysPerLine}, 0, 200},
		{
			"dueKeys", dueKeys,
			[]any{s.namespace, toClaim.scopes, toClaim.names, maxSlotsCounted, runsPerKey},
			runsPerKey,
			500,
		},
		{
			"activeKeyed", activeKeyed,
			[]any{s.namespace, maxActiveKeys, minKeyRead, maxActiveRead, maxActiveTotal},
			maxActiveTotal / 1001, 25_000,
		},
		{"keysWithWaiting", keysWithWaiting, []any{s.namespace, maxStandingKeys}, 1, 5 * maxStandingKeys},
		{"standingKeys", standingKeys, []any{
			s.namespace, waiting.scopes, waiting.names, maxSlotsCounted, pg.Micros(time.Minute), 20,
		}, 1, 10 * maxStandingKeys},
		{"runsBehindKeys", runsBehindKeys, []any{
			s.namespace, waiting.scopes[:20], waiting.names[:20], make([]uuid.UUID, 20), runsBehind,
		}, runsBehind, 500},
		{"dueWork", dueWork, []any{s.namespace, []string{"queue"}, []string{"paused"}, maxDueCounted}, 0, 10},
	} {
		plan := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, p.sql, p.args...)
		if rows, n := plan.MaxRows("workflow_runs"), plan.Buffers(); rows > float64(p.most) || n > p.buffers {
			t.Errorf("%s read %v rows at once, want %d at most, and %d buffers\n%s", p.name, rows, p.most, n, plan.Text)
		}
	}
	due, err := s.DueKeys(t.Context(), s.pool)
	if err != nil || len(due) == 0 || len(due) > 2*keysPerLine || due[0].Key.Name != "a" || !due[0].More ||
		due[0].Versions[0].Due != runsPerKey {
		t.Errorf("%d keys: %+v, error %v", len(due), due, err)
	}
}

// Claims and DueKeys agree: a key is due from the start of a run on until a claim has taken all slots of the key.
func TestDueKeysBetweenClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	mustSetQueue(t, s, store.QueueLimits{EachKey: store.KeyLimits{MaxRunning: 1}})
	due := func(want int) (d DueWork) {
		t.Helper()
		out, err := s.DueKeys(t.Context(), s.pool)
		if err != nil || len(out) != want {
			t.Fatalf("%+v, error %v", out, err)
		}
		if want > 0 {
			d = out[0]
		}
		return d
	}
	start(t, s, many(3, ofKey("a"))...)
	if d := due(1); d.Key != (store.Key{Name: "a"}) || d.Queue != "queue" || d.Type != "type" || d.More ||
		len(d.Versions) != 1 || d.Versions[0].Due != 3 || d.Versions[0].Turn < 0 {
		t.Errorf("%+v", d)
	}
	none := keyedRequest(10)
	none.Types[0].Type = "other"
	claim(t, s, none)
	due(1) // it stands in the line now
	exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = now() - interval '2 minutes'`)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour'`)
	if v := due(1).Versions[0]; v.Turn < 2*time.Minute || v.Turn > 3*time.Minute || v.Waiting < time.Hour {
		t.Errorf("%+v", v)
	}
	runs := claim(t, s, keyedRequest(10)).Runs
	if len(runs) != 1 {
		t.Fatalf("claimed %d runs", len(runs))
	}
	due(0)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', finished_at = now(), available_at = NULL,
		locked_by = NULL WHERE status = 'RUNNING'`)
	exec(t, s.pool, `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) VALUES ('queue', 'test', 'a')`)
	due(1)
}

// IdleSlots names workers that are lost, and counts runs that keep slots while they wait.
func TestIdleSlots(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	mustSetQueue(t, s, store.QueueLimits{MaxRunning: 10, Held: true})
	start(t, s, many(4)...)
	lost := claim(t, s, keyedRequest(2)).Runs
	alive := keyedRequest(2)
	insertLive(t, s.pool, alive)
	claim(t, s, alive)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'SLEEPING', locked_by = NULL WHERE run_id = $1`,
		lost[0].RunID)
	got, err := s.IdleSlots(t.Context(), s.pool, "queue")
	if err != nil || len(got) != 2 || got[0].Runs != 1 || got[1].Runs != 1 || got[0].Worker == got[1].Worker ||
		got[1].Worker == alive.Worker {
		t.Errorf("%+v, error %v", got, err)
	}
}

// insertLive registers the worker that claims.
func insertLive(t *testing.T, pool *pgxpool.Pool, req store.ClaimRequest) {
	t.Helper()
	exec(t, pool, `
		INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status, lease_timeout,
			stale_after)
		VALUES ($1, 'test', '{queue}', '{type}', 'ONLINE', '5 minutes', '1 minute')`, req.Worker)
}

// The many keys of one queue do not hide those of another.
func TestKeysOfAllQueuesAreLookedAt(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, key_scope, run_key, workflow_type, status,
			available_at)
		SELECT gen_random_uuid(), 'test', queue, queue, 'key' || i, 'type', 'PENDING', now()
		FROM generate_series(1, $1::int) AS i
		CROSS JOIN (VALUES ('many'), ('other')) AS q (queue)
		WHERE queue = 'many' OR i = 1`, 2*maxStandingKeys)
	tx := begin(t, s)
	exec(t, tx, pg.ApplySettings)
	var found foundKeys
	read(t, tx, found.read, keysWithWaiting, s.namespace, maxStandingKeys)
	if n := len(found.scopes); n != maxStandingKeys/2+1 || !slices.Contains(found.scopes, "other") {
		t.Errorf("looked at %d keys, of %v", n, slices.Compact(found.scopes))
	}
}
