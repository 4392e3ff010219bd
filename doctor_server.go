package kagzi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

func (d *doctor) durability(ctx context.Context) error {
	s, err := store.Settings(ctx, d.db, "fsync", "full_page_writes", "synchronous_commit")
	if err != nil {
		return err
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if s[name].Value == "off" {
			d.say("durability", SeverityProblem, fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();", name),
				"%s is off: a crash of the server's machine may destroy the database.", name)
		}
	}
	if s["synchronous_commit"].Value == "off" {
		d.say("durability", SeverityWarning, "ALTER ROLE "+quoted(d.server.User)+" SET synchronous_commit = on;",
			"synchronous_commit is off: a crash of the server loses what was acknowledged within the last moments, so steps run again and starts are lost.")
	}
	d.fine("durability", "fsync and full_page_writes are on, synchronous_commit is %s.", s["synchronous_commit"].Value)
	return nil
}

// hurtful are the settings of sessions that were meant for others, and from when on they do no harm.
var hurtful = []struct {
	name  string
	least time.Duration // zero: any does harm
	harm  string
}{
	{"statement_timeout", 10 * time.Second, "it ends Start, List and what is done in StepTx; claims and records are exempt"},
	{"transaction_timeout", 30 * time.Second, "it ends the transactions of StepTx, of claims and of records"},
	{"lock_timeout", time.Second, "it ends Start, Cancel and Signal where they wait for a run that is being written"},
	{"idle_in_transaction_session_timeout", 10 * time.Second, "it ends a StepTx whose function does something else for that long"},
	{"idle_session_timeout", 0, "it ends the connection that listens, which sends nothing, again and again"},
}

func (d *doctor) settings(ctx context.Context) error {
	names := []string{"default_transaction_isolation"}
	for _, h := range hurtful {
		names = append(names, h.name)
	}
	s, err := store.Settings(ctx, d.db, names...)
	if err != nil {
		return err
	}
	role := quoted(d.server.User)
	for _, h := range hurtful {
		if v := s[h.name].Time; v > 0 && (h.least == 0 || v < h.least) {
			d.say("settings", SeverityWarning, fmt.Sprintf("ALTER ROLE %s SET %s = 0;", role, h.name), "%s is %s: %s.", h.name, duration.Format(v), h.harm)
		}
	}
	if v := s["default_transaction_isolation"].Value; v != "read committed" {
		d.say("settings", SeverityWarning, fmt.Sprintf("ALTER ROLE %s SET default_transaction_isolation = 'read committed';", role),
			"default_transaction_isolation is %s: statements that meet each other fail and are repeated, where they would wait for a moment.", v)
	}
	d.fine("settings", "No timeout of this user's sessions does harm.")
	return nil
}

// quoted is name as SQL has it.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// beside is how many connections a process with one worker has that are not the pool's: its heartbeat's and the listener's.
const beside = 2

func (d *doctor) connections(context.Context) error {
	s, most := d.server, int(d.pool.Config().MaxConns)
	switch {
	case most < leastConns:
		d.say("pool", SeverityProblem, "Set pool_max_conns=4 or more in the connection string.", "The pool may open %d connection, and a worker needs %d.", most, leastConns)
	case most < 2*leastConns:
		d.say("pool", SeverityWarning, "Set pool_max_conns=10 in the connection string.", "The pool may open %d connections: a worker keeps %d for itself, so one transactional step is under way at a time.", most, leastConns)
	}
	for _, limit := range []struct {
		what string
		n    int
		do   string
	}{
		{"the server has for all (max_connections)", s.MaxConnections, "Raise max_connections and restart the server, or set pool_max_conns lower."},
		{"this user may have", s.UserLimit, "ALTER ROLE " + quoted(s.User) + " CONNECTION LIMIT -1; or set pool_max_conns lower."},
		{"this database may have", s.DatabaseLimit, "ALTER DATABASE … CONNECTION LIMIT -1; or set pool_max_conns lower."},
	} {
		if limit.n >= 0 && most+beside > limit.n && !d.pooled {
			d.say("pool", SeverityWarning, limit.do, "The pool may open %d connections and a worker %d beside it: more than the %d that %s.", most, beside, limit.n, limit.what)
		}
	}
	if s.Connections*10 > s.MaxConnections*9 {
		d.say("pool", SeverityWarning, "Close what is not needed, raise max_connections, or put a pooler in front.", "%d of the server's %d connections are in use.", s.Connections, s.MaxConnections)
	}
	d.fine("pool", "The pool may open %d connections; %d of the server's %d are in use.", most, s.Connections, s.MaxConnections)
	return nil
}

const (
	oldTransaction   = 5 * time.Minute // worth a warning
	awfulTransaction = time.Hour
	longIdle         = 30 * time.Second
	oldXIDs          = 1_000_000 // transactions: what an old snapshot is worth if its age in time is not known
	muchWAL          = 10 << 30
)

// snapshots looks for what keeps dead rows from being removed: the queue is read slower with each of them.
func (d *doctor) snapshots(ctx context.Context) error {
	sessions, hidden, err := store.OpenSessions(ctx, d.db)
	if err != nil {
		return err
	}
	var oldest time.Duration
	for _, s := range sessions {
		d.session(s)
		if s.XIDAge > 0 {
			oldest = max(oldest, s.Open)
		}
	}
	if hidden > 0 {
		do := fmt.Sprintf("GRANT pg_read_all_stats TO %s;", quoted(d.server.User))
		for _, topic := range []string{"snapshots", "idle transactions"} {
			d.say(topic, SeverityUnseen, do, "%d sessions of other users cannot be seen.", hidden)
		}
	}
	if err := d.otherHorizons(ctx); err != nil {
		return err
	}
	d.fine("snapshots", "The oldest transaction that keeps dead rows is %s old.", duration.About(oldest))
	d.fine("idle transactions", "No session has been idle in a transaction for %s.", duration.About(longIdle))
	return nil
}

// session says what is wrong with a session that is in a transaction.
func (d *doctor) session(s store.Session) {
	who := fmt.Sprintf("Session %d of user %s", s.PID, quoted(s.User))
	if s.App != "" {
		who += " (" + s.App + ")"
	}
	query := text.OneLine(s.Query)
	end := fmt.Sprintf("SELECT pg_terminate_backend(%d);", s.PID)
	switch {
	case s.Idle > longIdle:
		severity := SeverityWarning
		if s.Idle > awfulTransaction {
			severity = SeverityProblem
		}
		d.say("idle transactions", severity, end+" Then look why the application leaves it open, and set idle_in_transaction_session_timeout for its user.",
			"%s has been idle in a transaction for %s, after: %s.", who, duration.About(s.Idle), query)
	case s.XIDAge > 0 && s.Open > oldTransaction:
		severity := SeverityWarning
		if s.Open > awfulTransaction {
			severity = SeverityProblem
		}
		d.say("snapshots", severity, end+" Reports that take long belong on a standby without hot_standby_feedback.",
			"%s has had a transaction open for %s, and autovacuum removes nothing that ended since (%d transactions): %s.", who, duration.About(s.Open), s.XIDAge, query)
	case s.XIDAge > oldXIDs && s.State != "walsender": // of another user, whose times are hidden
		d.say("snapshots", SeverityWarning, end, "%s keeps what ended within the last %d transactions from being removed.", who, s.XIDAge)
	case s.XIDAge > oldXIDs:
		d.say("snapshots", SeverityWarning, "Set hot_standby_feedback = off on that standby, or end what runs there.",
			"%s, a %s, keeps what ended within the last %d transactions from being removed.", who, s.State, s.XIDAge)
	}
}

// otherHorizons looks for what outlives sessions.
func (d *doctor) otherHorizons(ctx context.Context) error {
	prepared, err := store.PreparedTransactions(ctx, d.db)
	if err != nil {
		return err
	}
	for _, p := range prepared {
		d.prepared(p)
	}
	slots, err := store.Slots(ctx, d.db)
	if err != nil {
		return err
	}
	for _, s := range slots {
		d.slot(s)
	}
	return nil
}

func (d *doctor) prepared(p store.Prepared) {
	if p.Age <= oldTransaction {
		return
	}
	gid := "'" + strings.ReplaceAll(p.GID, "'", "''") + "'"
	d.say("snapshots", SeverityProblem, "COMMIT PREPARED "+gid+"; or ROLLBACK PREPARED "+gid+";",
		"The prepared transaction %s has waited for %s for its end, and autovacuum removes nothing that ended since.", gid, duration.About(p.Age))
}

func (d *doctor) slot(s store.Slot) {
	drop := fmt.Sprintf("If nothing uses it any more: SELECT pg_drop_replication_slot('%s');", s.Name) // a name has no quotes
	switch {
	case s.XIDAge > oldXIDs:
		d.say("snapshots", SeverityWarning, drop, "The replication slot %s (active: %t) keeps what ended within the last %d transactions from being removed.", s.Name, s.Active, s.XIDAge)
	case !s.Active && s.WALBytes > muchWAL:
		d.say("snapshots", SeverityWarning, drop, "The replication slot %s is not in use and keeps %d GiB of the log: the disk fills.", s.Name, s.WALBytes>>30)
	}
}

const (
	manyDead = 20_000 // rows
	wide     = 64 << 20
)

func (d *doctor) autovacuum(ctx context.Context) error {
	s, err := store.Settings(ctx, d.db, "autovacuum", "track_counts")
	if err != nil {
		return err
	}
	for _, name := range []string{"autovacuum", "track_counts"} {
		if s[name].Value == "off" {
			d.say("autovacuum", SeverityProblem, fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();", name), "%s is off: dead rows stay, and the queue is read slower each day.", name)
		}
	}
	if !d.migrated {
		d.fine("autovacuum", "It is on.")
		return nil
	}
	tables, err := store.Tables(ctx, d.db)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if !t.Autovacuum {
			d.say("autovacuum", SeverityProblem, fmt.Sprintf("ALTER TABLE kagzi.%s RESET (autovacuum_enabled);", t.Name), "It is switched off for kagzi.%s.", t.Name)
		}
	}
	d.fine("autovacuum", "It is on, for each of Kagzi's tables.")
	return nil
}

func (d *doctor) tables(ctx context.Context) error {
	if !d.migrated {
		d.none("tables")
		return nil
	}
	if d.spread {
		return d.tablesOfNodes(ctx)
	}
	tables, err := store.Tables(ctx, d.db)
	if err != nil {
		return err
	}
	live, dead, bytes := d.tablesOn("", tables)
	d.fine("tables", "%d live and %d dead rows in %d MiB.", live, dead, bytes>>20)
	return nil
}

// tablesOn says what is wrong with the tables of a node, or of this server, and returns what they have together.
func (d *doctor) tablesOn(node string, tables []store.Table) (live, dead, bytes int64) {
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
		case t.Dead > manyDead && t.Dead*5 > t.Live:
			d.say("tables", SeverityWarning, fmt.Sprintf("VACUUM (ANALYZE, VERBOSE) kagzi.%s; it says what it may not remove yet: see \"snapshots\".", t.Name),
				"kagzi.%s%s has %d dead rows beside %d live ones; %s.", t.Name, on, t.Dead, t.Live, vacuumed)
		case t.Live > manyDead && !t.Analyzed:
			d.say("tables", SeverityWarning, fmt.Sprintf("ANALYZE kagzi.%s;", t.Name), "kagzi.%s%s has %d rows and was never analyzed.", t.Name, on, t.Live)
		}
		if t.Bytes > wide && t.ExpectedBytes > 0 && t.Bytes > 4*t.ExpectedBytes {
			d.say("tables", SeverityWarning, fmt.Sprintf("VACUUM (FULL, ANALYZE) kagzi.%s; in a quiet hour, as it locks the table, or pg_repack.", t.Name),
				"kagzi.%s%s takes %d MiB, %d times of what its %d rows need.", t.Name, on, t.Bytes>>20, t.Bytes/t.ExpectedBytes, t.Live)
		}
	}
	return live, dead, bytes
}

// tablesOfNodes is tables for those that Citus has distributed.
func (d *doctor) tablesOfNodes(ctx context.Context) error {
	nodes, err := store.Nodes(ctx, d.db)
	if err != nil {
		if ctx.Err() != nil || d.db.Conn().IsClosed() {
			return err
		}
		d.say("tables", SeverityUnseen, "", "They are distributed, and the nodes cannot be asked: %s.", store.Reason(err))
		return nil
	}
	var live, dead, bytes int64
	told := 0
	for _, n := range nodes {
		if n.Error != "" {
			d.say("tables", SeverityUnseen, "", "They are distributed, and %s does not tell of its part: %s.", n.Name, n.Error)
			continue
		}
		l, x, b := d.tablesOn(n.Name, n.Tables)
		live, dead, bytes, told = live+l, dead+x, bytes+b, told+1
	}
	if told > 0 {
		d.fine("tables", "%d live and %d dead rows in %d MiB on %d nodes.", live, dead, bytes>>20, told)
	}
	return nil
}

// distribution looks whether Citus has distributed the tables.
func (d *doctor) distribution(ctx context.Context) error {
	if !d.migrated {
		d.none("distribution")
		return nil
	}
	l, err := migrations.LayoutOf(ctx, d.db)
	if err != nil {
		return err
	}
	d.spread = len(l.Done) > 0
	if d.spread && len(l.Left) > 0 {
		d.say("distribution", SeverityProblem, "Stop the workers, and call kagzi.Distribute.", "Some tables are distributed and others are not, so statements fail: %s.", text.List(l.Left, fewNamed))
	}
	if len(l.LeftRows) > 0 {
		d.say("distribution", SeverityWarning, "Call kagzi.Distribute.", "Rows that were copied to the nodes were left behind on this server: %s.", text.List(l.LeftRows, fewNamed))
	}
	switch {
	case d.spread:
		d.say("distribution", SeverityUnseen, "Look at each node by itself.", "What is said here of sessions, snapshots, settings, durability, clock and indexes is of this server alone, and not of the nodes that have the rows.")
		d.fine("distribution", "The tables are distributed by namespace.")
	case l.Citus:
		d.fine("distribution", "There is Citus, but Kagzi's tables are not distributed.")
	default:
		d.fine("distribution", "There is no Citus: all rows are on this server.")
	}
	return nil
}

func (d *doctor) indexes(ctx context.Context) error {
	if !d.migrated {
		d.none("indexes")
		return nil
	}
	states, err := store.IndexStates(ctx, d.db)
	if err != nil {
		return err
	}
	for _, name := range store.Indexes {
		switch valid, ok := states[name]; {
		case !ok && d.newer: // a later version may have replaced it
		case !ok:
			d.say("indexes", SeverityProblem, "Create it again as the migrations of this version of Kagzi do, with CREATE INDEX CONCURRENTLY.", "kagzi.%s is missing.", name)
		case !valid:
			d.say("indexes", SeverityProblem, fmt.Sprintf("REINDEX INDEX CONCURRENTLY kagzi.%s;", name), "kagzi.%s is not valid, so no statement uses it.", name)
		}
		delete(states, name)
	}
	var others []string
	for name := range states {
		others = append(others, "kagzi."+name)
	}
	if len(others) > 0 && !d.newer { // whose they are, a newer program knows
		slices.Sort(others)
		d.say("indexes", SeverityWarning, "Drop what nobody needs: each is paid for with each claim and each end of a run.", "There are indexes that are not Kagzi's: %s.", text.List(others, fewNamed))
	}
	if d.newer {
		d.fine("indexes", "Those that this program knows are valid. The Doctor of a newer program, which has migrated the database, knows which ones there should be.")
	}
	d.fine("indexes", "All %d are there and valid.", len(store.Indexes))
	return nil
}
