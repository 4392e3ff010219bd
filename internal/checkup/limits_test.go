package checkup_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// A flowRun is a run as claims, pauses and limits leave one.
type flowRun struct {
	queue, typ, status, key string
	group, paused           bool
	version, slot           int
	worker                  uuid.UUID
	ago                     time.Duration
}

func (r flowRun) insert(t *testing.T, pool *pgxpool.Pool) (id uuid.UUID) {
	t.Helper()
	id = uuid.Must(uuid.NewV7())
	queue := cmp.Or(r.queue, "default")
	scope := queue
	if r.group {
		scope = ""
	}
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
			run_key, key_scope, slot, locked_by, lease, paused_at)
		VALUES ($1, 'default', $2, $3, NULLIF($4::int, 0), $5, now() - $6::interval, NULLIF($7::text, ''),
			CASE WHEN $7 <> '' THEN $8::text END, NULLIF($9::int, 0), $10, gen_random_uuid(),
			CASE WHEN $11::bool THEN now() END)`,
		id, queue, cmp.Or(r.typ, "ship"), r.version, cmp.Or(r.status, "PENDING"), r.ago, r.key, scope, r.slot,
		r.worker, r.paused)
	return id
}

// insertKey gives the key of queue default a place in the line, that long ago.
func insertKey(t *testing.T, pool *pgxpool.Pool, scope, key string, ago time.Duration) {
	t.Helper()
	dbtest.Exec(t, pool, `INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
		VALUES ($1, $2, 'default', now() - $3::interval)`, scope, key, ago)
}

// insertChange leaves a change of the key, as a start does.
func insertChange(t *testing.T, pool *pgxpool.Pool, scope, key string) {
	t.Helper()
	dbtest.Exec(t, pool, `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) VALUES ($1, 'default', $2)`,
		scope, key)
}

// details returns the details of the checks of that name.
func details(r health.Report, name string) (out []string) {
	for _, c := range r.Checks {
		if c.Name == name {
			out = append(out, fmt.Sprint(c.Status, ": ", c.Detail))
		}
	}
	return out
}

// Due runs that are paused do not wait for workers.
func TestHealthOfPausedWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		target admin.Target
		due    int // of 2 runs in queue default, and one in queue other
	}{
		{"Everything", admin.Target{All: true}, 0},
		{"Queue", admin.Target{Queue: "default"}, 1},
		{"Workflow", admin.Target{Workflow: "ship"}, 0},
		{"WorkflowOfAQueue", admin.Target{Queue: "default", Workflow: "ship"}, 1},
		{"AnotherWorkflow", admin.Target{Workflow: "bill"}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			c := newClient(t, pool)
			flowRun{ago: time.Hour}.insert(t, pool)
			keyed := flowRun{ago: time.Hour, key: "a"}
			keyed.insert(t, pool)
			insertChange(t, pool, "default", "a")
			flowRun{queue: "other", ago: time.Hour}.insert(t, pool)
			if err := admin.New(c).Pauses.Set(t.Context(), tt.target); err != nil {
				t.Fatal(err)
			}
			r := examine(t, c)
			due := 0
			for _, q := range r.Queues {
				due += q.Due
			}
			if due != tt.due {
				t.Errorf("%d due, want %d: %+v", due, tt.due, r.Queues)
			}
			if tt.due == 0 {
				wantHealth(t, r, "workers", health.Healthy, "no work has waited")
				wantHealth(t, r, "queues", health.Healthy, "No run is due")
			} else {
				wantHealth(t, r, "workers", health.Unhealthy, "No worker is live")
			}
			wantHealth(t, r, "pauses", health.Degraded)
		})
	}
}

// Due runs of a queue whose limits are in the way need no more workers.
func TestHealthOfLimitedQueues(t *testing.T) {
	t.Parallel()
	worker, lost := uuid.New(), uuid.New()
	busy := flowRun{status: "RUNNING", slot: 1, worker: worker, ago: -time.Minute}
	tooFew := "Due although there are workers"
	for _, tt := range []struct {
		name   string
		limits admin.QueueLimits
		rateAt string
		runs   []flowRun
		queues string   // detail of the check of queues
		texts  []string // in the check of limits; nil: there is none
	}{
		{
			"Full",
			admin.QueueLimits{MaxRunning: 2},
			"",
			[]flowRun{busy, busy, {ago: time.Hour}},
			"1 run due, none for long",
			[]string{
				`Queue "default" is full, with 2 of 2 slots taken, and its first due run has waited for 60 minutes`,
				"MaxRunning",
			},
		},
		{
			"FullForAShortTime",
			admin.QueueLimits{MaxRunning: 2},
			"",
			[]flowRun{busy, busy, {ago: time.Minute}},
			"1 run due, none for long", nil,
		},
		{"Room", admin.QueueLimits{MaxRunning: 3}, "", []flowRun{busy, busy, {ago: time.Hour}}, tooFew, nil},
		{
			"LostWorker",
			admin.QueueLimits{MaxRunning: 1},
			"",
			[]flowRun{{status: "RUNNING", slot: 1, worker: lost, ago: -time.Minute}, {ago: time.Hour}},
			"none for long",
			[]string{"lost workers: " + lost.String() + " (1)."},
		},
		{
			"Hold",
			admin.QueueLimits{MaxRunning: 1, Hold: true},
			"",
			[]flowRun{{status: "SLEEPING", slot: 2, ago: -time.Hour}, {ago: time.Hour}},
			"none for long",
			[]string{"1 of the slots are held by runs that sleep or wait"},
		},
		{
			"HoldersAreDue",
			admin.QueueLimits{MaxRunning: 1, Hold: true},
			"",
			[]flowRun{{status: "SLEEPING", slot: 2, ago: 7 * time.Minute}, {ago: time.Hour}},
			"for 7 minutes", nil,
		},
		{
			"Rate",
			admin.QueueLimits{Rate: admin.Rate{Starts: 10, Per: time.Second}},
			"now()",
			[]flowRun{{ago: time.Hour}},
			"none for long",
			[]string{
				`The rate of queue "default" lets one run start every 100ms, and its first due run has waited ` +
					`for 60 minutes`,
			},
		},
		{
			"UnusedRate",
			admin.QueueLimits{Rate: admin.Rate{Starts: 10, Per: time.Second}},
			"now() - interval '1 minute'",
			[]flowRun{{ago: time.Hour}},
			tooFew, nil,
		},
		{
			"FullWithKeys",
			admin.QueueLimits{MaxRunning: 1},
			"",
			[]flowRun{busy, {ago: time.Hour, key: "a"}},
			"none for long",
			[]string{"waited for 60 minutes"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			c := newClient(t, pool)
			tt.limits.Queue = "default"
			if err := admin.New(c).Queues.Set(t.Context(), tt.limits); err != nil {
				t.Fatal(err)
			}
			if tt.rateAt != "" {
				dbtest.Exec(t, pool, `UPDATE kagzi.queues SET rate_at = `+tt.rateAt)
			}
			insertWorker(t, pool, "default", "ONLINE", "ship", 0)
			dbtest.Exec(t, pool, `UPDATE kagzi.workers SET worker_id = $1`, worker)
			for _, run := range tt.runs {
				run.insert(t, pool)
				if run.key != "" {
					insertKey(t, pool, "default", run.key, run.ago)
				}
			}
			r := examine(t, c)
			if got := strings.Join(details(r, "queues"), "\n"); !strings.Contains(got, tt.queues) {
				t.Errorf("queues: %s, want %s", got, tt.queues)
			}
			got := details(r, "limits")
			if len(got) != min(len(tt.texts), 1) {
				t.Errorf("limits: %q", got)
			}
			for _, text := range tt.texts {
				wantHealth(t, r, "limits", health.Degraded, text)
			}
		})
	}
}

// Keys whose turn has come need workers, and full ones do not.
func TestHealthOfKeys(t *testing.T) {
	t.Parallel()
	const healthy, noWorker, tooFew = "healthy: No run is due.", "degraded: No live worker takes",
		"degraded: Due although there are workers: "
	for _, tt := range []struct {
		name   string
		worker []string // handlers; nil: no worker
		runs   []flowRun
		line   time.Duration // since the key has a place in the line; zero: there is only a change
		limit  int           // MaxRunning of each key
		queues string
		texts  []string
	}{
		{
			"NobodyHasLooked", nil,
			[]flowRun{{key: "a", ago: time.Hour}},
			0, 0, noWorker,
			[]string{`1 run of workflow "ship" in queue "default" with key "a" for 60 minutes`},
		},
		{
			"NoVersion",
			[]string{"ship/2"},
			[]flowRun{{key: "a", version: 1, ago: time.Hour}},
			time.Second, 0, noWorker,
			[]string{
				`with key "a" for 60 minutes (they are of version 1, and its workers have version 2)`,
				"has version 1 of the workflow.",
			},
		},
		{
			"NoHandlerInAGroup",
			[]string{"ship/2"},
			[]flowRun{{key: "g", group: true, typ: "bill", ago: time.Hour}},
			time.Minute, 0, noWorker,
			[]string{`of workflow "bill" in queue "default" with group "g" for 60 minutes`},
		},
		{
			"Overdue",
			[]string{"ship/2"},
			[]flowRun{{key: "a", version: 2, ago: time.Hour}},
			10 * time.Minute, 0, tooFew,
			[]string{`1 run of workflow "ship" in queue "default" with key "a" for 10 minutes`},
		},
		{
			"BusyKey",
			[]string{"ship/2"},
			[]flowRun{{key: "a", version: 2, ago: time.Hour}},
			time.Minute, 0,
			"healthy: 1 run due, none for long", nil,
		},
		{"NotYetDue", nil, []flowRun{{key: "a", ago: -time.Hour}}, 0, 0, healthy, nil},
		{
			"Full", nil,
			[]flowRun{{key: "a", ago: time.Hour}, {key: "a", status: "RUNNING", slot: 1, ago: -time.Minute}},
			0, 1, healthy, nil,
		},
		{
			"Room", nil,
			[]flowRun{{key: "a", ago: time.Hour}, {key: "a", status: "RUNNING", slot: 1, ago: -time.Minute}},
			0, 2, noWorker, nil,
		},
		{"FullGroup", nil, []flowRun{
			{key: "g", group: true, ago: time.Hour},
			{key: "g", group: true, status: "SLEEPING", slot: 2, ago: -time.Minute},
		}, 0, 0, healthy, nil},
		{"Paused", nil, []flowRun{{key: "a", ago: time.Hour, paused: true}}, 0, 0, healthy, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Unchecked())
			c := newClient(t, pool)
			if tt.limit > 0 {
				if err := admin.New(c).Queues.Set(t.Context(),
					admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: tt.limit}}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.worker != nil {
				testWorker{types: []string{"ship"}, handlers: tt.worker}.insert(t, pool)
			}
			for _, run := range tt.runs {
				run.insert(t, pool)
			}
			scope := "default"
			if tt.runs[0].group {
				scope = ""
			}
			if tt.line > 0 {
				insertKey(t, pool, scope, tt.runs[0].key, tt.line)
			} else {
				insertChange(t, pool, scope, tt.runs[0].key)
			}
			got := strings.Join(details(examine(t, c), "queues"), "\n")
			if !strings.HasPrefix(got, tt.queues) {
				t.Errorf("%s, want %s", got, tt.queues)
			}
			for _, text := range tt.texts {
				if !strings.Contains(got, text) {
					t.Errorf("%s, want %s", got, text)
				}
			}
		})
	}
	t.Run("PausedKey", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Unchecked())
		c := newClient(t, pool)
		flowRun{key: "a", ago: time.Hour}.insert(t, pool)
		flowRun{key: "b", ago: time.Minute}.insert(t, pool)
		insertChange(t, pool, "default", "a")
		insertChange(t, pool, "default", "b")
		if err := admin.New(c).Pauses.Set(t.Context(), admin.Target{Queue: "default", Key: "a"}); err != nil {
			t.Fatal(err)
		}
		wantHealth(t, examine(t, c), "queues", health.Degraded,
			`No live worker takes 1 run of workflow "ship" in queue "default" with key "b" for 60 seconds`)
	})
	t.Run("NextToken", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Unchecked())
		flowRun{key: "a", ago: time.Hour}.insert(t, pool)
		insertKey(t, pool, "default", "a", time.Minute)
		c := newClient(t, pool)
		dbtest.Exec(t, pool, `UPDATE kagzi.run_keys SET rate_at = now() + interval '1 minute'`)
		wantHealth(t, examine(t, c), "queues", health.Healthy, "No run is due")
		dbtest.Exec(t, pool, `UPDATE kagzi.run_keys SET rate_at = now()`)
		wantHealth(t, examine(t, c), "queues", health.Degraded)
	})
	t.Run("WithAndWithoutKeys", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Unchecked())
		flowRun{ago: time.Hour, version: 2}.insert(t, pool)
		flowRun{key: "a", ago: 2 * time.Hour, version: 1}.insert(t, pool)
		flowRun{ago: time.Hour, queue: "a"}.insert(t, pool)
		insertChange(t, pool, "default", "a")
		r := examine(t, newClient(t, pool))
		if len(r.Queues) != 2 || r.Queues[0].Queue != "a" {
			t.Fatalf("%+v", r.Queues)
		}
		if q := r.Queues[1]; q.Due != 2 || !slices.Equal(q.Versions, []int{1, 2}) ||
			!slices.Equal(q.Stranded, []int{1, 2}) || r.At.Sub(q.Since) < 2*time.Hour {
			t.Errorf("%+v", q)
		}
	})
}

// A limit of steps whose line does not move is named.
func TestHealthOfLimitsOfSteps(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	c := newClient(t, pool)
	for _, l := range []admin.StepLimit{
		{Name: "late", Rate: admin.Rate{Starts: 1}},
		{Name: "called", MaxRunning: 1},
		{Name: "stopped", HonorRetryAfter: true},
		{Name: "unused", HonorRetryAfter: true},
		{Name: "owes tokens", Rate: admin.Rate{Starts: 1}, HonorRetryAfter: true},
	} {
		if err := admin.New(c).Limits.Set(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Exec(t, pool, `UPDATE kagzi.limits SET next_at = now() + interval '1 hour', paused_until = CASE
		WHEN limit_name <> 'owes tokens' THEN now() + interval '1 hour' END
		WHERE limit_name IN ('stopped', 'unused', 'owes tokens')`)
	place := func(limit string, run flowRun, due time.Duration) uuid.UUID {
		t.Helper()
		id := run.insert(t, pool)
		dbtest.Exec(t, pool, `
			INSERT INTO kagzi.limit_places (run_id, step_id, namespace_id, limit_name, state, asked_at, due_at)
			VALUES ($1, 'step', 'default', $2, 'CALLED', now() - interval '2 hours', now() - $3::interval)`, id, limit,
			due)
		return id
	}
	asleep := flowRun{status: "SLEEPING", ago: 10 * time.Minute}
	for _, run := range []flowRun{ // no worker is to take these
		{status: "SLEEPING", ago: time.Hour, paused: true},
		{status: "SLEEPING", ago: time.Hour, key: "a"},
		{status: "SLEEPING", ago: time.Hour, typ: "bill"}, // paused
		{status: "RUNNING", ago: -time.Minute},
	} {
		place("late", run, time.Hour)
	}
	if err := admin.New(c).Pauses.Set(t.Context(), admin.Target{Workflow: "bill"}); err != nil {
		t.Fatal(err)
	}
	place("stopped", flowRun{status: "SLEEPING", ago: -time.Hour}, -time.Hour)
	place("owes tokens", flowRun{status: "SLEEPING", ago: -time.Hour}, -time.Hour)
	r := examine(t, c)
	if got := details(r, "limits"); len(got) != 1 || !strings.Contains(got[0],
		`degraded: Limit "stopped" lets no step begin before`) || !strings.Contains(got[0], "RetryAfter") {
		t.Errorf("%q", got)
	}
	late, called := place("late", asleep, 10*time.Minute), place("called", asleep, 10*time.Minute)
	got := details(examine(t, c), "limits")
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	for i, want := range []string{
		`The first step in the line of limit "called" could have begun 10 minutes ago, but no worker takes its run ` +
			called.String() + ` of workflow "ship" in queue "default"`,
		`The first step in the line of limit "late" could have begun 10 minutes ago, but no worker takes its run ` +
			late.String(),
	} {
		if !strings.Contains(got[i], want) {
			t.Errorf("%s, want %s", got[i], want)
		}
	}
}
