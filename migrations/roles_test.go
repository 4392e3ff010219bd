package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

// The roles of a database are those of its server, so this shop has its own.
func ExampleRoles() {
	script, err := migrations.Roles("shop")
	fmt.Println(err)
	for line := range strings.Lines(script) {
		if strings.HasPrefix(strings.TrimSpace(line), "GRANT TRUNCATE") ||
			strings.Contains(line, "GRANT USAGE ON SCHEMA") {
			fmt.Print(strings.TrimSpace(line), "\n")
		}
	}
	_, err = migrations.Roles("Robert'; DROP TABLE students; --")
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// GRANT USAGE ON SCHEMA kagzi TO shop_worker, shop_client, shop_viewer;
	// GRANT TRUNCATE ON
	// true
}

// The script may be sent again: it takes back what it does not grant. Without tables, and for a user who does not own
// them, it says what to do.
func TestRolesScriptAgain(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	worker, client, viewer := dbtest.Roles(t, db)
	dbtest.Exec(t, db.Pool, `GRANT DELETE ON kagzi.workers TO `+viewer)
	dbtest.Exec(t, db.Pool, `REVOKE SELECT ON kagzi.workflow_runs FROM `+worker)
	script, err := migrations.Roles(strings.TrimSuffix(worker, "_worker"))
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, db.Pool, script)
	for right, want := range map[string]bool{
		fmt.Sprintf("has_table_privilege('%s', 'kagzi.workers', 'DELETE')",
			viewer): false,
		fmt.Sprintf("has_table_privilege('%s', 'kagzi.workflow_runs', 'SELECT')",
			worker): true,
		fmt.Sprintf("has_table_privilege('%s', 'kagzi.workflow_runs', 'TRUNCATE')",
			worker): false,
		fmt.Sprintf("has_column_privilege('%s', 'kagzi.workers', 'status', 'UPDATE')",
			client): true,
		fmt.Sprintf("has_column_privilege('%s', 'kagzi.workers', 'heartbeat_at', 'UPDATE')",
			client): false,
		fmt.Sprintf("has_schema_privilege('%s', 'kagzi', 'CREATE')",
			worker): false,
		fmt.Sprintf("has_any_column_privilege('%s', 'kagzi.schema_migrations', 'INSERT, UPDATE')",
			worker): false,
		fmt.Sprintf("pg_has_role('%s', '%s', 'MEMBER') OR pg_has_role('%[1]s', '%s', 'MEMBER')", viewer, worker,
			client): false,
	} {
		if got := dbtest.QueryOne[bool](t, db.Pool, "SELECT "+right); got != want {
			t.Errorf("%s is %t", right, got)
		}
	}
	_, err = dbtest.Pool(t, dbtest.Empty()).Exec(t.Context(), script)
	if err == nil || !strings.Contains(err.Error(), "call Migrate first") {
		t.Errorf("without tables: %v", err)
	}
	_, err = dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", worker)).Exec(t.Context(), script)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`user "%s" may not grant`, worker)) ||
		!strings.Contains(err.Error(), "who owns them") {
		t.Errorf("by a worker's user: %v", err)
	}
}
