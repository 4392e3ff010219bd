package operations_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A database of another encoding than UTF8 is refused, with an error that says what to do, before and after the
// tables are made there.
func TestEncodingOfTheDatabase(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t, dbtest.Empty(), dbtest.AsOwner())
	name := db.Name + "_latin1"
	dbtest.Exec(t, db.Pool, `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`)
	t.Cleanup(func() { dbtest.Exec(t, db.Pool, `DROP DATABASE `+name+` WITH (FORCE)`) })
	dsn, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	dsn.Path = "/" + name
	pool, err := pgxpool.New(ctx, dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	wants := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "not UTF8") || !strings.Contains(err.Error(), "LATIN1") ||
			!strings.Contains(err.Error(), "CREATE DATABASE") {
			t.Errorf("%s: %v", what, err)
		}
	}
	wants("Migrate", kagzi.Migrate(ctx, pool))
	if dbtest.QueryOne[bool](t, pool, `SELECT to_regnamespace('kagzi') IS NOT NULL`) {
		t.Error("Migrate has created the schema")
	}
	advice := func() {
		t.Helper()
		found, err := doctor.Examine(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found {
			if strings.Contains(a.String(), "kagzi.Migrate") {
				t.Errorf("the doctor advises to migrate: %v", a)
			}
		}
		for _, a := range found {
			if a.Severity == doctor.Problem && strings.Contains(a.String(), "LATIN1") &&
				strings.Contains(a.Do, "CREATE DATABASE") {
				return
			}
		}
		t.Errorf("the doctor has found %v", found)
	}
	c := kit.NewClient(t, pool)
	ill := func() {
		t.Helper()
		report, err := admin.New(c).Health(ctx)
		if err != nil || report.Status != health.Unhealthy {
			t.Errorf("Health has %+v, %v", report, err)
		}
		wants("Health", errors.New(report.Check("schema").Detail))
	}
	advice()
	ill()
	_, err = kagzi.Start(ctx, c, kit.Nothing, 1)
	wants("Start", err)
	dbtest.Exec(t, pool, `CREATE SCHEMA kagzi`)
	dbtest.Exec(t, pool, `CREATE TABLE kagzi.schema_migrations AS SELECT 1::bigint AS version_id, true AS is_applied,
		1::bigint AS oldest_program`)
	wants("Migrate", kagzi.Migrate(ctx, pool))
	advice()
	_, err = kagzi.Start(ctx, c, kit.Nothing, 1)
	wants("Start", err)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, kit.Nothing, func(kagzi.Context, int) (string, error) { return "", nil })
	wants("Worker.Run", w.Run(ctx))
	ill()
}
