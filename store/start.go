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
	Differs    string // what is not the start's: see holder.differs; empty of a restart
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
	Detached    bool // goes on when its parent ends
	Input       []byte
	Messages    []Message // for it, or for the active run of its external ID

	IfActive string // RejectActive or ReplaceActive
	IfEnded  string // RejectEnded or StartIfFailed
}

// A StartedRun is what became of a NewRun.
type StartedRun struct {
	RunID    uuid.UUID
	Existed  bool      // RunID is that of the active run with the external ID
	Replaced uuid.UUID // the run that was terminated for this one, if any

	Ended     *CancelledRuns // what ended with the runs that were replaced; nil but for one of a call's runs
	Signalled *Signalled     // what its messages found; nil if it brought none
}

// Conflicts insert nothing and raise nothing, so the statement is safe in a caller's transaction. Times count from the
// statement: a caller's transaction may have begun long ago. A run is due now if its At is past, and its Timeout counts
// from when it is due. What a parent does not start under its lease goes on when that ends. The Timeout is kept for a restart, which counts it anew.
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

// What is inserted of u, whose columns are those of a NewRun, in the order of the external IDs: see everyRun.
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

// Start inserts the runs, all or none; one whose external ID an active run has is not inserted but found, unless its
// policy says otherwise. It returns ErrIDConflict, and starts none, if that run's workflow is another, or its input is,
// unless the start brings messages, which that run gets. It returns ErrIDTaken if a policy refuses the start. With a nil tx it is a transaction of its own, and repeats itself if an answer is lost; in tx
// it never breaks it.
//
// While another transaction that has not ended holds an external ID, Start waits for it until ctx ends, and returns a
// HeldError then. It waits in slices, and looks at ctx between them: a context that ended while a statement is under way
// would cost the connection, and leave the outcome unknown.
func (s *Store) Start(ctx context.Context, tx pgx.Tx, runs []NewRun) ([]StartedRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if tx != nil {
		return s.startIn(ctx, tx, runs)
	}
	replaced := make([]StartedRun, len(runs)) // also by a try whose answer was lost
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
		case held && Away(err) && endsNow(ctx):
			return nil, wrap("start", &HeldError{ExternalID: onlyID(runs), Unknown: true, Err: err})
		case ctx.Err() != nil || !Away(err) && !Repeatable(err):
			return nil, wrap("start", err)
		}
		lost = lost || Away(err)
		if tries++; tries == repeats {
			return nil, wrap("start", err)
		}
	}
}

// startOwn starts the runs in a transaction of its own. lost says that the answer to the same may have been lost.
func (s *Store) startOwn(ctx context.Context, runs []NewRun, replaced []StartedRun, lost bool) (out []StartedRun, err error) {
	chunks := startChunks(runs, everyRun(runs))
	ctx, cancel := bound(ctx, callTimeout*time.Duration(len(chunks)))
	defer cancel()
	if len(chunks) == 1 && !byPolicy(runs) && (len(runs) == 1 || !anyExternalID(runs)) && !anyMessages(runs) { // cannot be refused after it was half done
		return s.insert(ctx, s.pool, runs)
	}
	err = transact(ctx, s.pool, txMode{locks: lockSlice(ctx, len(runs))}, func(tx pgx.Tx) error {
		out, err = s.startAll(ctx, tx, runs, lost)
		keepReplaced(out, replaced)
		return err
	})
	return out, err
}

// keepReplaced adds what earlier tries have replaced to out, and the other way round.
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
	// The savepoint takes back what was inserted before a conflict was seen.
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		out, err = s.startAll(ctx, tx, runs, false)
		return err
	})
	if Locked(err) { // by the caller's lock_timeout
		err = &HeldError{ExternalID: onlyID(runs), Err: err}
	}
	return out, wrap("start", err)
}

// startAll starts the runs, with their messages. repeated says that the answer to the same may have been lost.
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

// insert inserts what is not there, and looks for the rest: by run ID, for the answer to an earlier try may
// have been lost, then by external ID. These are statements of their own, because one that inserts does not see
// what another transaction committed meanwhile. A run found by neither ended in between: it is inserted again.
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

// mark notes the runs in done as started, and returns what is left of todo.
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

// insertOnce inserts what is not there. Without a transaction all of it is one chunk.
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

// newRunColumns are those of the runs to insert, of whatever has a NewRun.
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

// pick returns the runs of those numbers.
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

// adopt gives the runs in todo that an active run with their external ID stands for its run ID, and returns the
// others: it has terminated the active runs that they replace.
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
			ended = &CancelledRuns{Ended: ended.Ended} // told once
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
