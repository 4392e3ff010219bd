package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

const (
	manyRows   = 20_000   // fewer rows, dead or not analyzed, do not matter
	largeTable = 64 << 20 // bytes: the bloat of smaller tables does not matter
)

// autovacuum checks that autovacuum is on, for the server and for each table.
func (e *examination) autovacuum(ctx context.Context) error {
	s, err := inspect.Settings(ctx, e.db, "autovacuum", "track_counts")
	if err != nil {
		return err
	}
	for _, name := range []string{"autovacuum", "track_counts"} {
		if s[name].Value == "off" {
			e.add("autovacuum", Problem, fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();", name),
				"%s is off: dead rows stay, and the queue is read slower each day.", name)
		}
	}
	if !e.migrated {
		e.addFine("autovacuum", "It is on.")
		return nil
	}
	tables, err := inspect.Tables(ctx, e.db)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if !t.Autovacuum {
			e.add("autovacuum", Problem, fmt.Sprintf("ALTER TABLE kagzi.%s RESET (autovacuum_enabled);", t.Name),
				"It is switched off for kagzi.%s.", t.Name)
		}
	}
	e.addFine("autovacuum", "It is on, for each of Kagzi's tables.")
	return nil
}

// tables checks dead rows, statistics and bloat.
func (e *examination) tables(ctx context.Context) error {
	if !e.migrated {
		e.addNoTables("tables")
		return nil
	}
	if e.distributed {
		return e.tablesOfNodes(ctx)
	}
	tables, err := inspect.Tables(ctx, e.db)
	if err != nil {
		return err
	}
	live, dead, bytes := e.addTables("", tables)
	e.addFine("tables", "%d live and %d dead rows in %d MiB.", live, dead, bytes>>20)
	return nil
}

// addTables adds an advice for each table that needs VACUUM or ANALYZE, and returns the sums of all. The tables are
// those of a node of Citus, or of this server if node is "".
func (e *examination) addTables(node string, tables []inspect.Table) (live, dead, bytes int64) {
	on := ""
	if node != "" {
		on = " on " + node
	}
	for _, t := range tables {
		live, dead, bytes = live+t.Live, dead+t.Dead, bytes+t.Bytes
		vacuumed := "never vacuumed"
		if t.Vacuums > 0 {
			vacuumed = fmt.Sprintf("vacuumed %s ago", duration.About(t.SinceVacuum))
		}
		switch {
		case t.Dead > manyRows && t.Dead*5 > t.Live:
			e.add("tables", Warning, fmt.Sprintf("VACUUM (ANALYZE, VERBOSE) kagzi.%s; if it reports dead rows that "+
				"it cannot remove yet, see \"snapshots\".", t.Name),
				"kagzi.%s%s has %d dead rows beside %d live ones; %s.", t.Name, on, t.Dead, t.Live, vacuumed)
		case t.Live > manyRows && !t.Analyzed:
			e.add("tables", Warning, fmt.Sprintf("ANALYZE kagzi.%s;", t.Name), "kagzi.%s%s has %d rows and was never "+
				"analyzed.", t.Name, on, t.Live)
		}
		if t.Bytes > largeTable && t.ExpectedBytes > 0 && t.Bytes > 4*t.ExpectedBytes {
			e.add("tables", Warning, fmt.Sprintf("VACUUM (FULL, ANALYZE) kagzi.%s; in a quiet hour, as it locks the "+
				"table, or pg_repack.", t.Name),
				"kagzi.%s%s takes %d MiB, %d times as much as its %d rows need.", t.Name, on, t.Bytes>>20,
				t.Bytes/t.ExpectedBytes, t.Live)
		}
	}
	return live, dead, bytes
}

// tablesOfNodes is tables for tables that Citus has distributed.
func (e *examination) tablesOfNodes(ctx context.Context) error {
	nodes, err := inspect.Nodes(ctx, e.db)
	if err != nil {
		if ctx.Err() != nil || e.db.Conn().IsClosed() {
			return err
		}
		e.add("tables", Unseen, "", "They are distributed, and the nodes cannot be asked: %s.", store.Reason(err))
		return nil
	}
	var live, dead, bytes int64
	answered := 0
	for _, n := range nodes {
		if n.Error != "" {
			e.add("tables", Unseen, "", "They are distributed, and %s does not answer for its part: %s.",
				n.Name, n.Error)
			continue
		}
		l, x, b := e.addTables(n.Name, n.Tables)
		live, dead, bytes, answered = live+l, dead+x, bytes+b, answered+1
	}
	if answered > 0 {
		e.addFine("tables", "%d live and %d dead rows in %d MiB on %d nodes.", live, dead, bytes>>20, answered)
	}
	return nil
}

// distribution checks whether Citus has distributed the tables.
func (e *examination) distribution(ctx context.Context) error {
	if !e.migrated {
		e.addNoTables("distribution")
		return nil
	}
	l, err := migrations.LayoutOf(ctx, e.db)
	if err != nil {
		return err
	}
	e.distributed = len(l.Done) > 0
	if e.distributed && len(l.Left) > 0 {
		e.add("distribution", Problem, "Stop the workers, and call migrations.Distribute.",
			"Some tables are distributed and others are not, so statements fail: %s.", text.List(l.Left, namedAtMost))
	}
	if len(l.LeftRows) > 0 {
		e.add("distribution", Warning, "Call migrations.Distribute.", "Rows that were copied to the nodes were left "+
			"behind on this server: %s.", text.List(l.LeftRows, namedAtMost))
	}
	switch {
	case e.distributed:
		e.add("distribution", Unseen, "Examine each node by itself.", "The findings about sessions, snapshots, "+
			"settings, durability, clock and indexes are of this server alone, and not of the nodes that have "+
			"the rows.")
		e.addFine("distribution", "The tables are distributed by namespace.")
	case l.Citus:
		e.addFine("distribution", "There is Citus, but Kagzi's tables are not distributed.")
	default:
		e.addFine("distribution", "There is no Citus: all rows are on this server.")
	}
	return nil
}

// indexes checks that all indexes of the schema exist and are valid, and that there are no others.
func (e *examination) indexes(ctx context.Context) error {
	if !e.migrated {
		e.addNoTables("indexes")
		return nil
	}
	states, err := inspect.IndexStates(ctx, e.db)
	if err != nil {
		return err
	}
	for _, name := range inspect.Indexes {
		switch valid, ok := states[name]; {
		case !ok && e.newer: // a later migration may have replaced it
		case !ok:
			e.add("indexes", Problem, "Create it again as the migrations of this version of Kagzi do, with CREATE "+
				"INDEX CONCURRENTLY.", "kagzi.%s is missing.", name)
		case !valid:
			e.add("indexes", Problem, fmt.Sprintf("REINDEX INDEX CONCURRENTLY kagzi.%s;", name),
				"kagzi.%s is not valid, so no statement uses it.", name)
		}
		delete(states, name)
	}
	var others []string
	for name := range states {
		others = append(others, "kagzi."+name)
	}
	if len(others) > 0 && !e.newer { // a newer program knows whether they are Kagzi's
		slices.Sort(others)
		e.add("indexes", Warning, "Drop those that nobody needs: each makes every claim and every end of a run slower.",
			"There are indexes that are not Kagzi's: %s.", text.List(others, namedAtMost))
	}
	if e.newer {
		e.addFine("indexes", "Those that this program knows are valid. A newer program has migrated the database: "+
			"examine it with that one, which knows all indexes.")
	}
	e.addFine("indexes", "All %d are there and valid.", len(inspect.Indexes))
	return nil
}
