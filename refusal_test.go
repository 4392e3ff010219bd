package kagzi

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// poorClient is a client of a user who has every right on the tables but those that revoke takes away.
func poorClient(t *testing.T, db *dbtest.DB, revoke string) (role string, c *Client, logged *logBuffer) {
	t.Helper()
	role = "poor_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	execSQL(t, db.Pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := db.Pool.Exec(context.Background(), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	execSQL(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	execSQL(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO `+role)
	if revoke != "" {
		execSQL(t, db.Pool, fmt.Sprintf(`REVOKE %s FROM %s`, revoke, role))
	}
	c, logged = loggedClient(t, poolWith(t, db.DSN, "role", role))
	return role, c, logged
}

// TestResultSaysThatRightsAreMissing shows that who waits for a result which its user may not read is told so.
func TestResultSaysThatRightsAreMissing(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	ctx := testContext(t)
	_, c, _ := poorClient(t, db, `SELECT ON kagzi.workflow_payloads`)
	run := startRuns(t, newTestClient(t, db.Pool), nothing, 1)[0]
	_, err := (&Run[string]{client: c, workflow: "nothing", id: run.ID()}).Result(ctx)
	mustContain(t, err, "lacks SELECT on kagzi.workflow_payloads")
}

// TestRefusedRecordsHoldUpNobodyElse has the server refuse the records of one run for a reason that lies in nothing they
// contain: the others' are written, people are told, and the run goes on once that is repaired.
func TestRefusedRecordsHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	ctx := testContext(t)
	execSQL(t, db.Pool, `CREATE TABLE public.journal (n int)`)
	execSQL(t, db.Pool, `CREATE FUNCTION journal() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.journal VALUES (1); RETURN NEW; END'`)
	execSQL(t, db.Pool, `CREATE TRIGGER journal BEFORE INSERT ON kagzi.step_runs FOR EACH ROW WHEN (NEW.step_id = 'journaled') EXECUTE FUNCTION journal()`)
	role, c, logged := poorClient(t, db, "")
	var calls atomic.Int64
	wf := Define[int, int]("wf")
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, n int) (int, error) {
		name := "plain"
		if n == 0 {
			name = "journaled"
		}
		return n, Do(ctx, name, func(context.Context) error {
			calls.Add(1)
			return nil
		})
	})
	runs := startRuns(t, c, wf, 50)
	startWorker(t, w)
	checkResults(t, runs[1:], func(i int) int { return i + 1 })
	logged.wantLine(t, "the database refuses what the worker asks", "what=flush", "permission denied")
	waitFor(t, "Health shows it", func() bool {
		report, err := c.Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		check := report.Check("work")
		return check.Status == Degraded && strings.Contains(check.Detail, "cannot flush")
	})
	execSQL(t, db.Pool, `GRANT INSERT ON public.journal TO `+role)
	checkResults(t, runs[:1], func(int) int { return 0 })
	if n := calls.Load(); n != 50 {
		t.Errorf("the steps were executed %d times, want 50", n)
	}
	logged.wantLine(t, "does again what it refused", "what=flush")
}

// TestFlushThatIsTooMuchIsHalved has the server end every statement that records more than ten steps for the time it takes.
func TestFlushThatIsTooMuchIsHalved(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	execSQL(t, db.Pool, `CREATE FUNCTION impatient() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT count(*) FROM added) > 10 THEN RAISE 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END IF;
			RETURN NULL;
		END $$`)
	execSQL(t, db.Pool, `CREATE TRIGGER impatient AFTER INSERT ON kagzi.step_runs REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION impatient()`)
	c := newTestClient(t, db.Pool)
	const n = 50
	wf := Define[int, int]("wf")
	w := newTestWorker(t, c, WorkerConfig{MaxConcurrent: n})
	var begun atomic.Int64
	all := make(chan struct{})
	Handle(w, wf, func(ctx Context, in int) (int, error) {
		return in, Do(ctx, "s", func(ctx context.Context) error {
			if begun.Add(1) == n {
				close(all)
			}
			<-all
			return nil
		})
	})
	runs := startRuns(t, c, wf, n)
	startWorker(t, w)
	checkResults(t, runs, func(i int) int { return i })
	if n := begun.Load(); n != 50 {
		t.Errorf("the steps were executed %d times, want 50", n)
	}
}

// TestRefusalsOfWhatWasGivenAreBadRequests has calls refused whose arguments cannot be used.
func TestRefusalsOfWhatWasGivenAreBadRequests(t *testing.T) {
	k := newKit(t)
	only := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"an input that cannot be encoded":    only(Start(k.ctx, k.c, Define[func(), int]("f"), func() {})),
		"a payload that cannot be encoded":   k.c.Signal(k.ctx, ID("x"), DefineSignal[func()]("s").With(func() {})),
		"a schema version that is not known": only(MigrationSQL(0, 99)),
		"a zero run":                         only(k.c.Get(k.ctx, &Run[int]{})),
		"a zero RunInfo":                     k.c.Cancel(k.ctx, RunInfo{}),
	} {
		if KindOf(err) != KindBadRequest {
			t.Errorf("%s: %v, of kind %q", name, err, KindOf(err))
		}
	}
}
