package operations_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
)

// Result returns an error if the user may not read the result.
func TestResultSaysThatRightsAreMissing(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	ctx := kit.Context(t)
	role, c, _ := kit.PoorClient(t, db, `SELECT ON kagzi.workflow_runs`)
	// for Start
	dbtest.Exec(t, db.Pool, `GRANT SELECT (run_id, task_queue, workflow_type, version, publishes, run_key, key_scope,
		lease, started_at, deadline_at, available_at)
		ON kagzi.workflow_runs TO `+role)
	run, err := kagzi.Start(ctx, c, kit.Nothing, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Result(ctx)
	kit.MustContain(t, err, "lacks SELECT on kagzi.workflow_runs")
}

// The server refuses the records of one run, with errors that their contents do not cause. The records of other runs
// are written, the errors are logged, and the run continues after the repair.
func TestRefusedRecordsHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ does, says string }{
		"MissingRight":         {`INSERT INTO public.journal VALUES (1)`, "permission denied"},
		"DiskFull":             {`RAISE 'no space left' USING ERRCODE = '53100'`, "53100"},
		"OutOfMemory":          {`RAISE 'out of memory' USING ERRCODE = '53200'`, "53200"},
		"InputOutputError":     {`RAISE 'could not read block' USING ERRCODE = '58030'`, "58030"},
		"SerializationFailure": {`RAISE 'could not serialize' USING ERRCODE = '40001'`, ""}, // told after a while
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			ctx := kit.Context(t)
			dbtest.Exec(t, db.Pool, `CREATE TABLE public.journal (n int)`)
			dbtest.Exec(t, db.Pool, `CREATE FUNCTION journal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+tt.does+
				`; RETURN NEW; END $$`)
			dbtest.Exec(t, db.Pool, `CREATE TRIGGER journal BEFORE INSERT ON kagzi.step_runs FOR EACH ROW
				WHEN (NEW.step_id = 'journaled') EXECUTE FUNCTION journal()`)
			_, c, logged := kit.PoorClient(t, db, "")
			var calls atomic.Int64
			wf := kagzi.Define[int, int]("wf")
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
				name := "plain"
				if n == 0 {
					name = "journaled"
				}
				return n, kagzi.Do(ctx, name, func(context.Context) error {
					calls.Add(1)
					return nil
				})
			})
			runs := kit.StartRuns(t, c, wf, 50)
			kit.StartWorker(t, w)
			kit.CheckResults(t, runs[1:], func(i int) int { return i + 1 })
			if tt.says != "" {
				logged.WantLine(t, "the database refuses an operation of the worker",
					"flush what some runs have recorded", tt.says)
				report, err := admin.New(c).Health(ctx)
				if check := report.Check("work"); err != nil || check.Status != health.Degraded ||
					!strings.Contains(check.Detail, "cannot flush what some runs have recorded") {
					t.Errorf("Health has %+v, %v", check, err)
				}
			}
			if logged.Has("does not answer") {
				t.Errorf("the database was taken for away:\n%s", logged)
			}
			dbtest.Exec(t, db.Pool, `DROP TRIGGER journal ON kagzi.step_runs`)
			kit.CheckResults(t, runs[:1], func(int) int { return 0 })
			if n := calls.Load(); n != 50 {
				t.Errorf("the steps were executed %d times, want 50", n)
			}
			if tt.says != "" {
				logged.WantLine(t, "the database no longer refuses the operation", "flush what some runs have recorded")
			}
		})
	}
}

// The server refuses all records for a while, as with a full disk. The worker keeps trying, with few statements however
// many records wait. Health reports it, no step fails, and all records are written in the end.
func TestNothingCanBeRecorded(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	ctx := kit.Context(t)
	dbtest.Exec(t, db.Pool,
		`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'could not extend file'
			USING ERRCODE = '53100'; END $$`)
	dbtest.Exec(t, db.Pool, `CREATE TRIGGER full_disk BEFORE INSERT ON kagzi.step_runs
		FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	c, logged := kit.LoggedClient(t, db.Pool)
	const n = 200
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: n})
	var flushes atomic.Int64
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "before flush" {
			flushes.Add(1)
		}
	})
	var calls atomic.Int64
	all := make(chan struct{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, in int) (int, error) {
		return in, kagzi.Do(ctx, "s", func(context.Context) error {
			if calls.Add(1) == n {
				close(all)
			}
			await.Opened(t, all)
			return nil
		}, kit.NoRetry)
	})
	runs := kit.StartRuns(t, c, wf, n)
	kit.StartWorker(t, w)
	await.Receive(t, all)
	begun, before := time.Now(), flushes.Load()
	logged.WantLine(t, "the database refuses an operation of the worker", "what=flush", "53100")
	report, err := admin.New(c).Health(ctx)
	if check := report.Check("work"); err != nil || check.Status != health.Degraded ||
		!strings.Contains(check.Detail, "cannot flush for") {
		t.Errorf("Health has %+v, %v", check, err)
	}
	await.True(t, "it is tried many times", func() bool { return flushes.Load()-before > 100 })
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("100 flushes in %v", took)
	}
	dbtest.Exec(t, db.Pool, `DROP TRIGGER full_disk ON kagzi.step_runs`)
	kit.CheckResults(t, runs, func(i int) int { return i })
	if n := calls.Load(); n != 200 {
		t.Errorf("the steps were executed %d times, want 200", n)
	}
}

// The server cancels every statement that records more than ten steps, because it takes too long. The worker halves the
// flush.
func TestFlushThatIsTooMuchIsHalved(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Exec(t, db.Pool, `CREATE FUNCTION impatient() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT count(*) FROM added) > 10 THEN RAISE 'canceling statement due to statement timeout'
				USING ERRCODE = '57014'; END IF;
			RETURN NULL;
		END $$`)
	dbtest.Exec(t, db.Pool, `CREATE TRIGGER impatient AFTER INSERT ON kagzi.step_runs REFERENCING NEW TABLE AS added
		FOR EACH STATEMENT EXECUTE FUNCTION impatient()`)
	c := kit.NewClient(t, db.Pool)
	const n = 50
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: n})
	var begun atomic.Int64
	all := make(chan struct{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, in int) (int, error) {
		return in, kagzi.Do(ctx, "s", func(ctx context.Context) error {
			if begun.Add(1) == n {
				close(all)
			}
			await.Opened(t, all)
			return nil
		})
	})
	runs := kit.StartRuns(t, c, wf, n)
	kit.StartWorker(t, w)
	kit.CheckResults(t, runs, func(i int) int { return i })
	if n := begun.Load(); n != 50 {
		t.Errorf("the steps were executed %d times, want 50", n)
	}
}

// A call whose arguments cannot be used is refused as a bad request.
func TestRefusalsOfWhatWasGivenAreBadRequests(t *testing.T) {
	k := kit.New(t)
	only := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"an input that cannot be encoded": only(kagzi.Start(k.Ctx, k.Client, kagzi.Define[func(), int]("f"),
			func() {})),
		"an input without a field that is encoded": only(kagzi.Start(k.Ctx, k.Client,
			kagzi.Define[struct{ n int }, int]("f"), struct{ n int }{1})),
		"a payload that cannot be encoded": k.Client.Signal(k.Ctx, kagzi.ID("x"),
			kagzi.DefineSignal[func()]("s").With(func() {})),
		"a schema version that is not known": only(migrations.SQL(0, 99)),
		"a zero run":                         only(k.Client.Get(k.Ctx, &kagzi.Run[int]{})),
		"a zero RunInfo":                     k.Client.Cancel(k.Ctx, kagzi.RunInfo{}),
	} {
		if kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("%s: %v, of kind %q", name, err, kagzi.KindOf(err))
		}
	}
}
