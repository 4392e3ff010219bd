package operations_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// dbaDefaults are defaults that a database has for other programs, which could not use Kagzi under them.
var dbaDefaults = map[string]string{
	"statement_timeout": "200ms", "lock_timeout": "50ms", "idle_in_transaction_session_timeout": "200ms",
	"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
	"standard_conforming_strings": "off", "backslash_quote": "on", "TimeZone": "Asia/Kathmandu",
	"DateStyle":       "SQL, DMY",
	"plan_cache_mode": "force_generic_plan", "row_security": "off", "work_mem": "64kB",
}

// The verbs wait longer for a lock, and a server takes longer for a statement, than the defaults of the database allow.
func TestVerbsUnderTheDefaultsOfADatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	var defaults []func(*pgxpool.Config)
	for name, value := range dbaDefaults {
		defaults = append(defaults, dbtest.Setting(name, value))
	}
	c := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, append(defaults, dbtest.Conns(6))...))
	tagging := kagzi.Define[int, int]("tagging", kit.NoRetry)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, tagging, func(ctx kagzi.Context, n int) (int, error) {
		err := kagzi.SetMetadata(ctx, "tag", kagzi.Metadata{"stage": "done"})
		err = errors.Join(err, kagzi.SetProgress(ctx, "nearly", 0.9),
			kagzi.Do(ctx, "step", func(context.Context) error { return nil }))
		return n, errors.Join(err, errors.New("it fails"))
	})
	run, other := kit.Begin(k, tagging, 1, kagzi.ID("a"), kagzi.Metadata{"tenant": "acme"}),
		kit.Begin(k, tagging, 2, kagzi.ID("b"), kagzi.Metadata{"tenant": "acme"})
	stop := kit.StartWorker(t, w)
	for _, r := range []*kagzi.Run[int]{run, other} {
		if info := k.WaitStatus(r, kagzi.StatusFailed); info.Metadata["stage"] != "done" ||
			info.Progress.Text != "nearly" {
			t.Errorf("%+v", info)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	slowly := func(change func() error) {
		t.Helper()
		tx := dbtest.BeginWith(t, db.Pool, `SELECT FROM kagzi.workflow_runs FOR UPDATE`)
		var changing sync.WaitGroup
		changing.Go(func() {
			if err := change(); err != nil {
				t.Error(err)
			}
		})
		await.True(t, "it waits for a lock", func() bool {
			return k.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock'`) > 0
		})
		if _, err := tx.Exec(k.Ctx, `SELECT pg_sleep(0.5)`); err != nil {
			t.Error(err)
		}
		kit.CommitTx(t, tx)
		changing.Wait()
	}
	slowly(func() error { return admin.New(c).Runs.Resume(k.Ctx, run) })
	slowly(func() error {
		return admin.New(c).Runs.Update(k.Ctx, run, kagzi.Queue("other"), kagzi.Metadata{"tenant": "it's \\ odd"})
	})
	slowly(func() error {
		all, err := admin.New(c).Runs.UpdateAll(k.Ctx, kagzi.RunFilter{Queue: "other"}, kagzi.Priority(1))
		if len(all.Changed) != 1 {
			t.Errorf("%+v", all)
		}
		return err
	})
	k.WantEvents(run, admin.LogEntry{Event: "RESUMED"}, admin.LogEntry{Event: "UPDATED", Changes: []admin.LogChange{
		{Field: "queue", From: "default", To: "other"},
		{Field: "metadata", From: `{"stage": "done", "tenant": "acme"}`, To: `{"tenant": "it's \\ odd"}`},
	}}, admin.LogEntry{Event: "UPDATED", Changes: []admin.LogChange{{Field: "priority", From: "3", To: "1"}}})
	slowly(func() error { return admin.New(c).Runs.Terminate(k.Ctx, run) })

	k.Exec(`
		INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
			first_attempt)
		SELECT $1, 'step-' || g, 1, 'default', 'COMPLETED', 'FUNCTION', 1, 1
			FROM generate_series(1, 10010) AS g`, string(run.ID()))
	dbtest.Exec(t, db.Pool,
		`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END
			$$`)
	t.Cleanup(func() { dbtest.Exec(t, db.Pool, `DROP FUNCTION slow() CASCADE`) })
	dbtest.Exec(t, db.Pool, `CREATE TRIGGER slow AFTER DELETE ON kagzi.step_runs
		FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	slowly(func() error { return admin.New(c).Runs.Delete(k.Ctx, run) })
	slowly(func() error {
		all, err := admin.New(c).Runs.DeleteAll(k.Ctx, kagzi.RunFilter{ID: "b"})
		if len(all.Changed) != 1 {
			t.Errorf("%+v", all)
		}
		return err
	})
	if n := k.Count(`SELECT (SELECT count(*) FROM kagzi.workflow_runs) + (SELECT count(*)
		FROM kagzi.step_runs)`); n > 0 {
		t.Errorf("%d rows are left", n)
	}
	_, stats := admin.New(c).Stats(k.Ctx)
	_, counts := admin.New(c).Runs.Count(k.Ctx, kagzi.RunFilter{})
	if err := errors.Join(stats, counts); err != nil {
		t.Error(err)
	}
}
