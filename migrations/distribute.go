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

// ErrNoCitus reports that the database does not have Citus, the extension that distributes tables.
var ErrNoCitus = errors.New("this database has no Citus: install it on every server, run CREATE EXTENSION citus, and " +
	"add the servers with citus_add_node")

// A Distributed is one of Kagzi's tables after [Distribute].
type Distributed struct {
	// Table is its name, such as "kagzi.workflow_runs".
	Table string `json:"table"`
	// Column is the distribution column, whose value decides on which node a row is; "" if every node has all rows.
	Column string `json:"column,omitempty"`
	// Changed is true if this call distributed the table, false if it was distributed before.
	Changed bool `json:"changed,omitempty"`
	// RemovedBytes is the size of the copies of rows that Citus left behind on this server, and that the call removed.
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
		text += fmt.Sprintf("; removed %d kB of rows from this server, which are on the nodes",
			(d.RemovedBytes+1023)/1024)
	}
	return text
}

// The tables are colocated with firstTable: all rows of one namespace are on one node.
const (
	distributionColumn = "namespace_id"
	firstTable         = "kagzi.workflow_runs"
)

const citusVersion = `SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'citus'`

// The statement leaves out this server's own shards, which are tables, too. Rows that a distributed table still has on
// this server are copies from before: new rows go to the nodes.
const tableStates = `
SELECT 'kagzi.' || c.relname,
	EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'namespace_id'),
	coalesce(p.partmethod = 'h', false), coalesce(p.partmethod = 'n' AND p.repmodel = 't', false),
	coalesce(pg_catalog.column_to_column_name(p.logicalrelid, p.partkey), ''), coalesce(p.colocationid, 0),
		pg_catalog.pg_relation_size(c.oid)
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_dist_partition p ON p.logicalrelid = c.oid
WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
	AND NOT EXISTS (
		SELECT FROM pg_catalog.pg_dist_shard s JOIN pg_catalog.pg_class t ON t.oid = s.logicalrelid
		WHERE c.relname = t.relname || '_' || s.shardid)
ORDER BY c.relname <> 'workflow_runs', c.relname = 'schema_migrations', c.relname`

const (
	distributeFirst = `SELECT pg_catalog.create_distributed_table($1::text::regclass, 'namespace_id',
		colocate_with => 'none')`
	distributeColocated = `SELECT pg_catalog.create_distributed_table($1::text::regclass, 'namespace_id',
		colocate_with => 'kagzi.workflow_runs')`
	createReferenceTable = `SELECT pg_catalog.create_reference_table($1::text::regclass)`
	removeLocal          = `SELECT pg_catalog.truncate_local_data_after_distributing_table($1::text::regclass)`
)

// A state says where the rows of a table are.
type state struct {
	name        string
	namespaced  bool   // the table has distributionColumn
	distributed bool   // by the hash of column
	replicated  bool   // a reference table: every node has all rows
	column      string // by which it is distributed
	colocation  int    // the ID of Citus's colocation group
	localBytes  int64  // of rows outside of shards on this server
}

// readStates reads the rows of tableStates, from pgx or from database/sql.
func readStates(rows interface {
	Next() bool
	Scan(...any) error
	Err() error
},
) (states []state, err error) {
	for rows.Next() {
		var s state
		if err := rows.Scan(&s.name, &s.namespaced, &s.distributed, &s.replicated, &s.column, &s.colocation,
			&s.localBytes); err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, rows.Err()
}

// A Layout says how a database's tables are distributed.
type Layout struct {
	Citus    bool     // the database has the extension; if not, the other fields are empty
	Done     []string // the tables that are as Distribute makes them
	Left     []string // the tables that are not
	LeftRows []string // the distributed tables of which this server still has copies of rows
}

// LayoutOf returns the layout of the database's tables.
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
		return l, fmt.Errorf("find Citus: %w", err)
	}
	rows, err := db.Query(ctx, tableStates)
	if err != nil {
		return l, fmt.Errorf("read how the tables are distributed: %w", err)
	}
	defer rows.Close()
	states, err := readStates(rows)
	l.Citus = true
	for _, s := range states {
		if s.namespaced && s.distributed && s.column == distributionColumn && s.colocation == states[0].colocation ||
			!s.namespaced && s.replicated {
			l.Done = append(l.Done, s.name)
		} else {
			l.Left = append(l.Left, s.name)
		}
		if s.distributed && s.localBytes > 0 {
			l.LeftRows = append(l.LeftRows, s.name)
		}
	}
	return l, err
}

// Distribute spreads the rows of Kagzi's tables over the servers of a Citus cluster, by their namespace, and copies the
// table of migrations to every node. It returns the result for each table, also before an error.
//
// Call it after kagzi.Migrate, as the same user, with a pool that leads to Citus's coordinator node without a
// transaction pooler in between. Some programs must stop before: see docs/distributed.md.
//
// Each table is a transaction, and Distribute leaves a table that is distributed, so call it again after an error.
//
// If the database has no Citus, Distribute returns [ErrNoCitus]; if its tables are not those of this program,
// [ErrMissing], [ErrOlder] or [ErrNewer]. It changes nothing then.
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

// A distributeError is err with one prefix, which names the operation.
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
		return nil, fmt.Errorf("find Citus: %w", err)
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

// explainOwner returns an error that names the owner of the tables if err says that the user may not read them;
// otherwise err.
func explainOwner(ctx context.Context, pool *pgxpool.Pool, err error) error {
	if code(err) != "42501" {
		return err
	}
	r, lookErr := rightsOf(ctx, pool)
	if lookErr != nil || r.owner == "" {
		return err
	}
	return fmt.Errorf("user %q may not change the tables of schema kagzi, which belong to %q: call Distribute as "+
		"%[2]s, or GRANT %s TO %s: %w",
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
			return done, fmt.Errorf("%s: this user may not: call Distribute as the owner of the tables, who has "+
				"called Migrate: %w", d.Table, err)
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
		return nil, fmt.Errorf("read how the tables are distributed: %w", err)
	}
	defer rows.Close()
	return readStates(rows)
}

// distribute distributes one table as far as that is not done yet.
func distribute(ctx context.Context, db *sql.DB, s state) (d Distributed, err error) {
	d.Table = s.name
	statement := distributeColocated
	switch {
	case s.distributed, s.replicated && !s.namespaced:
		statement = ""
	case !s.namespaced:
		statement = createReferenceTable
	case s.name == firstTable:
		statement = distributeFirst
	}
	if statement != "" {
		if _, err := db.ExecContext(ctx, statement, s.name); err != nil {
			return d, err
		}
		d.Changed = true
	}
	if !s.namespaced { // its few rows may stay on this server, too
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
	case s.column != distributionColumn:
		err = fmt.Errorf("it is distributed by %s and not by %s: call undistribute_table('%s'), and then "+
			"Distribute again", s.column, distributionColumn, s.name)
	case s.colocation != states[0].colocation: // states[0] is firstTable
		err = fmt.Errorf("it is not colocated with %s: call update_distributed_table_colocation('%s', colocate_with "+
			"=> '%s'), and then Distribute again", firstTable, s.name, firstTable)
	case s.localBytes > 0:
		d.RemovedBytes = s.localBytes
		_, err = db.ExecContext(ctx, removeLocal, s.name)
	}
	return d, err
}
