package store

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// overload creates, in a schema of the application's, a function for each function that the statements call and each
// list of up to three types for which Postgres has none of that name. For such a call Postgres converts the arguments,
// unless the application's search_path has a function that matches better.
const overload = `
	DO $$
	DECLARE
		f text;
		types text;
	BEGIN
		CREATE SCHEMA hostile;
		FOR f, types IN
			WITH t AS (
				SELECT unnest(ARRAY['smallint', 'integer', 'bigint', 'numeric', 'double precision', 'text', 'boolean',
					'timestamptz', 'interval', 'uuid']) AS name
			), lists AS (
				SELECT name AS list, 1 AS n FROM t
				UNION ALL SELECT concat_ws(', ', a.name, b.name), 2 FROM t a, t b
				UNION ALL SELECT concat_ws(', ', a.name, b.name, c.name), 3 FROM t a, t b, t c
				WHERE ARRAY[a.name, b.name, c.name] <@ ARRAY['integer', 'bigint', 'text', 'boolean']
			)
			SELECT p.proname, l.list
			FROM (SELECT proname, pronargs FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
				AND proname = ANY ($1) GROUP BY 1, 2) p
			JOIN lists l ON l.n = p.pronargs
			WHERE to_regprocedure(format('pg_catalog.%I(%s)', p.proname, l.list)) IS NULL
		LOOP
			EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS bigint LANGUAGE sql AS ''SELECT 1''', f, types);
		END LOOP;
	END $$`

// captured returns the application's functions that the probe calls.
const captured = `
	SELECT DISTINCT d.refobjid::regprocedure::text
	FROM pg_depend d
	JOIN pg_proc p ON p.oid = d.refobjid AND p.pronamespace = 'hostile'::regnamespace
	JOIN pg_proc f ON f.oid = d.objid AND f.proname = 'probe'
	WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_proc'::regclass`

// No function in a schema of the application's replaces one of Postgres's that a statement calls, as power(integer,
// integer) would replace power(double precision, double precision). Each call has arguments of exactly the types of one
// of Postgres's own functions, or names its schema.
func TestStatementsCallPostgresOwnFunctions(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	conn := dbtest.Connect(t, db.DSN)
	all := statements(t)
	calls := regexp.MustCompile(`\b([a-z_0-9]+)\(`)
	var names []string
	for _, sql := range all {
		for _, m := range calls.FindAllStringSubmatch(sql, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	list := "ARRAY['" + strings.Join(names, "', '") + "']"
	exec(t, conn, strings.Replace(overload, "$1", list, 1), pgx.QueryExecModeSimpleProtocol)
	t.Logf("%d functions for %d names", one[int](t, conn, `SELECT count(*)::int FROM pg_proc
		WHERE pronamespace = 'hostile'::regnamespace`), len(names))
	exec(t, conn, `SET search_path = hostile, public`)
	for name, sql := range all {
		if strings.Contains(sql, "pg_catalog.run_command_on_all_nodes(") { // which only Citus has
			continue
		}
		d, err := conn.Prepare(t.Context(), name, sql)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		types := make([]string, len(d.ParamOIDs))
		for i, oid := range d.ParamOIDs {
			types[i] = one[string](t, conn, `SELECT format_type($1, NULL)`, oid)
		}
		probe := fmt.Sprintf("CREATE FUNCTION public.probe(%s) RETURNS void BEGIN ATOMIC %s; END",
			strings.Join(types, ", "), sql)
		if _, err := conn.Exec(t.Context(), probe, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := conn.Query(t.Context(), captured)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			t.Errorf("%s may call %s", name, strings.Join(found, ", "))
		}
		exec(t, conn, `DROP FUNCTION public.probe`)
	}
}
