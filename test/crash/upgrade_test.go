//go:build unix

package crash_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/migrations"
)

// A later program may add columns to every table, a table, and an index that is built concurrently.
const (
	expanding = `
-- +kagzi OldestProgram {oldest}
-- +goose Up
CREATE TABLE kagzi.next (id uuid NOT NULL, namespace_id text COLLATE "C" NOT NULL, PRIMARY KEY (id, namespace_id));
ALTER TABLE kagzi.workflow_runs ADD COLUMN next integer NOT NULL DEFAULT 7;
ALTER TABLE kagzi.schedules ADD COLUMN next integer NOT NULL DEFAULT 7;
ALTER TABLE kagzi.step_runs ADD COLUMN next integer NOT NULL DEFAULT 7;
ALTER TABLE kagzi.signals ADD COLUMN next text;
ALTER TABLE kagzi.workers ADD COLUMN next jsonb;
ALTER TABLE kagzi.worker_events ADD COLUMN next text;
ALTER TABLE kagzi.run_events ADD COLUMN next text;
-- +goose Down
DROP TABLE kagzi.next;
`
	indexing = `
-- +kagzi OldestProgram {oldest}
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS kagzi.workflow_runs_next;
CREATE INDEX CONCURRENTLY workflow_runs_next ON kagzi.workflow_runs (started_at, namespace_id);
-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS kagzi.workflow_runs_next;
`
	contracting = `
-- +kagzi OldestProgram {next}
-- +goose Up
SELECT;
-- +goose Down
SELECT;
`
)

func migrateNext(t *testing.T, db *dbtest.DB, texts ...string) error {
	return migrations.UpFiles(kit.Context(t), dbtest.Owner(t, db.Pool), dbtest.NextMigrations(texts...))
}

// TestProgramOnANewerSchema lets worker processes of this program that started before an expanding migration, and some
// that start after it, execute runs that were begun before and after, and kills one: the deploy of a newer program may
// be mixed with this one, and be rolled back to it.
func TestProgramOnANewerSchema(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	dbtest.Exec(t, r.db.Pool, createEffects)
	a1, a2 := r.start("a1", 1), r.start("a2", 1)
	var rolled []*kagzi.Run[string]
	for range 6 {
		rolled = append(rolled, r.begin())
	}
	r.held(1, a1, a2)
	// under way during the migration
	chain, mails := kit.StartRuns(t, r.c, chained, 10), kit.StartRuns(t, r.c, mailed, 3)

	if err := migrateNext(t, r.db, expanding, indexing); err != nil {
		t.Fatal(err)
	}
	if err := kagzi.Migrate(t.Context(), dbtest.Owner(t, r.db.Pool)); err != nil {
		t.Errorf("Migrate of this program: %v", err)
	}
	after := kit.NewClient(t, r.db.Pool)
	b1 := r.start("b1", 1)
	for range 4 {
		rolled = append(rolled, r.begin())
	}
	if r.holds(a1) < r.holds(a2) {
		a1, a2 = a2, a1
	}
	r.kill(a1)
	await.True(t, "the others hold all runs that wait to be released", func() bool {
		return dbtest.QueryOne[int](t, r.db.Pool, `SELECT count(*) FROM kagzi.workflow_runs r JOIN kagzi.workers w
			ON w.worker_id = r.locked_by
			WHERE r.workflow_type = 'rolling' AND r.status = 'RUNNING' AND w.status = 'ONLINE' AND w.pid = ANY ($1)`,
			[]int{a2.cmd.Process.Pid, b1.cmd.Process.Pid}) == len(rolled)
	})
	r.start("b2", 1)
	chain = append(chain, kit.StartRuns(t, after, chained, 10)...)
	for _, run := range mails {
		for i := 2; i <= 4; i++ {
			if err := after.Signal(t.Context(), run.ID(), greeted.With(fmt.Sprint("g", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.c.Signal(t.Context(), run.ID(), parted.For("a/b").With("p")); err != nil {
			t.Fatal(err)
		}
	}
	kit.Touch(t, r.release)

	kit.CheckResults(t, rolled, func(int) string { return "1 1 1 1" })
	for i, run := range chain {
		if got, err := run.Result(kit.Context(t)); err != nil || got != chainedResult(i%10) {
			t.Errorf("chained run %d returned %q, %v", i, got, err)
		}
	}
	kit.CheckResults(t, mails, mailedResult)
	// a transactional step each
	if n := dbtest.QueryOne[int](t, r.db.Pool, `SELECT count(*) FROM effects`); n != len(chain)+len(mails) {
		t.Errorf("%d effects of %d runs", n, len(chain)+len(mails))
	}
	if n := dbtest.QueryOne[int](t, r.db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE next = 7`); n !=
		len(rolled)+len(chain)+len(mails) {
		t.Errorf("INVALID: %d runs have what the migration brought", n)
	}
	report, err := admin.New(after).Health(t.Context())
	if check := report.Check("schema"); err != nil || check.Status != health.Healthy ||
		!strings.Contains(check.Detail, "works too") {
		t.Errorf("schema %+v, %v", check, err)
	}
}

// A contracting migration is refused while workers of this program run. After it, the program says once what to do, and
// ends.
func TestProgramOnASchemaThatDoesNotBearIt(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	a1 := r.start("a1", 1)
	run := r.begin()
	r.held(1, a1)
	if err := migrateNext(t, r.db, expanding, contracting); !errors.Is(err, migrations.ErrInUse) {
		t.Errorf("beside a worker: %v", err)
	} else {
		kit.MustContain(t, err, "running: 1, ", fmt.Sprintf("knows version %d first, or stop them",
			migrations.Version()+1))
	}
	r.start("a2", 1).stop(t) // the migration before was applied, and this one was not
	kit.Touch(t, r.release)
	kit.CheckResults(t, []*kagzi.Run[string]{run}, func(int) string { return "1 1 1 1" })
	a1.stop(t)

	if err := migrateNext(t, r.db, expanding, contracting); err != nil {
		t.Fatal(err)
	}
	late := startProcess(t, workerSpec{DSN: r.db.DSN, Ledger: r.ledger("late"), Config: roomy, Rolling: []int{1}})
	late.ended(t)
	says := []string{
		"schema newer than this program", "upgrade this program's Kagzi",
		fmt.Sprintf("knows version %d)", migrations.Version()),
	}
	if text := late.stderr.String(); late.err == nil || strings.Count(text, "newer than this program") != 1 {
		t.Errorf("the worker process ended with %v and said: %s", late.err, text)
	} else {
		kit.MustContain(t, errors.New(text), says...)
	}
	_, err := kagzi.Start(t.Context(), kit.NewClient(t, r.db.Pool), rolling, "")
	kit.MustContain(t, err, says...)
	kit.MustContain(t, kagzi.Migrate(t.Context(), dbtest.Owner(t, r.db.Pool)), says...)
	if n := dbtest.QueryOne[int](t, r.db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status <> 'OFFLINE'`); n != 0 {
		t.Errorf("%d workers are registered", n)
	}
	if _, err := kagzi.Start(t.Context(), r.c, rolling, ""); err != nil {
		t.Errorf("a client that was at work before: %v", err)
	}
}

// A worker has checked the schema, and registers after a contracting migration has searched for workers.
func TestWorkerRegistersBesideAContractingMigration(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	migration := dbtest.Connect(t, db.DSN)
	for _, sql := range []string{
		`BEGIN`, `LOCK TABLE kagzi.workers IN SHARE MODE`,
		`INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 99)`,
	} {
		if _, err := migration.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	w := kit.NewWorker(t, kit.NewClient(t, db.Pool), kagzi.WorkerConfig{})
	kagzi.Handle(w, rolling, func(kagzi.Context, string) (string, error) { return "", nil })
	done := make(chan error, 1)
	go func() { done <- w.Run(kit.Context(t)) }()
	await.True(t, "the worker registers", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d
			ON d.oid = l.database
			WHERE d.datname = current_database() AND l.relation = 'kagzi.workers'::regclass AND NOT l.granted)`)
	})
	if _, err := migration.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	kit.MustContain(t, <-done, "kagzi: schema newer than this program", "upgrade this program's Kagzi")
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status <> 'OFFLINE'`); n != 0 {
		t.Errorf("%d workers are registered", n)
	}
}

// A worker that was declared dead does not block a contracting migration. It does not register again afterwards, logs
// why, and claims nothing.
func TestWorkerComesBackAfterAContractingMigration(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, logged := kit.LoggedClient(t, db.Pool)
	w := kit.NewWorker(t, c, kit.Quick)
	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) {
		t.Error("a run is executed")
		return 0, nil
	})
	stop := kit.StartLocal(t, w)
	logged.WantLine(t, "worker started") // it has looked at the schema for the last time
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET status = 'OFFLINE'; DELETE FROM kagzi.worker_events;
		INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (99, true, 99)`)
	logged.WantLine(t, "declared dead")
	if _, err := kagzi.Start(t.Context(), c, wf, 1); err != nil {
		t.Fatal(err)
	}
	logged.WantLine(t, "newer than this program")
	stop()
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers`); n != 1 {
		t.Errorf("%d workers were registered, want the first only", n)
	}
}

// An error of Migrate is one sentence with one prefix and no SQLSTATE.
func TestMigrateSaysOnceWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Empty())
	_, script := migrations.SQL(-1, 0)
	for err, want := range map[error]string{
		kagzi.Migrate(t.Context(), dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_read_only",
			"on"))): "kagzi: migrate: the database is read-only, a standby for one: " +
			"connect to the primary (target_session_attrs=read-write), or reset default_transaction_read_only",
		script: "kagzi: migration script: there are no negative versions: from 0 is from an empty database, to 0 is " +
			"to the newest version",
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
