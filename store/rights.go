package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// MissingRights reports the rights on schema kagzi that this user lacks.
type MissingRights struct {
	User   string
	Schema bool   // USAGE on the schema is missing
	Tables string // the missing rights on tables, such as "INSERT on kagzi.workers"; "" if none is missing
	// "kagzi_worker" or "kagzi_client" if it has rights in this database and the user is no member of it; otherwise ""
	Role   string
	Worker bool  // the rights of a worker are missing, and not only those of a client
	Err    error // the server's error; nil if it has not refused anything yet
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

// Grants returns the statements that grant them: one that grants a role, if there is a role that has the rights.
func (e *MissingRights) Grants() string {
	user := pgx.Identifier{e.User}.Sanitize()
	if e.Role != "" {
		return "GRANT " + pgx.Identifier{e.Role}.Sanitize() + " TO " + user
	}
	var grants []string
	if e.Schema {
		grants = append(grants, "GRANT USAGE ON SCHEMA kagzi TO "+user)
	}
	if e.Tables != "" {
		tables := "SELECT, INSERT, UPDATE, DELETE"
		if e.Worker {
			tables += ", TRUNCATE"
		}
		grants = append(grants, "GRANT "+tables+" ON ALL TABLES IN SCHEMA kagzi TO "+user,
			"GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO "+user)
	}
	return strings.Join(grants, "; ")
}

func (e *MissingRights) Error() string {
	return fmt.Sprintf("user %q lacks %s: %s", e.User, e.What(), e.Grants())
}

// Rights are what a database user may do with Kagzi's tables. Each includes those before it. migrations.Roles makes a
// role of the database for each but the first.
type Rights int

const (
	NoRights     Rights = iota // to read only some of the tables, or to write to only some
	ViewerRights               // to read
	ClientRights               // to start and change runs, to publish, and to set limits
	WorkerRights               // to execute runs, and to do the housekeeping
)

// tableRights has the rights that a worker and a client need on each table: S is SELECT, I INSERT, U UPDATE, u UPDATE
// of some columns, D DELETE, and T TRUNCATE. A statement that locks rows needs UPDATE. A viewer needs every SELECT,
// also on the sequence.
const tableRights = `(VALUES
	('workflow_runs',     'SIUD', 'SIUD'),
	('step_runs',         'SIUD', 'SIUD'),
	('signals',           'SIUD', 'SID'),
	('run_events',        'SIUD', 'SID'),
	('audit_log',         'SIUD', 'SI'),
	('start_windows',     'SIUD', 'SIU'),
	('start_items',       'SID',  'SID'),
	('schedules',         'SIUD', 'SIUD'),
	('events',            'SIT',  'SI'),
	('events_0',          'T',    ''),
	('events_1',          'T',    ''),
	('events_2',          'T',    ''),
	('events_3',          'T',    ''),
	('events_4',          'T',    ''),
	('events_5',          'T',    ''),
	('events_6',          'T',    ''),
	('events_7',          'T',    ''),
	('event_parts',       'SIUD', 'S'),
	('event_keepers',     'SIU',  'S'),
	('event_waits',       'SIUD', 'SD'),
	('awaited_events',    'SID',  'SI'),
	('consumers',         'SIUD', 'SUD'),
	('subscriptions',     'SIUD', 'SUD'),
	('queues',            'SIUD', 'SIU'),
	('run_keys',          'SIUD', 'SIU'),
	('key_changes',       'SID',  'SI'),
	('limits',            'SIUD', 'SIUD'),
	('limit_places',      'SIUD', 'SIUD'),
	('pauses',            'SIUD', 'SIUD'),
	('workers',           'SIUD', 'Su'),
	('worker_events',     'SID',  'SI'),
	('schema_migrations', 'S',    'S')
) AS n (relation, worker, client)`

// The statement returns the rights that the current user lacks as a worker, and as a client: a verb and a relation
// each, in the order of verbs. A user who has no right on the schema may read the catalog, too. The databases of a
// server share their roles, so a role helps only if it has rights in this one, and if the user is not a member already.
const missingRights = `
WITH lacking AS (
	SELECT who.worker, n.relation, p.name, p.place
	FROM ` + tableRights + `
	JOIN pg_catalog.pg_class c ON c.relnamespace = to_regnamespace('kagzi') AND c.relname = n.relation
	CROSS JOIN (VALUES (true), (false)) AS who (worker)
	CROSS JOIN (VALUES ('S', 'SELECT', 1), ('I', 'INSERT', 2), ('U', 'UPDATE', 3), ('u', 'UPDATE', 3),
		('D', 'DELETE', 4), ('T', 'TRUNCATE', 5)) AS p (letter, name, place)
	WHERE strpos(CASE WHEN who.worker THEN n.worker ELSE n.client END, p.letter) > 0
		AND NOT CASE WHEN p.letter = 'u' THEN has_any_column_privilege(c.oid, p.name)
			ELSE has_table_privilege(c.oid, p.name) END
	UNION ALL
	SELECT who.worker, c.relname::text, p.name, p.place
	FROM pg_catalog.pg_class c
	CROSS JOIN (VALUES (true), (false)) AS who (worker)
	CROSS JOIN (VALUES ('SELECT', 1), ('USAGE', 2)) AS p (name, place)
	WHERE c.relnamespace = to_regnamespace('kagzi') AND c.relname = 'event_positions' AND c.relkind = 'S'
		AND NOT has_sequence_privilege(c.oid, p.name)
)
SELECT current_user::text, NOT has_schema_privilege(k.oid, 'USAGE'),
	ARRAY(SELECT l.name || ' ' || l.relation FROM lacking l WHERE l.worker ORDER BY l.place),
	ARRAY(SELECT l.name || ' ' || l.relation FROM lacking l WHERE NOT l.worker ORDER BY l.place),
	NOT EXISTS (SELECT FROM lacking WHERE name = 'SELECT'),
	EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = k.oid AND c.relkind IN ('r', 'p')
		AND (has_any_column_privilege(c.oid, 'INSERT, UPDATE') OR has_table_privilege(c.oid, 'DELETE, TRUNCATE'))),
	CASE WHEN NOT pg_has_role(to_regrole('kagzi_worker'), 'MEMBER') AND has_schema_privilege(to_regrole('kagzi_worker'),
		k.oid, 'USAGE') THEN 'kagzi_worker' ELSE '' END,
	CASE WHEN NOT pg_has_role(to_regrole('kagzi_client'), 'MEMBER') AND has_schema_privilege(to_regrole('kagzi_client'),
		k.oid, 'USAGE') THEN 'kagzi_client' ELSE '' END,
	pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool
FROM pg_catalog.pg_namespace k WHERE k.nspname = 'kagzi'`

// rights is the result of missingRights.
type rights struct {
	user, worker, client   string // the user, and what it lacks as a worker and as a client
	noSchema               bool   // it lacks USAGE on the schema
	reads, writes          bool   // it may read every table; it may write to some table
	workerRole, clientRole string // the roles that would help the user; "" if they would not
	readOnly               bool   // the database takes no writes
}

func queryRights(ctx context.Context, db pg.DB) (r rights, err error) {
	var worker, client []string
	err = pg.Do(ctx, func(ctx context.Context) error {
		return db.QueryRow(ctx, missingRights).Scan(&r.user, &r.noSchema, &worker, &client, &r.reads, &r.writes,
			&r.workerRole, &r.clientRole, &r.readOnly)
	})
	r.worker, r.client = lacks(worker), lacks(client)
	return r, err
}

// fewTables is the most tables that an error names. If rights are missing on more, it says "the tables of schema
// kagzi".
const fewTables = 3

// lacks puts into words which rights missingRights has found. Tables that lack the same rights are named together.
func lacks(rights []string) string {
	apart := []string{"event_positions", "schema_migrations"} // they have statements of their own that grant them
	verbs := map[string][]string{}                            // of each relation
	var onTables []string
	for _, r := range rights {
		verb, relation, _ := strings.Cut(r, " ")
		verbs[relation] = append(verbs[relation], verb)
		if !slices.Contains(apart, relation) && !slices.Contains(onTables, verb) {
			onTables = append(onTables, verb)
		}
	}
	named := map[string][]string{} // the tables that lack the same verbs
	var order []string
	tables := 0
	for _, relation := range slices.Sorted(maps.Keys(verbs)) {
		if slices.Contains(apart, relation) {
			continue
		}
		tables++
		same := strings.Join(verbs[relation], ", ")
		if named[same] == nil {
			order = append(order, same)
		}
		named[same] = append(named[same], "kagzi."+relation)
	}
	var parts []string
	if tables > fewTables {
		parts = append(parts, strings.Join(onTables, ", ")+" on the tables of schema kagzi")
	} else {
		for _, same := range order {
			parts = append(parts, same+" on "+strings.Join(named[same], ", "))
		}
	}
	for _, relation := range apart {
		if verbs[relation] != nil {
			parts = append(parts, strings.Join(verbs[relation], ", ")+" on kagzi."+relation)
		}
	}
	return strings.Join(parts, " and ")
}

// lack returns the MissingRights of a user who wants to be a worker or a client; nil if it may.
func (r rights) lack(as Rights, cause error) error {
	e := &MissingRights{User: r.user, Schema: r.noSchema, Tables: r.client, Role: r.clientRole, Err: cause}
	if as == WorkerRights {
		e.Tables, e.Role, e.Worker = r.worker, r.workerRole, true
	}
	if e.What() == "" {
		return nil
	}
	return e
}

// CheckRights returns an error that says what to do if the database is read-only, and MissingRights if this user lacks
// a right of a worker.
func (s *Store) CheckRights(ctx context.Context) error {
	_, err := s.CheckRightsOn(ctx, s.pool, WorkerRights)
	return err
}

// CheckRightsOn is CheckRights on the caller's connection, for a program that needs the rights of a client or of a
// worker. It returns the rights that the user has. A user who may read every table and write to none is a viewer on
// purpose: that is no error unless the program needs the rights of a worker.
func (s *Store) CheckRightsOn(ctx context.Context, db pg.DB, as Rights) (Rights, error) {
	r, err := queryRights(ctx, db)
	switch {
	case err != nil:
		return NoRights, pg.Wrap("check rights", err)
	case r.readOnly:
		return NoRights, errors.New("the database is read-only, a standby for one: connect to the primary " +
			"(target_session_attrs=read-write)")
	case r.lack(WorkerRights, nil) == nil:
		return WorkerRights, nil
	case as == WorkerRights:
		return NoRights, r.lack(WorkerRights, nil)
	case r.lack(ClientRights, nil) == nil:
		return ClientRights, nil
	case r.reads && !r.writes && !r.noSchema:
		return ViewerRights, nil
	}
	return NoRights, r.lack(ClientRights, nil)
}

// ExplainRights returns MissingRights if err says that a right is missing, otherwise err.
func (s *Store) ExplainRights(ctx context.Context, err error) error {
	return ExplainRightsOn(ctx, s.pool, err)
}

// ExplainRightsOn is ExplainRights on the caller's connection. It names the rights that a client needs. If the user has
// these, it names those of a worker.
func ExplainRightsOn(ctx context.Context, db pg.DB, err error) error {
	if pg.Code(err) != "42501" {
		return err
	}
	r, ask := queryRights(ctx, db)
	if ask != nil {
		return err
	}
	return cmp.Or(r.lack(ClientRights, err), r.lack(WorkerRights, err), err)
}
