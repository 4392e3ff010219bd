package kagzi

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A DistributedTable is one of Kagzi's tables after [Distribute].
type DistributedTable struct {
	// Table is its name, such as "kagzi.workflow_runs".
	Table string `json:"table"`
	// Column is the one whose value says on which node a row is; "" if every node has all rows.
	Column string `json:"column,omitempty"`
	// Changed is true if the call has distributed it, false if it was already.
	Changed bool `json:"changed,omitempty"`
	// RemovedBytes is the size of the rows that were left behind on this server, and which the call has removed.
	RemovedBytes int64 `json:"removed_bytes,omitempty"`
}

// String returns what there is to say of the table in one line.
func (t DistributedTable) String() string {
	text := t.Table + ": on every node"
	if t.Column != "" {
		text = t.Table + ": distributed by " + t.Column
	}
	if !t.Changed {
		text += ", as before"
	}
	if t.RemovedBytes > 0 {
		text += fmt.Sprintf("; removed %d kB of rows from this server, which are on the nodes", (t.RemovedBytes+1023)/1024)
	}
	return text
}

// Distribute spreads the rows of Kagzi's tables over the servers of a Citus cluster, by their namespace, and returns what it
// has done with each table. It is for those who have outgrown one Postgres; docs/distributed.md says when and how. Call it
// after [Migrate], as the same user, with a pool that leads to Citus's coordinator node without a transaction pooler in
// between. Stop the workers, and what starts runs, before the first call: while some tables are distributed and others are not,
// statements fail. Call it again after each Migrate that brings tables: it adds these, which no running program uses yet, so
// running programs go on.
//
// Citus copies rows that are there already, which takes as long as it takes and blocks writes meanwhile; the end of ctx
// takes back the table that is being copied. A table that is distributed stays as it is, so after an error call it again.
// Where the database has no Citus it returns an error that says so, and changes nothing.
func Distribute(ctx context.Context, pool *pgxpool.Pool) ([]DistributedTable, error) {
	if pool == nil {
		return nil, errors.New("kagzi: distribute: the pool is nil: make one with pgxpool.New")
	}
	done, err := migrations.Distribute(ctx, pool)
	tables := make([]DistributedTable, len(done))
	for i, d := range done {
		tables[i] = DistributedTable{Table: d.Table, Column: d.Column, Changed: d.Changed, RemovedBytes: d.Removed}
	}
	if err != nil {
		if len(done) == 0 { // a right on schema or tables may be missing
			err = store.ExplainRightsOn(ctx, pool, err)
		}
		return tables, failed(err, "distribute")
	}
	return tables, nil
}
