package checkup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// strandedTexts is what Stranded says, in short.
func strandedTexts(t *testing.T, c *kagzi.Client) []string {
	t.Helper()
	list, err := admin.New(c).Stranded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range list {
		if s.Oldest.IsZero() {
			t.Errorf("%+v", s)
		}
		text := fmt.Sprintf("%s/%s v%d: %d", s.Queue, s.Workflow, s.Version, s.Count)
		if s.More {
			text += " or more"
		}
		out = append(out, text)
	}
	return out
}

func TestStranded(t *testing.T) {
	t.Parallel()
	ship := []string{"ship"}
	mixed := []oddRuns{{version: 1, n: 2}, {version: 2, n: 3, ago: -time.Hour, status: "SLEEPING"}, {n: 4}}
	for _, tt := range []struct {
		name  string
		runs  []oddRuns
		fleet []testWorker
		want  []string
	}{
		{"NothingActive", []oddRuns{{status: "FAILED"}}, nil, nil},
		{"NoWorker", mixed, nil, []string{"default/ship v0: 4", "default/ship v1: 2", "default/ship v2: 3"}},
		{"Every", mixed, []testWorker{{types: ship, handlers: []string{"ship/1", "ship/2"}}}, nil},
		{"EveryTogether", mixed, []testWorker{
			{types: ship, handlers: []string{"ship/1"}},
			{types: ship, handlers: []string{"ship/2", "ship/3"}},
		}, nil},
		{
			"TheNewAlone", mixed,
			[]testWorker{{types: ship, handlers: []string{"ship/2"}}},
			[]string{"default/ship v1: 2"},
		},
		{
			"TheOldAlone", mixed,
			[]testWorker{{types: ship, handlers: []string{"ship/1"}}},
			[]string{"default/ship v2: 3"},
		},
		{
			"AnotherVersionAlone", mixed,
			[]testWorker{{types: ship, handlers: []string{"ship/3"}}},
			[]string{"default/ship v1: 2", "default/ship v2: 3"},
		},
		{
			"AnotherWorkflow", mixed[:1],
			[]testWorker{{types: []string{"bill"}, handlers: []string{"bill/1"}}},
			[]string{"default/ship v1: 2"},
		},
		{
			"Offline", mixed[:1],
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, status: "OFFLINE"}},
			[]string{"default/ship v1: 2"},
		},
		{
			"Draining", mixed[:1],
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, status: "DRAINING"}},
			[]string{"default/ship v1: 2"},
		},
		{
			"Silent", mixed[:1],
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, silent: 2 * time.Minute}},
			[]string{"default/ship v1: 2"},
		},
		{
			"QuietButLive", mixed[:1],
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, silent: 30 * time.Second}},
			nil,
		},
		{
			"WorkerOfAnotherQueue", mixed[:1],
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, queue: "shop"}},
			[]string{"default/ship v1: 2"},
		},
		{"WorkerOfAnotherNamespace", mixed[:1], []testWorker{{
			types: ship, handlers: []string{"ship/1"},
			namespace: "other",
		}}, []string{"default/ship v1: 2"}},
		{"RunsOfAnotherNamespace", []oddRuns{{version: 1, namespace: "other"}}, nil, nil},
		{
			"Queues",
			[]oddRuns{{version: 1}, {version: 1, queue: "shop"}, {version: 2, queue: "shop"}},
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, queue: "shop"}},
			[]string{"default/ship v1: 1", "shop/ship v2: 1"},
		},
		{
			"UnderWay",
			[]oddRuns{{version: 1, status: "RUNNING", ago: -time.Minute}},
			[]testWorker{{types: ship, handlers: []string{"ship/1"}, status: "DRAINING"}},
			[]string{"default/ship v1: 1"},
		},
		{
			"NamesWithSlashes",
			[]oddRuns{{typ: "shop/order", version: 1}, {typ: "shop/order", version: 2}, {typ: "shop", version: 1}},
			[]testWorker{{types: []string{"shop/order", "shop"}, handlers: []string{"shop/order/2", "shop/7"}}},
			[]string{"default/shop v1: 1", "default/shop/order v1: 1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			for _, o := range tt.runs {
				o.insert(t, pool)
			}
			for _, w := range tt.fleet {
				w.insert(t, pool)
			}
			if got := strandedTexts(t, newClient(t, pool)); !slices.Equal(got, tt.want) {
				t.Errorf("stranded %q, want %q", got, tt.want)
			}
		})
	}
}

// TestStrandedTimes checks the times of the oldest run and of the first that is due.
func TestStrandedTimes(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	oddRuns{version: 1, ago: time.Hour}.insert(t, pool)
	oddRuns{version: 1, ago: -time.Hour, status: "SLEEPING"}.insert(t, pool)
	oddRuns{version: 2}.insert(t, pool)
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET created_at = now() - interval '1 day'
		WHERE status = 'SLEEPING'`)
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET available_at = 'infinity' WHERE version = 2`)
	list, err := admin.New(newClient(t, pool)).Stranded(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if since := list[0].Oldest.Sub(list[0].DueAt); since > -22*time.Hour || since < -24*time.Hour {
		t.Errorf("%+v", list[0])
	}
	if !list[1].DueAt.IsZero() {
		t.Errorf("a run that waits for another is due at %v", list[1].DueAt)
	}
}

// TestStrandedIsBounded has more runs than are read: those that are due come first, and with them what is stranded.
func TestStrandedIsBounded(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	oddRuns{version: 1, n: 26_000, ago: -time.Hour, status: "SLEEPING"}.insert(t, pool)
	oddRuns{version: 2, n: 3, ago: time.Second}.insert(t, pool)
	oddRuns{version: 3, ago: -2 * time.Hour, status: "SLEEPING"}.insert(t, pool)
	testWorker{types: []string{"ship"}, handlers: []string{"ship/1"}}.insert(t, pool)
	c := newClient(t, pool)
	if got, want := strandedTexts(t, c), []string{"default/ship v2: 3 or more"}; !slices.Equal(got, want) {
		t.Errorf("stranded %q, want %q", got, want)
	}
	dbtest.Exec(t, pool, `UPDATE kagzi.workers SET handlers = '{}'`)
	if got, want := strandedTexts(t, c), []string{
		"default/ship v1: 24997 or more",
		"default/ship v2: 3 or more",
	}; !slices.Equal(got, want) {
		t.Errorf("stranded %q, want %q", got, want)
	}
	// it is time
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 second' WHERE version = 3`)
	dbtest.Exec(t, pool, `UPDATE kagzi.workers SET handlers = '{ship/1,ship/2}'`)
	if got, want := strandedTexts(t, c), []string{"default/ship v3: 1 or more"}; !slices.Equal(got, want) {
		t.Errorf("stranded %q, want %q", got, want)
	}
}

func TestStrandedNeedsTheSchema(t *testing.T) {
	t.Parallel()
	_, err := admin.New(newClient(t, dbtest.Pool(t, dbtest.Empty()))).Stranded(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "kagzi: stranded runs:") ||
		!strings.Contains(err.Error(), "Migrate") {
		t.Errorf("error %v", err)
	}
}

// TestHealthKnowsVersions has work due of a version that no live worker has, beside work that one takes.
func TestHealthKnowsVersions(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	c := newClient(t, pool)
	oddRuns{version: 1, n: 2, ago: time.Hour}.insert(t, pool)
	oddRuns{version: 2, ago: time.Minute}.insert(t, pool)
	oddRuns{ago: time.Second}.insert(t, pool)
	testWorker{types: []string{"ship"}, handlers: []string{"ship/2"}}.insert(t, pool)
	r := examine(t, c)
	wantHealth(t, r, "queues", health.Degraded,
		`No live worker takes 2 runs of workflow "ship" in queue "default" for 60 minutes (they are of version 1, `+
			`and its workers have version 2)`, "has version 1 of the workflow.")
	if len(r.Queues) != 1 {
		t.Fatalf("%+v", r.Queues)
	}
	if q := r.Queues[0]; q.Due != 4 || q.Workers != 1 || !slices.Equal(q.Versions, []int{1, 2}) ||
		!slices.Equal(q.Stranded, []int{1}) || r.At.Sub(q.Since) < time.Hour {
		t.Errorf("%+v", q)
	}
	dbtest.Exec(t, pool, `UPDATE kagzi.workers SET handlers = '{ship/1,ship/2}'`)
	r = examine(t, c)
	wantHealth(t, r, "queues", health.Degraded, "although there are workers", "4 runs")
	if q := r.Queues[0]; q.Stranded != nil {
		t.Errorf("%+v", q)
	}
}

// Runs that wait for a slot of their key, and paused ones, are stranded like others.
func TestStrandedKeysAndPauses(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	for _, run := range []flowRun{
		{version: 1, ago: time.Minute},
		{version: 1, ago: time.Hour, key: "a"},
		{version: 1, key: "a", ago: -time.Hour, status: "SLEEPING"},
		{version: 2, key: "a"},
		{version: 1, key: "b", slot: 2},
		{version: 1, key: "g", group: true},
		{version: 1, key: "g", group: true, queue: "other"},
		{version: 1, paused: true},
		{version: 1, paused: true, key: "a", typ: "bill"},
	} {
		run.insert(t, pool)
	}
	testWorker{types: []string{"ship"}, handlers: []string{"ship/2"}}.insert(t, pool)
	c := newClient(t, pool)
	if got, want := strandedTexts(t, c), []string{
		"default/bill v1: 1", "default/ship v1: 6",
		"other/ship v1: 1",
	}; !slices.Equal(got, want) {
		t.Errorf("stranded %q, want %q", got, want)
	}
	list, err := admin.New(c).Stranded(t.Context())
	if err != nil || !list[0].DueAt.IsZero() || time.Since(list[1].DueAt) < 50*time.Minute {
		t.Errorf("%+v, %v", list, err)
	}
}

// The number of runs that Stranded reads has a bound for each key, so that one of many runs hides no other.
func TestStrandedOfManyKeysIsBounded(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
			run_key, key_scope)
		SELECT gen_random_uuid(), 'default', 'default', 'ship', 1, 'PENDING', now() - interval '1 hour',
			CASE WHEN g <= 30000 THEN 'a' ELSE 'key-' || g % 10 END, 'default'
		FROM generate_series(1, 30100) AS g`)
	flowRun{version: 2, key: "z"}.insert(t, pool)
	if got, want := strandedTexts(t, newClient(t, pool)),
		[]string{"default/ship v1: 4266 or more", "default/ship v2: 1 or more"}; !slices.Equal(got, want) {
		t.Errorf("stranded %q, want %q", got, want)
	}
}

// Health says which versions are missing and which ones the workers have, of several workflows at once.
func TestHealthNamesMissingVersions(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	oddRuns{version: 3, n: 2, ago: time.Hour}.insert(t, pool)
	oddRuns{version: 5, ago: time.Minute}.insert(t, pool)
	oddRuns{typ: "bill", version: 2, ago: time.Hour}.insert(t, pool)
	c := newClient(t, pool)
	wantHealth(t, examine(t, c), "queues", health.Degraded,
		`queue "default" for 60 minutes (they are of versions 3, 5)`, "has code of the workflow.")
	testWorker{types: []string{"ship", "bill"}, handlers: []string{"ship/1", "bill/1"}}.insert(t, pool)
	testWorker{types: []string{"ship"}, handlers: []string{"ship/2"}}.insert(t, pool)
	wantHealth(t, examine(t, c), "queues", health.Degraded,
		`3 runs of workflow "ship" in queue "default" for 60 minutes (they are of versions 3, 5, and its workers `+
			`have versions 1, 2)`,
		`1 run of workflow "bill" in queue "default" for 60 minutes (they are of version 2, and its workers have `+
			`version 1)`,
		"has code of the workflow, with each version that is missing.")
}
