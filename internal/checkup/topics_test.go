package checkup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/topic"
)

var notes = topic.Define[string]("notes")

// insertConsumer stores a consumer of notes whose last run ended an hour ago, and which has seen nothing since.
func insertConsumer(t *testing.T, pool *pgxpool.Pool, name string) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.consumers (consumer, namespace_id, run_key, task_queue, priority, least_wake, most_wake,
			pause_on_failure)
		VALUES ($1, 'default', 'consumer ' || $1, 'default', 2, interval '30 s', interval '1 day', true)`, name)
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.subscriptions (topic, consumer, namespace_id, run_key, task_queue, subscribed, position,
			looked_at)
		VALUES ('notes', $1, 'default', 'consumer ' || $1, 'default', true, 0, 0)`, name)
}

// insertRunOf stores the last run of a consumer.
func insertRunOf(t *testing.T, pool *pgxpool.Pool, consumer, status string) {
	t.Helper()
	oddRuns{typ: consumer, status: status}.insert(t, pool)
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET finished_at = now() - interval '1 hour'
		WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED')`)
	dbtest.Exec(t, pool, `UPDATE kagzi.consumers SET run_id = (SELECT run_id FROM kagzi.workflow_runs)`)
}

// hoursPass makes all events, and what is noted of partitions, that much older.
func hoursPass(t *testing.T, pool *pgxpool.Pool, hours int) {
	t.Helper()
	dbtest.Exec(t, pool, `UPDATE kagzi.events SET published_at = published_at - $1 * interval '1 hour'`, hours)
	dbtest.Exec(t, pool, `UPDATE kagzi.event_parts SET opened_at = opened_at - $1 * interval '1 hour',
		closed_at = closed_at - $1 * interval '1 hour'`, hours)
}

func publish(t *testing.T, c *kagzi.Client, events ...topic.NewEvent) {
	t.Helper()
	if err := topic.New(c).PublishMany(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

func TestHealthOfConsumers(t *testing.T) {
	t.Parallel()
	seen := func(t *testing.T, pool *pgxpool.Pool) {
		dbtest.Exec(t, pool, `UPDATE kagzi.subscriptions SET looked_at = 1000`)
	}
	for _, tt := range []struct {
		name   string
		f      func(t *testing.T, pool *pgxpool.Pool)
		status health.Status
		texts  []string
	}{
		{
			"NoWorker", func(*testing.T, *pgxpool.Pool) {}, health.Degraded,
			[]string{
				`no live worker has their function: "c" in queue "default" for 60 minutes`,
				"Start one that takes the queue and has the function", "delete a consumer",
			},
		},
		{"WorkerOfOthers", func(t *testing.T, pool *pgxpool.Pool) {
			insertWorker(t, pool, "default", "ONLINE", "ship", 0)
			insertWorker(t, pool, "other", "ONLINE", "c", 0)
		}, health.Degraded, []string{"no live worker has their function"}},
		{
			"Worker", func(t *testing.T, pool *pgxpool.Pool) { insertWorker(t, pool, "default", "ONLINE", "c", 0) },
			health.Degraded,
			[]string{`no worker has started their runs: "c"`, "pg_stat_activity"},
		},
		{"Seen", seen, health.Healthy, nil},
		{"Wakes", func(t *testing.T, pool *pgxpool.Pool) {
			seen(t, pool)
			dbtest.Exec(t, pool, `UPDATE kagzi.consumers SET wake_at = now() - interval '2 hours'`)
		}, health.Degraded, []string{"2 hours"}},
		{"WakesLater", func(t *testing.T, pool *pgxpool.Pool) {
			seen(t, pool)
			dbtest.Exec(t, pool, `UPDATE kagzi.consumers SET wake_at = now() + interval '2 hours'`)
		}, health.Healthy, nil},
		{"Unsubscribed", func(t *testing.T, pool *pgxpool.Pool) {
			dbtest.Exec(t, pool, `UPDATE kagzi.subscriptions SET subscribed = false`)
		}, health.Healthy, nil},
		{"JustPublished", func(t *testing.T, pool *pgxpool.Pool) {
			dbtest.Exec(t, pool, `UPDATE kagzi.events SET published_at = now() - interval '4 minutes'`)
		}, health.Healthy, nil},
		{"Paused", func(t *testing.T, pool *pgxpool.Pool) {
			if err := admin.New(newClient(t, pool)).Pauses.Set(t.Context(),
				admin.Target{Group: "consumer c"}); err != nil {
				t.Fatal(err)
			}
		}, health.Healthy, nil},
		{
			"ActiveRun", func(t *testing.T, pool *pgxpool.Pool) { insertRunOf(t, pool, "c", "SLEEPING") },
			health.Healthy, nil,
		},
		{
			"Completed", func(t *testing.T, pool *pgxpool.Pool) { insertRunOf(t, pool, "c", "COMPLETED") },
			health.Degraded,
			[]string{"60 minutes"},
		},
		{"Failed", func(t *testing.T, pool *pgxpool.Pool) {
			seen(t, pool)
			insertRunOf(t, pool, "c", "FAILED")
		}, health.Degraded, []string{"60 minutes"}},
		{"CancelledAndSeen", func(t *testing.T, pool *pgxpool.Pool) {
			seen(t, pool)
			insertRunOf(t, pool, "c", "CANCELLED")
		}, health.Degraded, []string{" minutes"}},
		{"CompletedAndSeen", func(t *testing.T, pool *pgxpool.Pool) {
			seen(t, pool)
			insertRunOf(t, pool, "c", "COMPLETED")
		}, health.Healthy, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			c := newClient(t, pool)
			insertConsumer(t, pool, "c")
			publish(t, c, notes.With("note"))
			hoursPass(t, pool, 1)
			tt.f(t, pool)
			r := examine(t, c)
			if tt.status == health.Healthy {
				if got := r.Check("consumers"); got.Status != health.Healthy || got.Detail != "" {
					t.Errorf("%+v", got)
				}
				return
			}
			wantHealth(t, r, "consumers", tt.status, tt.texts...)
		})
	}
}

// Topics to which no consumer subscribes are named, and are no trouble.
func TestHealthOfTopics(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	c := newClient(t, pool)
	insertConsumer(t, pool, "c")
	publish(t, c, notes.With("note"))
	if got := examine(t, c).Check("topics"); got.Detail != "" {
		t.Errorf("%+v", got)
	}
	publish(t, c, topic.Define[int]("orders").With(1), topic.Define[int]("emails").With(1))
	dbtest.Exec(t, pool, `INSERT INTO kagzi.events SELECT topic || ' of others', event_id, 'other', part, position,
		title, payload, published_at FROM kagzi.events`)
	wantHealth(t, examine(t, c), "topics", health.Healthy, `no consumer subscribes: "emails", "orders".`)
	dbtest.Exec(t, pool, `UPDATE kagzi.subscriptions SET subscribed = false`)
	wantHealth(t, examine(t, c), "topics", health.Healthy, `"emails", "notes", "orders".`)
}

// Events that should have been removed are named, and who keeps them.
func TestHealthOfEvents(t *testing.T) {
	t.Parallel()
	const keeper = `INSERT INTO kagzi.event_keepers (keeper, keep, keep_pending, told_at)
		VALUES ('default', interval '60 hours', interval '600 hours', now())`
	const parts = `INSERT INTO kagzi.event_parts (part, opened_at, closed_at)
		VALUES (0, now() - interval '10 hours', now()), (1, now(), NULL)`
	for _, tt := range []struct {
		name  string
		f     func(t *testing.T, pool *pgxpool.Pool)
		texts []string // of all checks "events"; none: there is none
	}{
		{"InTime", func(t *testing.T, pool *pgxpool.Pool) { hoursPass(t, pool, 9) }, nil},
		{
			"OpenForLong", func(t *testing.T, pool *pgxpool.Pool) { hoursPass(t, pool, 21) },
			[]string{"11 hours ago", "pg_stat_activity", "coordinator"},
		},
		{"OpenForLongButNoneIsFree", func(t *testing.T, pool *pgxpool.Pool) {
			dbtest.Exec(t, pool, `INSERT INTO kagzi.event_parts (part, opened_at, closed_at) SELECT n, now(), now()
				FROM generate_series(2, 7) AS n`)
			hoursPass(t, pool, 21)
		}, nil},
		{"Old", func(t *testing.T, pool *pgxpool.Pool) {
			hoursPass(t, pool, 71)
			dbtest.Exec(t, pool, `UPDATE kagzi.event_parts SET opened_at = now() WHERE closed_at IS NULL`)
		}, []string{"11 hours ago"}},
		{"NotYetOld", func(t *testing.T, pool *pgxpool.Pool) {
			hoursPass(t, pool, 69)
			dbtest.Exec(t, pool, `UPDATE kagzi.event_parts SET opened_at = now() WHERE closed_at IS NULL`)
		}, nil},
		{"NoCoordinatorForLong", func(t *testing.T, pool *pgxpool.Pool) {
			hoursPass(t, pool, 7100)
			dbtest.Exec(t, pool, `UPDATE kagzi.event_keepers SET told_at = told_at - interval '31 days'`)
		}, nil},
		{"Pending", func(t *testing.T, pool *pgxpool.Pool) {
			insertConsumer(t, pool, "c")
			hoursPass(t, pool, 71)
		}, []string{
			`consumer "c" has not consumed those of topic "notes"`, "KeepPendingEvents",
			"skip them, or delete a consumer",
		}},
		{"PendingButYoung", func(t *testing.T, pool *pgxpool.Pool) {
			insertConsumer(t, pool, "c")
			hoursPass(t, pool, 9)
		}, nil},
		{"PendingOfOthers", func(t *testing.T, pool *pgxpool.Pool) {
			insertConsumer(t, pool, "c")
			for _, table := range []string{"events", "subscriptions", "consumers"} {
				dbtest.Exec(t, pool, `UPDATE kagzi.`+table+` SET namespace_id = 'other'`)
			}
			dbtest.Exec(t, pool, `UPDATE kagzi.event_keepers SET keeper = 'other'`)
			hoursPass(t, pool, 71)
		}, []string{"a consumer of another namespace has not consumed"}},
		{"PendingForTooLong", func(t *testing.T, pool *pgxpool.Pool) {
			insertConsumer(t, pool, "c")
			hoursPass(t, pool, 601)
		}, []string{"days ago"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			c := newClient(t, pool)
			publish(t, c, notes.With("note"))
			dbtest.Exec(t, pool, keeper)
			dbtest.Exec(t, pool, parts)
			tt.f(t, pool)
			r := examine(t, c)
			var all []string
			for _, check := range r.Checks {
				if check.Name == "events" {
					all = append(all, check.Detail)
					if check.Status != health.Degraded || len(tt.texts) == 0 {
						t.Errorf("%+v", check)
					}
				}
			}
			if len(all) > 1 || slices.ContainsFunc(tt.texts, func(text string) bool {
				return !strings.Contains(strings.Join(all, ""), text)
			}) {
				t.Errorf("%q, want one with %q", all, tt.texts)
			}
		})
	}
}
