package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// grantedRights returns the rights that a role has on the tables of the schema, as tableRights writes them.
const grantedRights = `
SELECT c.relname || ' ' || string_agg(CASE a.privilege_type WHEN 'SELECT' THEN 'S' WHEN 'INSERT' THEN 'I' WHEN 'UPDATE'
	THEN 'U'
	WHEN 'DELETE' THEN 'D' WHEN 'TRUNCATE' THEN 'T' WHEN 'u' THEN 'u' ELSE '?' END, ''
		ORDER BY strpos('SELECT INSERT UPDATE u DELETE TRUNCATE', a.privilege_type))
FROM pg_class c
CROSS JOIN LATERAL (
	SELECT x.privilege_type, x.grantee FROM aclexplode(c.relacl) x
	UNION
	SELECT 'u', x.grantee FROM pg_attribute t CROSS JOIN aclexplode(t.attacl) x WHERE t.attrelid = c.oid
) a
WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND a.grantee = $1::text::regrole
GROUP BY c.relname ORDER BY c.relname`

// The script for the roles grants what the store needs, and nothing else.
func TestRolesHaveTheRightsThatAreNeeded(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	worker, client, viewer := dbtest.Roles(t, db)
	for role, needed := range map[string]string{
		worker: `SELECT relation || ' ' || worker FROM ` + tableRights + ` WHERE worker <> '' ORDER BY relation`,
		client: `SELECT relation || ' ' || client FROM ` + tableRights + ` WHERE client <> '' ORDER BY relation`,
		viewer: `SELECT relation || ' S' FROM ` + tableRights + ` WHERE worker LIKE 'S%' ORDER BY relation`,
	} {
		if got, want := column[string](t, db.Pool, grantedRights, role),
			column[string](t, db.Pool, needed); !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nand needs\n%s", role, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if missing := column[string](t, db.Pool, `SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p')
		EXCEPT SELECT relation FROM `+tableRights); len(missing) > 0 {
		t.Errorf("tableRights lacks %q", missing)
	}
	for role, want := range map[string]Rights{worker: WorkerRights, client: ClientRights, viewer: ViewerRights} {
		pool := dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role))
		if got, err := New(pool, "test").CheckRightsOn(t.Context(), pool, ClientRights); got != want || err != nil {
			t.Errorf("%s has rights %d, %v", role, got, err)
		}
		if err := New(pool, "test").CheckRights(t.Context()); (err == nil) != (want == WorkerRights) {
			t.Errorf("%s as a worker: %v", role, err)
		}
	}
}

// The error names the role to grant only if that helps: not if the role has rights in another database of the server
// only, and not if the user is a member already, because the script was not sent again after an upgrade.
func TestMissingRightsNameARoleThatHelps(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	_, client, _ := dbtest.Roles(t, db)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // no other test sees its roles
	user := strings.TrimSuffix(client, "_client") + "_user"
	role, tables := fmt.Sprintf(`GRANT "kagzi_client" TO %q`, user),
		fmt.Sprintf(`ON ALL TABLES IN SCHEMA kagzi TO %q`, user)
	for _, step := range []struct{ sql, want string }{
		{`CREATE ROLE ` + user, tables},
		{`DO $$ BEGIN IF to_regrole('kagzi_client') IS NULL THEN CREATE ROLE kagzi_client; END IF; END $$`, tables},
		{`GRANT USAGE ON SCHEMA kagzi TO kagzi_client`, role},
		{`GRANT kagzi_client TO ` + user, tables},
	} {
		if _, err := tx.Exec(t.Context(), `RESET ROLE; `+step.sql+`; SET LOCAL ROLE `+user); err != nil {
			t.Fatal(err)
		}
		_, err := New(db.Pool, "test").CheckRightsOn(t.Context(), tx, ClientRights)
		if missing, ok := errors.AsType[*MissingRights](err); !ok || !strings.Contains(missing.Grants(), step.want) {
			t.Errorf("after %s: %v", step.sql, err)
		}
	}
}

// An error names few tables, those together that lack the same rights, and the sequence and the migrations apart.
func TestMissingRightsInWords(t *testing.T) {
	t.Parallel()
	for want, rights := range map[string][]string{
		"": nil,
		"SELECT, INSERT on kagzi.limits, kagzi.queues and DELETE on kagzi.workers and SELECT, USAGE on " +
			"kagzi.event_positions and SELECT on kagzi.schema_migrations": {
			"SELECT queues", "SELECT schema_migrations", "SELECT limits", "SELECT event_positions", "INSERT limits",
			"INSERT queues", "USAGE event_positions", "DELETE workers",
		},
		"SELECT, DELETE on the tables of schema kagzi and SELECT on kagzi.schema_migrations": {
			"SELECT queues", "SELECT limits", "SELECT schema_migrations", "DELETE workers", "DELETE pauses",
		},
	} {
		if got := lacks(rights); got != want {
			t.Errorf("%q: %s, want %s", rights, got, want)
		}
	}
}

// A worker may send every statement, and for each of its rights there is a statement that needs it.
func TestEveryRightOfAWorkerIsNeeded(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.PretendCitus(t, db)
	worker, _, _ := dbtest.Roles(t, db)
	pool := dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", worker), dbtest.Conns(1))
	all := preparedStatements(t, pool)
	all["lockEvents"] = `LOCK TABLE kagzi.events IN SHARE ROW EXCLUSIVE MODE`
	for part := range 8 {
		all[fmt.Sprint("truncate", part)] = fmt.Sprintf(`TRUNCATE kagzi.events_%d`, part)
	}
	refused := func(sql string) bool {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		_, err = tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil && pg.Code(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
		return err != nil
	}
	for name, sql := range all {
		if refused(sql) {
			t.Errorf("a worker may not send %s", name)
		}
	}
	verbs := map[rune]string{'S': "SELECT", 'I': "INSERT", 'U': "UPDATE", 'D': "DELETE", 'T': "TRUNCATE"}
	for _, line := range column[string](t, db.Pool, `SELECT relation || ' ' || worker FROM `+tableRights+
		` WHERE relation <> 'schema_migrations'`) {
		table, letters, _ := strings.Cut(line, " ")
		for _, letter := range letters {
			exec(t, db.Pool, fmt.Sprintf(`REVOKE %s ON kagzi.%s FROM %s`, verbs[letter], table, worker))
			if !slices.ContainsFunc(slices.Collect(maps.Values(all)), func(sql string) bool {
				return strings.Contains(sql, "kagzi."+table) && refused(sql)
			}) {
				t.Errorf("no statement needs %s on kagzi.%s", verbs[letter], table)
			}
			exec(t, db.Pool, fmt.Sprintf(`GRANT %s ON kagzi.%s TO %s`, verbs[letter], table, worker))
		}
	}
}

// preparedStatements prepares every statement of the package on the only connection of a pool. It returns EXPLAIN
// statements of them, which the server refuses for missing rights as it does the statements themselves. Each ends with
// its text as a comment.
func preparedStatements(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	exec(t, pool, `SET plan_cache_mode = force_generic_plan`)
	explained := map[string]string{}
	blanks := regexp.MustCompile(`\s+`)
	for name, sql := range statements(t) {
		err := pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			id := fmt.Sprint("s", len(explained))
			d, err := c.Conn().Prepare(t.Context(), id, sql)
			if err != nil {
				return err
			}
			nulls := ""
			if n := len(d.ParamOIDs); n > 0 {
				nulls = "(NULL" + strings.Repeat(", NULL", n-1) + ")"
			}
			explained[name] = "EXPLAIN EXECUTE " + id + nulls + " -- " +
				blanks.ReplaceAllString(regexp.MustCompile(`--.*`).ReplaceAllString(sql, ""), " ")
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return explained
}
