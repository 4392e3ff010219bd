package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MissingRights reports the rights on schema kagzi that this user lacks.
type MissingRights struct {
	User   string
	Schema bool   // USAGE on the schema is missing
	Tables string // the missing rights on tables, such as "INSERT on kagzi.workers"; "" if none is missing
	Err    error  // the server's error
}

// Unwrap returns the server's error.
func (e *MissingRights) Unwrap() error { return e.Err }

// What names the missing rights.
func (e *MissingRights) What() string {
	var what []string
	if e.Schema {
		what = append(what, "USAGE on schema kagzi")
	}
	if e.Tables != "" {
		what = append(what, e.Tables)
	}
	return strings.Join(what, " and ")
}

// Grants returns the statements that grant them.
func (e *MissingRights) Grants() string {
	user := pgx.Identifier{e.User}.Sanitize()
	var grants []string
	if e.Schema {
		grants = append(grants, "GRANT USAGE ON SCHEMA kagzi TO "+user)
	}
	if e.Tables != "" {
		grants = append(grants, "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi TO "+user, "GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO "+user)
	}
	return strings.Join(grants, "; ")
}

func (e *MissingRights) Error() string {
	return fmt.Sprintf("user %q lacks %s: %s", e.User, e.What(), e.Grants())
}

// The tables of the schema but that of the migrations.
const ourTables = `'workflow_runs', 'step_runs', 'signals', 'run_events', 'audit_log', 'schedules', 'start_windows', 'start_items', 'workers', 'worker_events', 'queues', 'run_keys',
	'key_changes', 'limits', 'limit_places', 'pauses', 'events', 'event_parts', 'event_keepers', 'events_0', 'events_1', 'events_2', 'events_3', 'events_4', 'events_5', 'events_6',
	'events_7', 'consumers', 'subscriptions'`

const checkRights = `
SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool,
	(SELECT bool_and(has_table_privilege('kagzi.' || t, p))
	FROM unnest(ARRAY[` + ourTables + `]) AS t
	CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS p) AND has_sequence_privilege('kagzi.event_positions', 'SELECT')
	AND has_sequence_privilege('kagzi.event_positions', 'USAGE')`

// CheckRights returns an error that says what to do if the database is read-only, and MissingRights if this user lacks a
// right.
func (s *Store) CheckRights(ctx context.Context) error { return s.CheckRightsOn(ctx, s.pool) }

// CheckRightsOn is CheckRights on the caller's connection.
func (s *Store) CheckRightsOn(ctx context.Context, db DB) error {
	var readOnly, may bool
	err := do(ctx, func(ctx context.Context) error {
		return db.QueryRow(ctx, checkRights).Scan(&readOnly, &may)
	})
	switch {
	case code(err) == "42501":
		return ExplainRightsOn(ctx, db, wrap("check rights", err))
	case err != nil:
		return wrap("check rights", err)
	case readOnly:
		return errors.New("the database is read-only, a standby for one: connect to the primary (target_session_attrs=read-write)")
	case !may:
		return queryRights(ctx, db, errors.New("check rights: some are missing on the tables of schema kagzi"))
	}
	return nil
}

// ExplainRights returns MissingRights if err says that a right is missing, otherwise err.
func (s *Store) ExplainRights(ctx context.Context, err error) error {
	return ExplainRightsOn(ctx, s.pool, err)
}

// ExplainRightsOn is ExplainRights on the caller's connection.
func ExplainRightsOn(ctx context.Context, db DB, err error) error {
	if code(err) != "42501" {
		return err
	}
	return queryRights(ctx, db, err)
}

// A user who has no right on the schema may read the catalog, too. The statement names tables that lack the same rights
// together.
const missingRights = `
SELECT current_user::text, NOT has_schema_privilege(n.oid, 'USAGE'), coalesce((
	SELECT string_agg(g.lacks || ' on ' || g.tables, ' and ' ORDER BY g.n DESC, g.tables)
	FROM (
		SELECT t.lacks, count(*) AS n, CASE WHEN count(*) = cardinality(ARRAY[` + ourTables + `]) THEN 'the tables of schema kagzi' ELSE string_agg('kagzi.' || t.relname, ', ' ORDER BY t.relname) END AS tables
		FROM (
			SELECT c.relname, string_agg(p.name, ', ' ORDER BY p.place) AS lacks
			FROM pg_class c
			CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) WITH ORDINALITY AS p (name, place)
			WHERE c.relnamespace = n.oid AND NOT has_table_privilege(c.oid, p.name)
				AND (c.relname IN (` + ourTables + `)
					OR c.relname = 'schema_migrations' AND p.name = 'SELECT')
			GROUP BY c.relname
			UNION ALL
			SELECT c.relname, string_agg(p.name, ', ' ORDER BY p.name)
			FROM pg_class c
			CROSS JOIN unnest(ARRAY['SELECT', 'USAGE']) AS p (name)
			WHERE c.relnamespace = n.oid AND c.relkind = 'S' AND c.relname = 'event_positions' AND NOT has_sequence_privilege(c.oid, p.name)
			GROUP BY c.relname
		) t
		GROUP BY t.lacks
	) g), '')
FROM pg_namespace n WHERE n.nspname = 'kagzi'`

// queryRights returns MissingRights if it finds missing ones, otherwise err.
func queryRights(ctx context.Context, db DB, err error) error {
	var e MissingRights
	ask := do(ctx, func(ctx context.Context) error {
		return db.QueryRow(ctx, missingRights).Scan(&e.User, &e.Schema, &e.Tables)
	})
	if ask != nil || e.What() == "" {
		return err
	}
	e.Err = err
	return &e
}
