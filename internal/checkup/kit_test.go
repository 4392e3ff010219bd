package checkup_test

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// newClient returns a client of pool's database that logs nothing.
func newClient(t testing.TB, pool *pgxpool.Pool) *kagzi.Client {
	t.Helper()
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// examine returns what Health reports; an error ends the test.
func examine(t *testing.T, c *kagzi.Client) health.Report {
	t.Helper()
	r, err := admin.New(c).Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantHealth fails the test unless the named check has the status and its detail contains all of the texts.
func wantHealth(t *testing.T, r health.Report, name string, status health.Status, texts ...string) {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c health.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q in %+v", name, r.Checks)
	}
	got := r.Checks[i]
	if got != r.Check(name) {
		t.Errorf("Check(%q) is %+v", name, r.Check(name))
	}
	for _, text := range texts {
		if !strings.Contains(got.Detail, text) {
			t.Errorf("%s: %q does not contain %q", name, got.Detail, text)
		}
	}
	if got.Status != status || status.Worse(r.Status) {
		t.Errorf("%s is %s, want %s; the report is %s: %s", name, got.Status, status, r.Status, got.Detail)
	}
}

// askProbe sends h a request and returns its answer.
func askProbe(t *testing.T, h http.Handler, method string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/readyz", nil))
	return w
}

// wantProbe fails the test unless h answers GET with the code and a report of the status.
func wantProbe(t *testing.T, h http.Handler, code int, status health.Status) health.Report {
	t.Helper()
	w := askProbe(t, h, http.MethodGet)
	var r health.Report
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if w.Code != code || r.Status != status || len(r.Checks) == 0 {
		t.Errorf("answer %d %+v, want %d and %s", w.Code, r, code, status)
	}
	return r
}

// insertRuns puts n runs into the table as some accident left them.
const insertRuns = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
		error_kind, error, external_id, finished_at, quarantined)
	SELECT gen_random_uuid(), $1, $2, $3, NULLIF($4, 0), $5, CASE WHEN $5 <> 'FAILED' THEN now() - $6::interval END,
		NULLIF($7, ''), $8::text,
		NULLIF($9, ''), CASE WHEN $5 = 'FAILED' THEN now() - $6::interval END,
		$7 IN ('crash_loop', 'nondeterminism', 'bad_input', 'unreadable')
	FROM generate_series(1, $10::int)`

// insertSchedule puts a schedule into its table as some accident left it.
const insertSchedule = `
	INSERT INTO kagzi.schedules (schedule_id, namespace_id, name, max_catchup, timing, paused, problem, cursor_at,
		next_at, task_queue, workflow_type, priority)
	VALUES (gen_random_uuid(), $1, $2, 1, '{}', $3, NULLIF($4, ''), now(), now() - $5::interval, 'default', 'ship', 3)`

// oddRuns are runs, or a schedule that is SCHEDULED or PAUSED.
type oddRuns struct {
	namespace, queue, typ, status, kind, err, id string
	version, n                                   int
	ago                                          time.Duration
}

func (o oddRuns) insert(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if o.status == "SCHEDULED" || o.status == "PAUSED" {
		dbtest.Exec(t, pool, insertSchedule, cmp.Or(o.namespace, "default"), o.id, o.status == "PAUSED", o.err, o.ago)
		return
	}
	dbtest.Exec(t, pool, insertRuns, cmp.Or(o.namespace, "default"), cmp.Or(o.queue, "default"), cmp.Or(o.typ, "ship"),
		o.version, cmp.Or(o.status, "PENDING"),
		o.ago, o.kind, o.err, o.id, max(1, o.n))
}

// insertWorker registers a worker of queue default that was heard of so long ago.
func insertWorker(t *testing.T, pool *pgxpool.Pool, namespace, status, typ string, silent time.Duration) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status, lease_timeout,
			stale_after, active_count, max_concurrent, heartbeat_at)
		VALUES ($1, $2, '{default}', ARRAY[$3], $4, '5 minutes', '1 minute', 3, 10,
			clock_timestamp() - $5::interval)`, uuid.New(), namespace, typ, status, silent)
}

// A testWorker is a row of the registry.
type testWorker struct {
	namespace, queue, status string
	types, handlers          []string
	silent                   time.Duration
}

func (w testWorker) insert(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, handlers, status,
			lease_timeout, stale_after, heartbeat_at)
		VALUES ($1, $2, ARRAY[$3], $4, $5, $6, '5 minutes', '1 minute', clock_timestamp() - $7::interval)`,
		uuid.New(), cmp.Or(w.namespace, "default"), cmp.Or(w.queue, "default"), w.types, w.handlers,
		cmp.Or(w.status, "ONLINE"), w.silent)
}
