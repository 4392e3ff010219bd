package move

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/store/internal/clause"
)

const (
	// Without sequential scans, a table without an index for this seems so dear that the server would compile the COPY.
	setNamespace = `
SELECT set_config('kagzi.namespace', $1, true), set_config('statement_timeout', '0', true),
	set_config('idle_in_transaction_session_timeout', '0', true), set_config('enable_seqscan', 'off', true),
	set_config('kagzi.arriving', $1, true), set_config('row_security', 'off', true),
	set_config('jit', 'off', true)`

	ofNamespace = `r.namespace_id = current_setting('kagzi.namespace')
	AND r.namespace_id = current_setting('kagzi.namespace') COLLATE "POSIX"`

	// The runs of the namespace, by the indexes for lists, which have all but those that move, and by the claim's: all
	// other tables are small, or are searched by run. A scan of the tables of all namespaces would take too long.
	findRuns = `
CREATE TEMP TABLE kagzi_moving ON COMMIT DROP AS
WITH RECURSIVE queues (task_queue) AS (` + clause.AllQueues + `
)
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE ` + ofNamespace + ` AND ` + clause.IsCompleted + `
UNION
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE ` + ofNamespace + ` AND ` + clause.IsStopped + `
UNION
SELECT r.run_id
FROM kagzi.workflow_runs r
WHERE ` + ofNamespace + ` AND ` + clause.IsWaiting + `
UNION
SELECT r.run_id
FROM queues q
JOIN kagzi.workflow_runs r ON r.task_queue = q.task_queue
WHERE r.namespace_id = current_setting('kagzi.namespace') AND ` + clause.Claimable

	analyzeRuns = `ANALYZE kagzi_moving`

	// Until the end of the transaction, no partition is opened or emptied.
	readOpenPart = `
SELECT p.part
FROM kagzi.event_parts p
WHERE p.closed_at IS NULL
FOR SHARE`

	readKeeper = `
SELECT k.keep::text, k.keep_pending::text, k.told_at
FROM kagzi.event_keepers k
WHERE k.keeper = $1`

	writeKeeper = `
INSERT INTO kagzi.event_keepers (keeper, keep, keep_pending, told_at)
VALUES ($1, $2::text::interval, $3::text::interval, $4)
ON CONFLICT (keeper) DO UPDATE SET keep = excluded.keep, keep_pending = excluded.keep_pending,
	told_at = excluded.told_at`

	readPosition = `SELECT s.last_value FROM kagzi.event_positions s`

	setPosition = `
SELECT set_config('kagzi.position', $1::bigint::text, true), set_config('lock_timeout', '2s', true)`
)

// The lock of ALTER SEQUENCE waits for the transactions that have drawn a position, and no other one draws until the
// end of this one. So the sequence never goes back.
const raisePosition = `
DO $$
BEGIN
	ALTER SEQUENCE kagzi.event_positions OWNED BY NONE;
	PERFORM setval('kagzi.event_positions', greatest(s.last_value, current_setting('kagzi.position')::bigint))
	FROM kagzi.event_positions s;
END $$`

// ofRuns are the large tables. Each of their rows belongs to a run that exists.
var ofRuns = map[string]bool{"workflow_runs": true, "step_runs": true, "signals": true}

// A snapshot is a transaction of the source, and the one of the target that takes its rows.
type snapshot struct {
	from, to  pgx.Tx
	namespace string
}

// copyAll returns how many rows of each table it has copied.
func (s snapshot) copyAll(ctx context.Context) (counts Counts, err error) {
	for _, tx := range []pgx.Tx{s.from, s.to} {
		if _, err := tx.Exec(ctx, setNamespace, s.namespace); err != nil {
			return nil, err
		}
	}
	for _, statement := range []string{findRuns, analyzeRuns} {
		if _, err := s.from.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	tables, err := tablesOf(ctx, s.from)
	if err != nil {
		return nil, err
	}
	part, err := s.openPart(ctx)
	if err != nil {
		return nil, err
	}
	counts = Counts{}
	for _, t := range tables {
		if counts[t.name], err = s.copyTable(ctx, t, part); err != nil {
			return nil, fmt.Errorf("copy kagzi.%s: %w", t.name, err)
		}
	}
	return counts, s.copyKeeper(ctx)
}

// openPart returns the partition of the target that new events go to.
func (s snapshot) openPart(ctx context.Context) (part int16, err error) {
	rows, err := s.to.Query(ctx, readOpenPart)
	if err != nil {
		return 0, err
	}
	_, err = pgx.ForEachRow(rows, []any{&part}, func() error { return nil })
	return part, err
}

// copyKeeper copies for how long the namespace keeps its events.
func (s snapshot) copyKeeper(ctx context.Context) error {
	rows, err := s.from.Query(ctx, readKeeper, s.namespace)
	if err != nil {
		return err
	}
	values, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil || len(values) == 0 {
		return err
	}
	_, err = s.to.Exec(ctx, writeKeeper, append([]any{s.namespace}, values[0]...)...)
	return err
}

// copyTable copies the rows of a table. Events go to the partition part.
func (s snapshot) copyTable(ctx context.Context, t table, part int16) (int64, error) {
	columns, values := make([]string, len(t.columns)), make([]string, len(t.columns))
	for i, c := range t.columns {
		columns[i] = pgx.Identifier{c}.Sanitize()
		values[i] = pgx.Identifier{"x", c}.Sanitize()
		if t.name == "events" && c == "part" {
			values[i] = fmt.Sprintf("%d::smallint", part)
		}
	}
	source := t.quoted() + " x"
	if ofRuns[t.name] {
		source = "kagzi_moving m JOIN " + source + " ON x.run_id = m.run_id"
	}
	out := fmt.Sprintf("COPY (SELECT %s FROM %s WHERE x.namespace_id = current_setting('kagzi.namespace')) TO STDOUT "+
		"(FORMAT binary)", strings.Join(values, ", "), source)
	in := fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT binary)", t.quoted(), strings.Join(columns, ", "))
	reader, writer := io.Pipe()
	type copied struct {
		rows int64
		err  error
	}
	sent := make(chan copied, 1)
	go func() {
		tag, err := s.from.Conn().PgConn().CopyTo(ctx, writer, out)
		writer.CloseWithError(err) // nil is the end
		sent <- copied{tag.RowsAffected(), err}
	}()
	tag, err := s.to.Conn().PgConn().CopyFrom(ctx, reader, in)
	reader.CloseWithError(err)
	read := <-sent
	switch {
	case read.err != nil:
		return 0, read.err
	case err != nil:
		return 0, err
	case read.rows != tag.RowsAffected():
		return 0, fmt.Errorf("%d rows were read and %d written", read.rows, tag.RowsAffected())
	}
	return read.rows, nil
}

// raisePositions lets the target draw positions of events that are higher than all of the source.
func raisePositions(ctx context.Context, from, to *pgx.Conn) error {
	var position int64
	if err := from.QueryRow(ctx, readPosition).Scan(&position); err != nil {
		return err
	}
	return patiently(ctx, to, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setPosition, position); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, raisePosition)
		return err
	})
}
