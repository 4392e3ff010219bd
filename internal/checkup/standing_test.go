package checkup_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Runs that wait behind one that keeps the slot of their key are due, and no worker could take them: Health names the
// key and that run.
func TestHealthNamesKeysThatStandStill(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked())
	c, wf := k.Client, kagzi.Define[int, int]("order")
	if err := admin.New(c).Queues.Set(k.Ctx,
		admin.QueueLimits{Queue: "tenants", EachKey: admin.KeyLimits{MaxRunning: 1}}); err != nil {
		t.Fatal(err)
	}
	holder := func(lease string, slot int, status, on string, opts ...kagzi.StartOption) {
		t.Helper()
		k.Exec(`UPDATE kagzi.workflow_runs SET slot = $2, status = $3, waiting_on = NULLIF($4, '')::jsonb, lease = $5,
			locked_by = CASE WHEN $3 = 'RUNNING' THEN gen_random_uuid() END,
			started_at = now() - interval '50 minutes', available_at = CASE WHEN $3 = 'RUNNING'
				THEN now() + interval '5 minutes' ELSE 'infinity' END WHERE run_id = $1`,
			string(kit.Begin(k, wf, 1, opts...).ID()), slot, status, on, lease)
	}
	waiting := func(n int, since time.Duration, opts ...kagzi.StartOption) {
		t.Helper()
		for range n {
			k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() - $2::interval WHERE run_id = $1`,
				string(kit.Begin(k, wf, 1, opts...).ID()), since.String())
		}
	}
	const first, later = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	if found := examine(t, c).Check("keys"); found.Status != health.Healthy {
		t.Errorf("found %+v", found)
	}
	holder(later, 2, "SLEEPING", `[{"kind": "signal", "name": "approved"}]`, kagzi.Group("customer-7"),
		kagzi.ID("order-big2"))
	waiting(3, time.Minute, kagzi.Group("customer-7"))
	if found := examine(t, c).Check("keys"); found.Status != health.Healthy {
		t.Errorf("found %+v", found)
	}
	waiting(12, 49*time.Minute, kagzi.Group("customer-7"))
	holder(first, 1, "RUNNING", "", kagzi.Queue("tenants"), kagzi.Key("first"))
	// it may have slept: others had their turns
	holder(later, 1, "RUNNING", "", kagzi.Queue("tenants"), kagzi.Key("second"))
	waiting(1, 40*time.Minute, kagzi.Queue("tenants"), kagzi.Key("first"))
	waiting(1, 40*time.Minute, kagzi.Queue("tenants"), kagzi.Key("second"))
	waiting(1, 40*time.Minute, kagzi.Queue("tenants"), kagzi.Key("free"))
	insertWorker(t, k.Pool, "default", "ONLINE", "order", 0)
	k.Exec(`UPDATE kagzi.run_keys SET available_at = 'infinity' WHERE run_key <> 'free'`)

	r := examine(t, c)
	wantHealth(t, r, "keys", health.Degraded,
		`Group "customer-7" of queue "default" has stood still for 49 minutes: 15 runs wait behind run "order-big2" (`,
		`of workflow "order", which waits on "signal approved" and keeps its slot`)
	var keys []string
	for _, check := range r.Checks {
		if check.Name == "keys" {
			keys = append(keys, check.Detail)
		}
	}
	if len(keys) != 2 {
		t.Errorf("checks %q", keys)
	}

	if err := admin.New(c).Pauses.Set(k.Ctx, admin.Target{Group: "customer-7"}); err != nil {
		t.Fatal(err)
	}
	wantHealth(t, examine(t, c), "keys", health.Degraded,
		`Key "first" of queue "tenants" has stood still for 40 minutes: 1 run waits behind run `, "which is running")
}

// A run whose lease a live worker does not extend is one that it does not know.
func TestHealthNamesStrays(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked())
	insertWorker(t, k.Pool, "default", "ONLINE", "ship", 0)
	run := kit.Begin(k, kagzi.Define[int, int]("ship"), 1)
	if found := examine(t, k.Client).Check("strays"); found.Status != health.Healthy {
		t.Errorf("found %+v", found)
	}
	k.Exec(`UPDATE kagzi.workers SET lease_timeout = '5 minutes', stale_after = '10 seconds'`)
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = $2, locked_by = (SELECT worker_id
		FROM kagzi.workers), started_at = now(), available_at = now() + interval '2 minutes'
		WHERE run_id = $1`, string(run.ID()), uuid.New())
	wantHealth(t, examine(t, k.Client), "strays", health.Degraded, "Runs are RUNNING under workers that live and do "+
		"not report them: "+string(run.ID()), `workflow "ship" in queue "default"`)
}
