package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrIDConflict reports that an active run has the external ID, and another workflow or input.
var ErrIDConflict = errors.New("external ID in use with another input")

// An IDConflict is an ErrIDConflict that names the run.
type IDConflict struct {
	ExternalID string
	RunID      uuid.UUID
	Type       string
	Differs    string // in what the run differs: see holder.differs; empty for a restart
}

func (e *IDConflict) Error() string {
	text := fmt.Sprintf("ID %q is held by run %s of workflow %q", e.ExternalID, e.RunID, e.Type)
	switch e.Differs {
	case otherInput:
		text += ", which was started with another input"
	case otherWorkflow:
		text += ": give the other workflow's run an ID of its own"
	}
	return text
}

func (e *IDConflict) Unwrap() error { return ErrIDConflict }

// A NewRun is a run to insert.
type NewRun struct {
	RunID       uuid.UUID // made by the client, so that a repetition finds it
	ExternalID  string
	InputHash   []byte
	Queue       string
	Type        string
	Version     int // zero: the newest that the first worker has
	Priority    int // zero, of a child: its parent's
	Delay       time.Duration
	At          time.Time // instead of Delay
	Timeout     time.Duration
	RetryPolicy json.RawMessage
	Metadata    json.RawMessage
	Parent      uuid.UUID
	ParentStep  string
	Detached    bool // continues when its parent ends
	Input       []byte
	Messages    []Message // for it, or for the active run of its external ID

	IfActive string // RejectActive or ReplaceActive
	IfEnded  string // RejectEnded or StartIfFailed
}

// A StartedRun says what happened to a NewRun.
type StartedRun struct {
	RunID    uuid.UUID
	Existed  bool      // RunID is that of the active run with the external ID
	Replaced uuid.UUID // the run that was terminated for this one, if any

	Ended     *CancelledRuns // the runs that ended with those that were replaced; only with one of a call's runs
	Signalled *Signalled     // the run that got its messages; nil if it brought none
}

// A conflict inserts nothing and raises nothing, so the statement is safe in a caller's transaction. Times count from the
// statement, because a caller's transaction may have begun long ago. A run is due now if its At has passed, and its Timeout
// counts from when it is due. A child that its parent does not start under its lease is detached: it continues when the
// parent ends. The Timeout is kept for a restart, which counts it anew.
const insertRuns = `
WITH u AS MATERIALIZED (
	SELECT u.run_id, u.external_id, u.input_hash, u.task_queue, u.workflow_type, u.version, u.priority,
		GREATEST(statement_timestamp() + u.delay * interval '1 microsecond',
			CASE WHEN u.at > 0 THEN timestamptz 'epoch' + u.at * interval '1 microsecond' END) AS available_at, statement_timestamp() AS now,
		u.timeout, u.retry_policy, u.metadata, u.parent_run_id, u.parent_step_id, u.parent_step_id <> '' AS detached, u.input
	FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::int[], $8::smallint[], $9::bigint[], $10::bigint[],
		$11::bigint[], $12::text[], $13::text[], $14::uuid[], $15::text[], $16::bytea[])
		AS u (run_id, external_id, input_hash, task_queue, workflow_type, version, priority, delay, at, timeout,
			retry_policy, metadata, parent_run_id, parent_step_id, input)
), ` + insertUnnested

// Inserts the rows of u, whose columns are those of a NewRun, in the order of their external IDs: see everyRun.
const insertUnnested = `r AS (
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, external_id, input_hash, task_queue, workflow_type, version, priority,
		status, available_at, deadline_at, retry_policy, metadata, parent_run_id, parent_step_id, detached, timeout, created_at)
	SELECT u.run_id, $1, NULLIF(u.external_id, ''), u.input_hash, u.task_queue, u.workflow_type, NULLIF(u.version, 0), u.priority,
		'PENDING', u.available_at, CASE WHEN u.timeout > 0 THEN u.available_at + u.timeout * interval '1 microsecond' END,
		NULLIF(u.retry_policy, '')::jsonb, NULLIF(u.metadata, '')::jsonb,
		NULLIF(u.parent_run_id, '00000000-0000-0000-0000-000000000000'), NULLIF(u.parent_step_id, ''), u.detached,
		CASE WHEN u.timeout > 0 THEN u.timeout * interval '1 microsecond' END, u.now
	FROM u
	ORDER BY u.external_id COLLATE "C"
	ON CONFLICT DO NOTHING
	RETURNING run_id
), p AS (
	INSERT INTO kagzi.workflow_payloads (run_id, namespace_id, input)
	SELECT u.run_id, $1, u.input FROM u JOIN r ON r.run_id = u.run_id
)
SELECT run_id FROM r`

const existingRuns = `
SELECT r.run_id
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r`

const activeByExternalID = `
SELECT r.external_id, r.run_id, r.input_hash, r.workflow_type, r.status
FROM unnest($2::text[]) AS u (external_id)
CROSS JOIN LATERAL (
	SELECT q.external_id, q.run_id, q.input_hash, q.workflow_type, q.status
	FROM kagzi.workflow_runs q
	WHERE q.external_id = u.external_id AND q.namespace_id = $1 AND q.status IN ('PENDING', 'SLEEPING', 'RUNNING')
	OFFSET 0
) r`

// Start inserts the runs, all or none. If an active run has the external ID of one, Start returns that run instead, unless
// the start's policy says otherwise. It returns ErrIDConflict if that run has another workflow, or another input and the
// start brings no messages for it. It returns ErrIDTaken if a policy refuses the start. With a nil tx it is a transaction of
// its own, and repeats itself if an answer is lost. A tx survives its errors.
//
// While another open transaction holds an external ID, Start waits for its end until ctx ends, and then returns a HeldError.
// It waits in slices and checks ctx between them: a context that ends during a statement would cost the connection, and
// leave the outcome unknown.
func (s *Store) Start(ctx context.Context, tx pgx.Tx, runs []NewRun) ([]StartedRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if tx != nil {
		return s.startIn(ctx, tx, runs)
	}
	replaced := make([]StartedRun, len(runs)) // also those of a try whose answer was lost
	var held, lost bool
	for tries := 0; ; {
		out, err := s.startOwn(ctx, runs, replaced, lost)
		switch {
		case err == nil:
			return out, nil
		case Locked(err):
			if held = true; endsNow(ctx) {
				return nil, wrap("start", &HeldError{ExternalID: onlyID(runs), Err: errors.Join(cmp.Or(ctx.Err(), context.DeadlineExceeded), err)})
			}
			continue // it was rolled back
		case held && Unavailable(err) && endsNow(ctx):
			return nil, wrap("start", &HeldError{ExternalID: onlyID(runs), Unknown: true, Err: err})
		case ctx.Err() != nil || !Unavailable(err) && !Repeatable(err):
			return nil, wrap("start", err)
		}
		lost = lost || Unavailable(err)
		if tries++; tries == repeats {
			return nil, wrap("start", err)
		}
	}
}

// startOwn starts the runs in a transaction of its own. lost says that the answer to an earlier try may have been lost.
func (s *Store) startOwn(ctx context.Context, runs []NewRun, replaced []StartedRun, lost bool) (out []StartedRun, err error) {
	chunks := startChunks(runs, everyRun(runs))
	ctx, cancel := bound(ctx, callTimeout*time.Duration(len(chunks)))
	defer cancel()
	if len(chunks) == 1 && !byPolicy(runs) && (len(runs) == 1 || !anyExternalID(runs)) && !anyMessages(runs) { // no run can be refused after another was inserted
		return s.insert(ctx, s.pool, runs)
	}
	err = transact(ctx, s.pool, txMode{locks: lockSlice(ctx, len(runs))}, func(tx pgx.Tx) error {
		out, err = s.startAll(ctx, tx, runs, lost)
		keepReplaced(out, replaced)
		return err
	})
	return out, err
}

// keepReplaced adds to out the runs that earlier tries have replaced, and to replaced those of out.
func keepReplaced(out, replaced []StartedRun) {
	for i := range out {
		if out[i].Replaced == uuid.Nil {
			out[i].Replaced, out[i].Ended = replaced[i].Replaced, replaced[i].Ended
		}
		replaced[i] = out[i]
	}
}

func (s *Store) startIn(ctx context.Context, tx pgx.Tx, runs []NewRun) ([]StartedRun, error) {
	if byPolicy(runs) {
		var err error
		if tx, err = fit(ctx, tx); err != nil {
			return nil, wrap("start", err)
		}
	}
	var out []StartedRun
	// The savepoint takes back the inserts before a conflict.
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		out, err = s.startAll(ctx, tx, runs, false)
		return err
	})
	if Locked(err) { // by the caller's lock_timeout
		err = &HeldError{ExternalID: onlyID(runs), Err: err}
	}
	return out, wrap("start", err)
}

// startAll starts the runs and stores their messages. repeated says that the answer to an earlier try may have been lost.
func (s *Store) startAll(ctx context.Context, tx pgx.Tx, runs []NewRun, repeated bool) ([]StartedRun, error) {
	if anyMessages(runs) {
		return s.startSignalling(ctx, tx, runs, repeated)
	}
	return s.insert(ctx, tx, runs)
}

func anyExternalID(runs []NewRun) bool {
	for i := range runs {
		if runs[i].ExternalID != "" {
			return true
		}
	}
	return false
}

// insert inserts the runs that do not exist yet, and looks for the others: by run ID, because the answer to an earlier try
// may have been lost, then by external ID. Each is a statement of its own, because one that inserts does not see what
// another transaction has committed meanwhile. A run that neither finds has ended in between, and is inserted again.
func (s *Store) insert(ctx context.Context, db DB, runs []NewRun) ([]StartedRun, error) {
	out := make([]StartedRun, len(runs))
	todo := everyRun(runs)
	for range 100 {
		done, err := s.insertOnce(ctx, db, runs, todo)
		if err == nil {
			err = s.refuseEnded(ctx, db, out, runs, done)
		}
		if err != nil {
			return nil, err
		}
		if todo = mark(out, runs, todo, done); len(todo) == 0 {
			return out, nil
		}
		if done, err = s.existing(ctx, db, runs, todo); err != nil {
			return nil, err
		}
		if todo = mark(out, runs, todo, done); len(todo) == 0 {
			return out, nil
		}
		if todo, err = s.adopt(ctx, db, out, runs, todo); err != nil {
			return nil, err
		}
		if len(todo) == 0 {
			return out, nil
		}
	}
	return nil, errors.New("the runs of these external IDs end as fast as they are found: try again")
}

// mark sets the run ID of the runs in done, and returns the rest of todo.
func mark(out []StartedRun, runs []NewRun, todo []int, done map[uuid.UUID]bool) []int {
	var left []int
	for _, i := range todo {
		if done[runs[i].RunID] {
			out[i].RunID = runs[i].RunID
		} else {
			left = append(left, i)
		}
	}
	return left
}

// insertOnce inserts the runs of todo that do not exist yet. Without a transaction they must be one chunk.
func (s *Store) insertOnce(ctx context.Context, db DB, runs []NewRun, todo []int) (map[uuid.UUID]bool, error) {
	set := make(map[uuid.UUID]bool, len(todo))
	add := func(rows pgx.Rows) error {
		var id uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { set[id] = true; return nil })
		return err
	}
	for _, chunk := range startChunks(runs, todo) { // one statement at a time: their arguments are large
		b := &pgx.Batch{}
		b.Queue(insertRuns, insertColumns.args(s.namespace, pick(runs, chunk))...)
		if err := exchange(ctx, db, txMode{locks: lockSlice(ctx, len(todo))}, b, add); err != nil {
			return nil, err
		}
	}
	return set, nil
}

var insertColumns = columnsOf(insertRuns, newRunColumns(func(r *NewRun) *NewRun { return r })...)

// newRunColumns are the columns of NewRun, of anything that has one.
func newRunColumns[T any](run func(T) *NewRun) columns[T] {
	return columns[T]{
		uuids("run_id", func(t T) uuid.UUID { return run(t).RunID }),
		texts("external_id", func(t T) string { return run(t).ExternalID }),
		byteas("input_hash", func(t T) []byte { return run(t).InputHash }),
		texts("task_queue", func(t T) string { return run(t).Queue }),
		texts("workflow_type", func(t T) string { return run(t).Type }),
		ints("version", func(t T) int { return run(t).Version }),
		smallints("priority", func(t T) int16 { return int16(run(t).Priority) }),
		bigints("delay", func(t T) int64 { return micros(run(t).Delay) }),
		bigints("at", func(t T) int64 { return epoch(run(t).At) }),
		bigints("timeout", func(t T) int64 { return micros(run(t).Timeout) }),
		texts("retry_policy", func(t T) string { return string(run(t).RetryPolicy) }),
		texts("metadata", func(t T) string { return string(run(t).Metadata) }),
		uuids("parent_run_id", func(t T) uuid.UUID { return run(t).Parent }),
		texts("parent_step_id", func(t T) string { return run(t).ParentStep }),
		byteas("input", func(t T) []byte { return run(t).Input }),
	}
}

// pick returns the runs with the indexes in todo.
func pick(runs []NewRun, todo []int) []*NewRun {
	picked := make([]*NewRun, len(todo))
	for k, i := range todo {
		picked[k] = &runs[i]
	}
	return picked
}

func (s *Store) existing(ctx context.Context, db DB, runs []NewRun, todo []int) (set map[uuid.UUID]bool, err error) {
	ids := make([]uuid.UUID, len(todo))
	for k, i := range todo {
		ids[k] = runs[i].RunID
	}
	err = ask(ctx, db, existingRuns, []any{s.namespace, array(ids)}, func(rows pgx.Rows) error {
		set, err = ids2set(rows, nil)
		return err
	})
	return set, err
}

// adopt returns, in out, the active run that has the external ID for each run of todo. It terminates the active runs that
// are to be replaced, and returns the indexes of the runs that are still to be inserted.
func (s *Store) adopt(ctx context.Context, db DB, out []StartedRun, runs []NewRun, todo []int) ([]int, error) {
	externals := make([]string, 0, len(todo))
	for _, i := range todo {
		externals = append(externals, runs[i].ExternalID)
	}
	found, err := s.holders(ctx, db, activeByExternalID, externals)
	if err != nil {
		return nil, err
	}
	var left []int
	var replace []*holder
	for _, i := range todo {
		r := &runs[i]
		h := found[r.ExternalID]
		switch {
		case h == nil:
			left = append(left, i)
		case r.IfActive == RejectActive:
			return nil, h.taken(r)
		case r.IfActive == ReplaceActive && h.typ == r.Type:
			left, replace = append(left, i), append(replace, h)
		case h.differs(r) == otherWorkflow, h.differs(r) == otherInput && len(r.Messages) == 0: // messages are for whatever run is active
			return nil, &IDConflict{r.ExternalID, h.id, h.typ, h.differs(r)}
		default:
			out[i] = StartedRun{RunID: h.id, Existed: true}
		}
	}
	if replace == nil {
		return left, nil
	}
	ended, err := s.replace(ctx, db.(pgx.Tx), replace) // a start with such a policy has one
	if err != nil {
		return nil, err
	}
	for _, i := range left {
		if h := found[runs[i].ExternalID]; h != nil && slices.Contains(ended.Ended, h.id) {
			out[i].Replaced, out[i].Ended = h.id, ended
			ended = &CancelledRuns{Ended: ended.Ended} // the rest is in the first
		}
	}
	return left, nil
}

func ids2set(rows pgx.Rows, err error) (map[uuid.UUID]bool, error) {
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	set := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}
