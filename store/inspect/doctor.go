package inspect

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Indexes are the schema's indexes, on which the statements rely.
var Indexes = []string{
	"audit_log_actor", "audit_log_external_id", "audit_log_name", "audit_log_pkey", "audit_log_time",
	"awaited_events_pkey", "consumers_key", "consumers_pkey", "event_keepers_pkey", "event_parts_pkey",
	"event_waits_pkey", "event_waits_run", "events_0_pkey",
	"events_0_topic_namespace_id_position_idx",
	"events_1_pkey", "events_1_topic_namespace_id_position_idx", "events_2_pkey",
	"events_2_topic_namespace_id_position_idx", "events_3_pkey",
	"events_3_topic_namespace_id_position_idx", "events_4_pkey", "events_4_topic_namespace_id_position_idx",
	"events_5_pkey",
	"events_5_topic_namespace_id_position_idx", "events_6_pkey", "events_6_topic_namespace_id_position_idx",
	"events_7_pkey",
	"events_7_topic_namespace_id_position_idx", "events_order", "events_pkey", "key_changes_pkey",
	"limit_places_pkey", "limit_places_state", "limits_pkey", "pauses_pkey", "queues_pkey", "run_events_deleted",
	"run_events_deleted_id", "run_events_pkey", "run_keys_line", "run_keys_paused", "run_keys_pkey",
	"schedules_due", "schedules_name", "schedules_pkey", "schema_migrations_pkey", "schema_migrations_version_id_key",
	"signals_pkey",
	"signals_set_aside", "signals_signal_id", "start_items_item", "start_items_pkey", "start_windows_closed",
	"start_windows_pkey", "step_runs_doubt", "step_runs_pkey", "step_runs_replies", "step_runs_values",
	"subscriptions_consumer", "subscriptions_pkey", "worker_events_pkey", "workers_live", "workers_pkey",
	"workers_release",
	"workflow_runs_active_external_id", "workflow_runs_active_fired", "workflow_runs_claim",
	"workflow_runs_compensating", "workflow_runs_completed",
	"workflow_runs_deadline", "workflow_runs_deleted",
	"workflow_runs_ended_external_id", "workflow_runs_failed", "workflow_runs_fire", "workflow_runs_group_slot",
	"workflow_runs_inbox_full", "workflow_runs_keyed", "workflow_runs_metadata",
	"workflow_runs_parent", "workflow_runs_paused", "workflow_runs_pkey", "workflow_runs_quarantined",
	"workflow_runs_queued", "workflow_runs_recovered", "workflow_runs_slots",
	"workflow_runs_start_by", "workflow_runs_stopped",
	"workflow_runs_unread", "workflow_runs_waiting",
}

const indexStates = `
SELECT c.relname::text, i.indisvalid AND i.indisready AND i.indislive
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_class t ON t.oid = i.indrelid
JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = 'kagzi'`

// IndexStates returns the schema's indexes by name, and whether each is valid and in use.
func IndexStates(ctx context.Context, db pg.DB) (map[string]bool, error) {
	states := map[string]bool{}
	var name string
	var valid bool
	err := list(ctx, db, indexStates, nil, []any{&name, &valid}, func() { states[name] = valid })
	return states, pg.Wrap("read the states of indexes", err)
}

// list sends a statement about the server, not about runs, and calls row for each row scanned into dest.
func list(ctx context.Context, db pg.DB, sql string, args, dest []any, row func()) error {
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout)
	defer cancel()
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, dest, func() error {
		row()
		return nil
	})
	return err
}

// oneRow is list for a statement with one row.
func oneRow(ctx context.Context, db pg.DB, sql string, dest ...any) error {
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout)
	defer cancel()
	return db.QueryRow(ctx, sql).Scan(dest...)
}

// A Server describes the server, the database and this user, as far as every user may read that.
type Server struct {
	Version        int // such as 150018
	VersionText    string
	Encoding       string // of this database
	User           string
	Standby        bool // the server is in recovery
	ReadOnly       bool // default_transaction_read_only is on
	MaxConnections int  // for users without special rights
	Connections    int  // now, of all users
	UserLimit      int  // of connections of this user; -1: none
	DatabaseLimit  int  // of connections to this database; -1: none
}

const server = `
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
	current_setting('server_encoding'), current_user::text, pg_is_in_recovery(),
	current_setting('default_transaction_read_only')::bool,
	current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0),
	(SELECT coalesce(sum(d.numbackends), 0)::int FROM pg_stat_database d WHERE d.datid <> 0),
	(SELECT r.rolconnlimit FROM pg_roles r WHERE r.rolname = current_user),
	(SELECT d.datconnlimit FROM pg_database d WHERE d.datname = current_database())`

// AskServer returns the description of the server.
func AskServer(ctx context.Context, db pg.DB) (s Server, err error) {
	err = oneRow(ctx, db, server, &s.Version, &s.VersionText, &s.Encoding, &s.User, &s.Standby, &s.ReadOnly,
		&s.MaxConnections, &s.Connections,
		&s.UserLimit, &s.DatabaseLimit)
	return s, pg.Wrap("read settings of the server", err)
}

// A Setting is one of the server's or the session's.
type Setting struct {
	Value string        // "" if this server does not have it
	Time  time.Duration // of one that is a time; zero: off
}

// The settings' own units are in pg_settings: milliseconds for all times asked for here.
const settings = `
SELECT u.name, coalesce(s.setting, ''), CASE WHEN s.unit = 'ms' THEN s.setting::bigint ELSE 0 END
FROM unnest($1::text[]) AS u (name)
LEFT JOIN pg_settings s ON s.name = u.name`

// Settings returns the settings of those names as they are for this session.
func Settings(ctx context.Context, db pg.DB, names ...string) (map[string]Setting, error) {
	out := map[string]Setting{}
	var name, value string
	var ms int64
	err := list(ctx, db, settings, []any{names}, []any{&name, &value, &ms}, func() {
		out[name] = Setting{value, time.Duration(ms) * time.Millisecond}
	})
	return out, pg.Wrap("read settings", err)
}

// A Session is a session of the server that is in a transaction.
type Session struct {
	PID   int
	User  string
	App   string
	State string
	Open  time.Duration // how long its transaction has been open
	Idle  time.Duration // how long it has been idle in the transaction
	// age in transactions of the oldest row version that vacuum must keep for it; zero if there is none
	XIDAge int64
	Query  string // the beginning of its last query
}

// Walsenders belong to no database. With hot_standby_feedback they hold the snapshot of a standby.
// The clock is read once: no session is idle for longer than its transaction has been open.
const openSessions = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
	coalesce(a.state, coalesce(a.backend_type, '')),
	GREATEST((extract(epoch FROM c.now - a.xact_start) * 1000000)::bigint, 0),
	CASE WHEN a.state LIKE 'idle in transaction%'
		THEN GREATEST((extract(epoch FROM c.now - a.state_change) * 1000000)::bigint, 0) ELSE 0 END,
	coalesce(greatest(age(a.backend_xmin), age(a.backend_xid)), 0)::bigint, left(a.query, 120)
FROM pg_stat_activity a CROSS JOIN clock c
WHERE (a.datname = current_database() OR a.backend_type = 'walsender') AND a.pid <> pg_backend_pid()
	AND (a.xact_start IS NOT NULL OR a.backend_xmin IS NOT NULL) AND coalesce(a.backend_type, '') <> 'autovacuum worker'
ORDER BY a.xact_start NULLS FIRST
LIMIT 100`

const hiddenSessions = `
SELECT count(*)::int FROM pg_stat_activity a WHERE a.datname = current_database()
	AND a.query = '<insufficient privilege>'`

// OpenSessions returns the sessions of this database that are in a transaction, the oldest transaction first, and in
// hidden how many other sessions there are whose transactions this user may not see.
func OpenSessions(ctx context.Context, db pg.DB) (out []Session, hidden int, err error) {
	var s Session
	var open, idle int64
	err = list(ctx, db, openSessions, nil, []any{
		&s.PID, &s.User, &s.App, &s.State, &open, &idle, &s.XIDAge,
		&s.Query,
	}, func() {
		s.Open, s.Idle = time.Duration(open)*time.Microsecond, time.Duration(idle)*time.Microsecond
		out = append(out, s)
	})
	if err == nil {
		err = oneRow(ctx, db, hiddenSessions, &hidden)
	}
	return out, hidden, pg.Wrap("read sessions", err)
}

// A Prepared is a transaction that waits for the second phase of its commit.
type Prepared struct {
	GID string
	Age time.Duration
}

const preparedTransactions = `
SELECT p.gid, (extract(epoch FROM clock_timestamp() - p.prepared) * 1000000)::bigint
FROM pg_prepared_xacts p WHERE p.database = current_database() ORDER BY p.prepared LIMIT 100`

// PreparedTransactions returns the prepared transactions of this database, the oldest first.
func PreparedTransactions(ctx context.Context, db pg.DB) (out []Prepared, err error) {
	var p Prepared
	var age int64
	err = list(ctx, db, preparedTransactions, nil, []any{&p.GID, &age}, func() {
		p.Age = time.Duration(age) * time.Microsecond
		out = append(out, p)
	})
	return out, pg.Wrap("read prepared transactions", err)
}

// A Slot is a replication slot.
type Slot struct {
	Name     string
	Active   bool
	XIDAge   int64 // age in transactions of the oldest row version that vacuum must keep for it
	WALBytes int64 // WAL that the server must keep for it
}

const slots = `
SELECT s.slot_name::text, s.active,
	coalesce(greatest(age(s.xmin), CASE WHEN s.slot_type = 'physical' THEN age(s.catalog_xmin) END), 0)::bigint,
	CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn),
		0)::bigint END
FROM pg_replication_slots s ORDER BY 1 LIMIT 100`

// Slots returns the replication slots.
func Slots(ctx context.Context, db pg.DB) (out []Slot, err error) {
	var s Slot
	err = list(ctx, db, slots, nil, []any{&s.Name, &s.Active, &s.XIDAge, &s.WALBytes}, func() { out = append(out, s) })
	return out, pg.Wrap("read replication slots", err)
}

// A Table holds the server's statistics of one of Kagzi's tables.
type Table struct {
	Name          string
	Live, Dead    int64 // rows
	Vacuums       int64 // by hand or by autovacuum
	SinceVacuum   time.Duration
	Autovacuum    bool // false if autovacuum is switched off for this table
	Analyzed      bool // at least once
	Bytes         int64
	ExpectedBytes int64 // size of the live rows, at the average width that ANALYZE found; zero if it is not known
}

// The expected size of a row is the average width of its columns, and 28 bytes for its header and pointer.
const tables = `
SELECT t.relname::text, t.n_live_tup, t.n_dead_tup, t.vacuum_count + t.autovacuum_count,
	coalesce((extract(epoch FROM now() - greatest(t.last_vacuum, t.last_autovacuum)) * 1000000)::bigint, 0),
	coalesce((SELECT o.option_value FROM pg_options_to_table(c.reloptions) o
		WHERE o.option_name = 'autovacuum_enabled'), 'on')::bool,
	coalesce(t.last_analyze, t.last_autoanalyze) IS NOT NULL, pg_relation_size(t.relid),
	coalesce((
		SELECT t.n_live_tup * (28 + sum(s.avg_width * (1 - s.null_frac))) / coalesce((
			SELECT o.option_value::float8 / 100 FROM pg_options_to_table(c.reloptions) o
				WHERE o.option_name = 'fillfactor'), 1)
		FROM pg_stats s WHERE s.schemaname = t.schemaname AND s.tablename = t.relname), 0)::bigint
FROM pg_stat_user_tables t
JOIN pg_class c ON c.oid = t.relid
WHERE t.schemaname = 'kagzi'
ORDER BY 1`

// Tables returns the server's statistics of Kagzi's tables.
func Tables(ctx context.Context, db pg.DB) (out []Table, err error) {
	var t Table
	var since int64
	dest := []any{&t.Name, &t.Live, &t.Dead, &t.Vacuums, &since, &t.Autovacuum, &t.Analyzed, &t.Bytes, &t.ExpectedBytes}
	err = list(ctx, db, tables, nil, dest, func() {
		t.SinceVacuum = time.Duration(since) * time.Microsecond
		out = append(out, t)
	})
	return out, pg.Wrap("read statistics of tables", err)
}

const notificationQueue = `SELECT pg_notification_queue_usage()`

// NotificationQueue returns which fraction of the server's notification queue is in use, from 0 to 1.
func NotificationQueue(ctx context.Context, db pg.DB) (usage float64, err error) {
	err = oneRow(ctx, db, notificationQueue, &usage)
	return usage, pg.Wrap("read the use of the notification queue", err)
}

const answeringBackend = `SELECT pg_backend_pid()`

// BackendPID returns the process ID of the server's backend that answers.
func BackendPID(ctx context.Context, db pg.DB) (pid uint32, err error) {
	err = oneRow(ctx, db, answeringBackend, &pid)
	return pid, pg.Wrap("read the process number", err)
}

const (
	listenDoctor = `LISTEN kagzi_doctor`
	notifyDoctor = `SELECT pg_notify('kagzi_doctor', $1)`
)

// Hears reports whether conn receives, within timeout, a notification that db sends, which is another connection. It
// does not behind a pooler that switches backends between transactions. The caller closes conn after that.
func Hears(ctx context.Context, conn *pgx.Conn, db pg.DB, payload string, timeout time.Duration) (bool, error) {
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, listenDoctor); err != nil {
		return false, pg.Wrap("listen", err)
	}
	if _, err := db.Exec(ctx, notifyDoctor, payload); err != nil {
		return false, pg.Wrap("notify", err)
	}
	wait, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	for {
		n, err := conn.WaitForNotification(wait)
		if err == nil && n.Payload == payload {
			return true, nil
		}
		if wait.Err() != nil {
			return false, nil
		}
		if err != nil {
			return false, pg.Wrap("wait for the notification", err)
		}
	}
}
