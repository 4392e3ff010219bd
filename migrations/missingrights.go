package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A RightsError reports that the user may not migrate, and how to grant the missing right.
type RightsError struct {
	Lacks string // `user "app" may not create schema kagzi`
	Fix   string // the statement that grants the right, or another way
	Err   error  // the server's error
}

func (e *RightsError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Lacks, e.Fix, e.Err) }

// Unwrap returns the server's error.
func (e *RightsError) Unwrap() error { return e.Err }

// rights are the facts that decide whether a user may migrate.
type rights struct {
	user, database string
	schema         bool   // schema kagzi exists
	create         bool   // the user may create tables in it
	tables         bool   // it has tables
	owner          string // the owner of a table that does not belong to the user; "" if all do
}

const migrationRights = `
SELECT current_user::text, current_database()::text, n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'CREATE'),
	false),
	EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p')),
	coalesce((SELECT min(pg_get_userbyid(c.relowner)::text) FROM pg_class c
		WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT pg_has_role(c.relowner, 'USAGE')), '')
FROM (SELECT to_regnamespace('kagzi')::oid AS oid) n`

func rightsOf(ctx context.Context, pool *pgxpool.Pool) (r rights, err error) {
	err = pool.QueryRow(ctx, migrationRights).Scan(&r.user, &r.database, &r.schema, &r.create, &r.tables, &r.owner)
	return r, err
}

// explainUnreadable returns a RightsError if the user may not read the version, and the schema was created for another
// user and has no tables yet; otherwise err. If there are tables, the user may only need the right to use them.
func explainUnreadable(ctx context.Context, pool *pgxpool.Pool, err error) error {
	r, lookErr := rightsOf(ctx, pool)
	if lookErr != nil || r.tables {
		return err
	}
	return r.explain(err)
}

// explainRights returns a RightsError if it finds the missing right, otherwise err.
func explainRights(ctx context.Context, pool *pgxpool.Pool, err error) error {
	r, lookErr := rightsOf(ctx, pool)
	if lookErr != nil {
		return err
	}
	return r.explain(err)
}

// explain returns a RightsError with the missing right, or err. Only the owner of a table may change it, so rights on
// the schema do not help another user.
func (r rights) explain(err error) error {
	user := pgx.Identifier{r.user}.Sanitize()
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return err
	}
	switch {
	case !r.schema:
		return &RightsError{
			fmt.Sprintf("user %q may not create schema kagzi", r.user),
			fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s, or let the database's owner CREATE SCHEMA kagzi "+
				"AUTHORIZATION %[2]s", pgx.Identifier{r.database}.Sanitize(), user), pe,
		}
	case r.owner != "":
		return &RightsError{
			fmt.Sprintf("user %q may not change the tables of schema kagzi, which belong to %q", r.user, r.owner),
			fmt.Sprintf("call Migrate as %s, or GRANT %s TO %s", r.owner, pgx.Identifier{r.owner}.Sanitize(), user), pe,
		}
	case !r.create:
		return &RightsError{
			fmt.Sprintf("user %q may not create tables in schema kagzi", r.user),
			"GRANT USAGE, CREATE ON SCHEMA kagzi TO " + user, pe,
		}
	}
	return err
}
