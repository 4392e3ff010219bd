package test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
	"github.com/kagzi/kagzi/ui/internal/demo"
)

// A dataset is a database with some sort of data.
type dataset struct {
	name string
	site *site
	kit  *kit.Kit
	more map[string]string // pages besides those of the navigation, by name
}

// pages are those of the navigation, by name.
var pages = map[string]string{
	"overview": "/", "runs": "/runs", "schedules": "/schedules", "topics": "/topics", "limits": "/limits",
	"groups": "/groups", "workers": "/workers", "stranded": "/stranded",
	"failures": "/failures",
	"doctor":   "/doctor", "audit": "/audit",
}

// all returns the pages of the data, by name.
func (d *dataset) all() map[string]string {
	out := maps.Clone(pages)
	maps.Copy(out, d.more)
	return out
}

// newDataset serves a dashboard of a database of its own until the test and its subtests have ended.
func newDataset(t *testing.T, name string) *dataset {
	t.Helper()
	opts := []dbtest.Option{}
	if name == "many" {
		opts = append(opts, dbtest.Unchecked()) // its runs never were
	}
	pool := dbtest.Pool(t, opts...)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClientWith(t, pool, kagzi.ClientConfig{})}
	s, stop := serve(k.Client, k.Pool, ui.Config{Authorize: everybody})
	d := &dataset{name, s, k, map[string]string{}}
	begun := time.Now()
	switch name {
	case "one":
		d.one()
	case "shop":
		d.shop()
	case "many":
		if err := demo.Many(k.Ctx, k.Pool, 100_000, 30*24*time.Hour); err != nil {
			t.Fatal(err)
		}
		k.Exec(manyChanges)
		d.more = map[string]string{
			"runs-failed":        "/runs?status=failed",
			"runs-of-a-workflow": "/runs?workflow=workflow-3&since=7d",
		}
	}
	t.Logf("the data %s took %v", name, time.Since(begun))
	t.Cleanup(stop) // before the workers stop
	return d
}

// one has one run, which waits.
func (d *dataset) one() {
	kit.Begin(d.kit, kagzi.Define[string, string]("checkout"), "x", kagzi.ID("order-42"))
	d.kit.Signal(kagzi.ID("order-42"), kagzi.DefineSignal[string]("note").With("x"), kagzi.Actor("mira"),
		kagzi.Reason("the customer has called"))
	d.more = map[string]string{"run": path("runs", d.run("order-42"))}
}

// shop has something of everything.
func (d *dataset) shop() {
	t := d.kit.T
	shop, err := demo.Start(d.kit.Ctx, d.kit.Pool, kagzi.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shop.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := shop.Fill(d.kit.Ctx); err != nil {
		t.Fatal(err)
	}
	workers, _, err := admin.New(d.kit.Client).Workers.List(d.kit.Ctx, admin.WorkerFilter{Status: []string{"ONLINE"}})
	if err != nil || len(workers) == 0 {
		t.Fatalf("%d workers, %v", len(workers), err)
	}
	d.more = map[string]string{
		"schedule": "/schedules/daily-report", "schedule-paused": "/schedules/old-report",
		"topic": "/topics/mail.received", "topic-large": "/topics/archive.batches",
		"consumer": "/consumers/mail-sorter", "consumer-failed": "/consumers/auditor", "queue": "/queues/imports",
		"worker":      path("workers", workers[0].ID),
		"runs-failed": "/runs?status=failed", "runs-lately": "/runs?since=30m", "runs-none": "/runs?workflow=nothing",
		"change-limits": "/limits/queue?queue=imports", "change-schedule": "/schedules/daily-report/backfill",
		"change-signal": path("runs", d.run("approval-2"), "signal"),
	}
	for _, id := range []string{
		"order-42", "order-44", "order-47", "approval-1", "approval-2", "import-0",
		"invoice-7000", "trip-ada", "legacy-crm", "fulfil-900", "crawl-1", "trial-globex",
	} {
		d.more["run-"+id] = path("runs", d.run(id))
	}
}

// manyChanges are the entries of 1,000 changes.
const manyChanges = `
	INSERT INTO kagzi.audit_log (entry_id, namespace_id, occurred_at, action, kind, name, task_queue, reason, actor,
		changes)
	SELECT gen_random_uuid(), 'default', now() - n * interval '1 min', 'UPDATED', 'key', 'tenant-' || n % 50, 'imports',
		'load test ' || n, 'ops' || n % 7 || '@example.com',
		'[{"field": "max_running", "from": "1", "to": "2"}, {"field": "rate", "to": "every 100ms, burst 5"}]'
	FROM generate_series(1, 1000) n`

// run returns the run ID of a run with an ID.
func (d *dataset) run(id string) string {
	d.kit.T.Helper()
	info, err := d.kit.Client.Get(d.kit.Ctx, kagzi.ID(id))
	if err != nil {
		d.kit.T.Fatal(err)
	}
	return strings.TrimSpace(string(info.ID))
}
