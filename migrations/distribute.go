package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNoCitus reports that the database has no extension that distributes tables.
var ErrNoCitus = errors.New("this database has no Citus: install it on every server, run CREATE EXTENSION citus, and add the servers with citus_add_node")

// A Distributed is one of Kagzi's tables after [Distribute].
type Distributed struct {
	// Table is its name, such as "kagzi.workflow_runs".
	Table string `json:"table"`
	// Column is the one whose value says on which node a row is; "" if every node has all rows.
	Column string `json:"column,omitempty"`
	// Changed is true if the call has distributed it, false if it was already.
	Changed bool `json:"changed,omitempty"`
	// RemovedBytes is the size of the rows that were left behind on this server, and which the call has removed.
	RemovedBytes int64 `json:"removed_bytes,omitempty"`
}

// String returns a line about the table.
func (d Distributed) String() string {
	text := d.Table + ": on every node"
	if d.Column != "" {
		text = d.Table + ": distributed by " + d.Column
	}
	if !d.Changed {
		text += ", as before"
	}
	if d.RemovedBytes > 0 {
		text += fmt.Sprintf("; removed %d kB of rows from this server, which are on the nodes", (d.RemovedBytes+1023)/1024)
	}
	return text
}

// first is the table that the others lie beside: the rows of one namespace are on one node.
const (
	column = "namespace_id"
	first  = "kagzi.workflow_runs"
)

const citusVersion = `SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'citus'`

// The shards that this server has itself are tables, too. What is left on it of a distributed table is what was there
// before: new rows go to the nodes.
const tableStates = `
SELECT 'kagzi.' || c.relname,
	EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'namespace_id'),
	coalesce(p.partmethod = 'h', false), coalesce(p.partmethod = 'n' AND p.repmodel = 't', false),
	coalesce(pg_catalog.column_to_column_name(p.logicalrelid, p.partkey), ''), coalesce(p.colocationid, 0), pg_catalog.pg_relation_size(c.oid)
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_dist_partition p ON p.logicalrelid = c.oid
WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
	AND NOT EXISTS (
		SELECT FROM pg_catalog.pg_dist_shard s JOIN pg_catalog.pg_class t ON t.oid = s.logicalrelid
		WHERE c.relname = t.relname || '_' || s.shardid)
ORDER BY c.relname <> 'workflow_runs', c.relname = 'schema_migrations', c.relname`

const (
	distributeFirst  = `SELECT pg_catalog.create_distributed_table($1::text::regclass, 'namespace_id', colocate_with => 'none')`
	distributeBeside = `SELECT pg_catalog.create_distributed_table($1::text::regclass, 'namespace_id', colocate_with => 'kagzi.workflow_runs')`
	copyToAll        = `SELECT pg_catalog.create_reference_table($1::text::regclass)`
	removeLocal      = `SELECT pg_catalog.truncate_local_data_after_distributing_table($1::text::regclass)`
)

// A state is how a table lies.
type state struct {
	name       string
	namespaced bool // it has the column to distribute it by
	spread     bool // by the hash of column
	everywhere bool // each node has all of it
	column     string
	colocation int
	local      int64 // bytes on this server
}

// readStates reads the rows of tableStates, of either driver.
func readStates(rows interface {
	Next() bool
	Scan(...any) error
	Err() error
},
) (states []state, err error) {
	for rows.Next() {
		var s state
		if err := rows.Scan(&s.name, &s.namespaced, &s.spread, &s.everywhere, &s.column, &s.colocation, &s.local); err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, rows.Err()
}

// A Layout says how the tables lie in a database.
type Layout struct {
	Citus    bool     // its extension is there; the rest is about that
	Done     []string // the tables that are as Distribute makes them
	Left     []string // those that are not
	LeftRows []string // the distributed tables of which rows were left behind on this server
}

// LayoutOf looks how the tables lie.
func LayoutOf(ctx context.Context, db interface {
	Querier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) (l Layout, err error) {
	var version string
	switch err := db.QueryRow(ctx, citusVersion).Scan(&version); {
	case errors.Is(err, pgx.ErrNoRows):
		return l, nil
	case err != nil:
		return l, fmt.Errorf("look for Citus: %w", err)
	}
	rows, err := db.Query(ctx, tableStates)
	if err != nil {
		return l, fmt.Errorf("look how the tables lie: %w", err)
	}
	defer rows.Close()
	states, err := readStates(rows)
	l.Citus = true
	for _, s := range states {
		if s.namespaced && s.spread && s.column == column && s.colocation == states[0].colocation || !s.namespaced && s.everywhere {
			l.Done = append(l.Done, s.name)
		} else {
			l.Left = append(l.Left, s.name)
		}
		if s.spread && s.local > 0 {
			l.LeftRows = append(l.LeftRows, s.name)
		}
	}
	return l, err
}

// Distribute spreads the rows of Kagzi's tables over the servers of a Citus cluster, by their namespace, copies the table of
// migrations to every node, and returns what it has done with each table, also with those before an error. It is for those who
// have outgrown one Postgres; docs/distributed.md says when and how. Call it after kagzi.Migrate, as the same user, with a pool
// that leads to Citus's coordinator node without a transaction pooler in between. Stop the workers, and what starts runs, before
// the first call: while some tables are distributed and others are not, statements fail. Call it again after each Migrate that
// brings tables: it adds these, which no running program uses yet, so running programs go on.
//
// Citus copies rows that are there already, which takes as long as it takes and blocks writes meanwhile; the end of ctx
// takes back the table that is being copied. A table that is distributed stays as it is, and each table is a transaction, so
// after an error call Distribute again. It works on a connection of its own, and no Migrate runs meanwhile.
//
// Where the database has no Citus it returns [ErrNoCitus], where it has no current tables [ErrMissing], [ErrOlder] or
// [ErrNewer], and changes nothing. If a right is missing the error says what to do: only the owner of the tables may
// distribute them.
func Distribute(ctx context.Context, pool *pgxpool.Pool) ([]Distributed, error) {
	if pool == nil {
		return nil, errors.New("kagzi: distribute: the pool is nil: make one with pgxpool.New")
	}
	done, err := distributeTables(ctx, pool)
	if err != nil {
		return done, &distributeError{err}
	}
	return done, nil
}

// A distributeError is err with what was tried, and one prefix.
type distributeError struct{ err error }

func (e *distributeError) Error() string {
	return "kagzi: distribute: " + strings.TrimPrefix(e.err.Error(), "kagzi: ")
}

func (e *distributeError) Unwrap() error { return e.err }

func distributeTables(ctx context.Context, pool *pgxpool.Pool) (done []Distributed, err error) {
	var version string
	switch err := pool.QueryRow(ctx, citusVersion).Scan(&version); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNoCitus
	case err != nil:
		return nil, fmt.Errorf("look for Citus: %w", err)
	}
	if _, err := Check(ctx, pool); err != nil {
		return nil, explainOwner(ctx, pool, err)
	}
	lockErr := migrate(ctx, pool, func(ctx context.Context, db *sql.DB) error {
		done, err = distributeAll(ctx, db)
		return nil
	})
	return done, cmp.Or(err, lockErr)
}

// explainOwner says who may distribute the tables, if err is that the user may not look at them.
func explainOwner(ctx context.Context, pool *pgxpool.Pool, err error) error {
	if code(err) != "42501" {
		return err
	}
	r, lookErr := rightsOf(ctx, pool)
	if lookErr != nil || r.owner == "" {
		return err
	}
	return fmt.Errorf("user %q may not change the tables of schema kagzi, which belong to %q: call Distribute as %[2]s, or GRANT %s TO %s: %w",
		r.user, r.owner, pgx.Identifier{r.owner}.Sanitize(), pgx.Identifier{r.user}.Sanitize(), err)
}

func distributeAll(ctx context.Context, db *sql.DB) (done []Distributed, err error) {
	states, err := statesOf(ctx, db)
	if err != nil {
		return nil, err
	}
	for i := range states {
		d, err := distribute(ctx, db, states[i])
		var pe *pgconn.PgError
		switch {
		case errors.As(err, &pe) && pe.Code == "42501":
			return done, fmt.Errorf("%s: this user may not: call Distribute as the owner of the tables, who has called Migrate: %w", d.Table, err)
		case err != nil:
			return done, fmt.Errorf("%s: %w", d.Table, err)
		}
		done = append(done, d)
	}
	return done, nil
}

func statesOf(ctx context.Context, db *sql.DB) ([]state, error) {
	rows, err := db.QueryContext(ctx, tableStates)
	if err != nil {
		return nil, fmt.Errorf("look how the tables lie: %w", err)
	}
	defer rows.Close()
	return readStates(rows)
}

// distribute does what one table lacks.
func distribute(ctx context.Context, db *sql.DB, s state) (d Distributed, err error) {
	d.Table = s.name
	statement := distributeBeside
	switch {
	case s.spread, s.everywhere && !s.namespaced:
		statement = ""
	case !s.namespaced:
		statement = copyToAll
	case s.name == first:
		statement = distributeFirst
	}
	if statement != "" {
		if _, err := db.ExecContext(ctx, statement, s.name); err != nil {
			return d, err
		}
		d.Changed = true
	}
	if !s.namespaced { // its few rows may stay here as well
		return d, nil
	}
	states, err := statesOf(ctx, db)
	if err != nil {
		return d, err
	}
	for _, now := range states {
		if now.name == s.name {
			s = now
		}
	}
	d.Column = s.column
	switch {
	case s.column != column:
		err = fmt.Errorf("it is distributed by %s and not by %s: call undistribute_table('%s'), and then Distribute again", s.column, column, s.name)
	case s.colocation != states[0].colocation: // that of the first
		err = fmt.Errorf("it is not colocated with %s: call update_distributed_table_colocation('%s', colocate_with => '%s'), and then Distribute again", first, s.name, first)
	case s.local > 0:
		d.RemovedBytes = s.local
		_, err = db.ExecContext(ctx, removeLocal, s.name)
	}
	return d, err
}
