package migrations_test

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

const (
	// givenToPrograms lists the properties of tables that a program's statements rely on, by table. A different file
	// means that the table was rewritten, which locks it.
	givenToPrograms = `
SELECT attrelid::regclass::text, format('column %s %s', attname, format_type(atttypid, atttypmod))
FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
WHERE relnamespace = 'kagzi'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT oid::regclass::text, format('file %s', relfilenode) FROM pg_class
	WHERE relnamespace = 'kagzi'::regnamespace AND relkind = 'r'`

	// askedOfPrograms lists the conditions that a program's writes must meet. The test cannot tell a CHECK that was
	// widened from one that was narrowed: a reviewer of the migration must.
	askedOfPrograms = `
SELECT attrelid::regclass::text, format('a value for %s', attname)
FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
WHERE relnamespace = 'kagzi'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped AND attnotnull
	AND NOT atthasdef AND attidentity = ''
UNION ALL SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indrelid
WHERE relnamespace = 'kagzi'::regnamespace AND indisunique
UNION ALL SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
	WHERE connamespace = 'kagzi'::regnamespace AND contype IN ('f', 'x')`

	// indexes lists the indexes: on tables in use, none may be built in a transaction.
	indexes = `
SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indrelid
	WHERE relnamespace = 'kagzi'::regnamespace`
)

// A catalog is the result of one of these queries.
type catalog map[[2]string]bool

func catalogOf(t *testing.T, pool *pgxpool.Pool, sql string) catalog {
	t.Helper()
	found := catalog{}
	var table, thing string
	rows, _ := pool.Query(t.Context(), sql)
	if _, err := pgx.ForEachRow(rows, []any{&table, &thing}, func() error {
		found[[2]string{table, thing}] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// without returns the entries of c that d does not have, about tables that d has.
func (c catalog) without(d catalog) (list []string) {
	old := map[string]bool{}
	for thing := range d {
		old[thing[0]] = true
	}
	for _, thing := range slices.SortedFunc(maps.Keys(c), func(a, b [2]string) int {
		return strings.Compare(a[0]+a[1], b[0]+b[1])
	}) {
		if old[thing[0]] && !d[thing] {
			list = append(list, thing[0]+": "+thing[1])
		}
	}
	return list
}

// breaches applies the last of the migrations after. It returns the things that programs of the version before would
// miss, that would refuse their writes, or that would make them wait.
func breaches(t *testing.T, before, after fs.FS) (list []string) {
	t.Helper()
	pool := dbtest.Pool(t, dbtest.Empty())
	apply := func(files fs.FS) (given, asked, built catalog) {
		if err := migrations.UpFiles(t.Context(), pool, files); err != nil {
			t.Fatal(err)
		}
		return catalogOf(t, pool, givenToPrograms), catalogOf(t, pool, askedOfPrograms), catalogOf(t, pool, indexes)
	}
	given, asked, built := apply(before)
	left, more, indexed := apply(after)
	for thing := range given {
		if !left[thing] {
			list = append(list, fmt.Sprintf("takes away %s: %s", thing[0], thing[1]))
		}
	}
	for _, thing := range more.without(asked) {
		list = append(list, "asks for "+thing)
	}
	names := fileNames(t, after)
	if !strings.Contains(fileText(t, after, names[len(names)-1]), "\n-- +goose NO TRANSACTION\n") {
		for _, thing := range indexed.without(built) {
			list = append(list, "locks a table to build "+thing)
		}
	}
	return list
}

func fileNames(t *testing.T, files fs.FS) []string {
	t.Helper()
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func fileText(t *testing.T, files fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Our migrations follow the policy of docs/upgrading.md: if a migration says that programs of the version before work
// with its schema, it removes nothing that they use and requires nothing new of them.
func TestMigrationsExpand(t *testing.T) {
	t.Parallel()
	before, ours := fstest.MapFS{}, migrations.Files()
	for i, name := range fileNames(t, ours) {
		text := fileText(t, ours, name)
		after := maps.Clone(before)
		after[name] = &fstest.MapFile{Data: []byte(text)}
		// No program works with the tables before the first migration.
		if i > 0 && !strings.Contains(text, fmt.Sprintf("OldestProgram %d\n", i+1)) {
			for _, breach := range breaches(t, before, after) {
				t.Errorf("%s %s", name, breach)
			}
		}
		before = after
	}
	file := func(sql string) string {
		return "-- +kagzi OldestProgram {oldest}\n-- +goose Up\n" + sql + ";\n-- +goose Down\nSELECT 1;\n"
	}
	for text, want := range map[string]string{
		addColumn: "", addIndex: "",
		file(`CREATE TABLE kagzi.next (id uuid NOT NULL PRIMARY KEY); CREATE INDEX next_id ON kagzi.next (id)`): "",
		file(`ALTER TABLE kagzi.workflow_runs DROP COLUMN
			origin_run_id`): "takes away kagzi.workflow_runs: column origin_run_id uuid",
		file(`ALTER TABLE kagzi.workflow_runs RENAME origin_run_id TO
			origin`): "takes away kagzi.workflow_runs: column origin_run_id uuid",
		file(`ALTER TABLE kagzi.workflow_runs ALTER recoveries TYPE
			bigint`): "takes away kagzi.workflow_runs: column recoveries integer",
		file(`ALTER TABLE kagzi.workflow_runs ADD COLUMN at timestamptz NOT NULL DEFAULT
			clock_timestamp()`): "takes away kagzi.workflow_runs: file",

		file(`DROP TABLE kagzi.signals`): "takes away kagzi.signals: column",
		file(`ALTER TABLE kagzi.workflow_runs ADD COLUMN next integer NOT NULL`): "asks for kagzi.workflow_runs: a " +
			"value for next",
		file(`ALTER TABLE kagzi.workflow_runs ALTER input_hash SET NOT NULL`): "asks for kagzi.workflow_runs: a " +
			"value for input_hash",
		strings.Replace(addIndex, "CREATE INDEX", "CREATE UNIQUE INDEX", 1): "asks for kagzi.workflow_runs: CREATE " +
			"UNIQUE INDEX",
		file(`CREATE INDEX next ON kagzi.workflow_runs (started_at)`): "locks a table to build kagzi.workflow_runs: " +
			"CREATE INDEX next",
	} {
		found := strings.Join(breaches(t, migrations.Files(), dbtest.NextMigrations(text)), "\n")
		if want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", text, found, want)
		}
	}
}
