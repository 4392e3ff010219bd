package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A LoadRequest says which data of which runs Load reads, and how long it may take.
type LoadRequest struct {
	Runs   []uuid.UUID
	Woken  []uuid.UUID // the runs whose inboxes are read
	Inputs []uuid.UUID // the runs whose inputs are read: the claim left them out
	// limits the bytes of each run's steps, of its children's ends, and of its input; or NoLimit. Of messages, a page
	// is read.
	Most    int64
	Timeout time.Duration
}

// Loaded is the result of Load.
type Loaded struct {
	Steps  map[uuid.UUID][]*StepRow // the latest attempt of every step
	Inbox  map[uuid.UUID]*Inbox     // of the woken runs
	Inputs map[uuid.UUID][]byte
	More   map[uuid.UUID]bool // runs that exceed Most, so that the other fields are incomplete
}

const runInputs = `
SELECT r.run_id, CASE WHEN octet_length(r.input) <= $3::bigint THEN r.input END,
	coalesce(octet_length(r.input) > $3::bigint, false)
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id, ` + inputOfRun + ` AS input FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id
		AND q.namespace_id = $1 OFFSET 0
) r`

// Load reads the latest attempt of every step of the runs, as History does, the inboxes of the woken runs, and the
// inputs that req names, in one round trip. The caller must have read the wake-ups in an earlier statement. The end of
// ctx ends the call and costs the connection. That is harmless, because Load writes nothing.
func (s Histories) Load(ctx context.Context, req LoadRequest) (out Loaded, err error) {
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	for range pg.MaxTries {
		if out, err = s.load(ctx, req); err == nil || !pg.Repeatable(err) {
			break
		}
	}
	if err != nil {
		return Loaded{}, pg.Wrap("read history", err) // without a partial result, which a caller would take for all
	}
	return out, nil
}

func (s Histories) load(ctx context.Context, req LoadRequest) (Loaded, error) {
	out := Loaded{
		Steps: make(map[uuid.UUID][]*StepRow, len(req.Runs)), Inbox: make(map[uuid.UUID]*Inbox, len(req.Woken)),
		Inputs: map[uuid.UUID][]byte{}, More: map[uuid.UUID]bool{},
	}
	b := &pgx.Batch{}
	b.Queue(history, s.namespace, array(req.Runs), req.Most)
	reads := []func(pgx.Rows) error{readHistory(out.Steps, out.More)}
	if len(req.Woken) > 0 {
		for _, id := range req.Woken {
			out.Inbox[id] = &Inbox{}
		}
		queueInbox(b, s.namespace, req.Woken, req.Most)
		reads = append(reads, readSignals(out.Inbox), readEnds(out.Inbox, out.More))
	}
	if len(req.Inputs) > 0 {
		b.Queue(runInputs, s.namespace, array(req.Inputs), req.Most)
		reads = append(reads, readInputs(out.Inputs, out.More))
	}
	return out, pg.Exchange(ctx, s.pool, pg.Untimed, b, reads...)
}

func readInputs(inputs map[uuid.UUID][]byte, more map[uuid.UUID]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var input []byte
			var tooMuch bool
			if err := rows.Scan(&id, &input, &tooMuch); err != nil {
				return err
			}
			inputs[id] = input
			if tooMuch {
				more[id] = true
			}
		}
		return rows.Err()
	}
}

const loadSize = `
SELECT (
	SELECT coalesce(sum(300 + coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0)), 0)
	FROM kagzi.step_runs s WHERE s.run_id = $2 AND s.namespace_id = $1 AND ` + clause.OwnEpoch + `
) + (
	SELECT coalesce(sum(300 + coalesce(octet_length(r.output), 0)), 0)
	FROM (
		SELECT s.child_run_id
		FROM kagzi.step_runs s
		WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_kind = 'CHILD_WORKFLOW' AND s.status = 'RUNNING'
			AND ` + clause.OwnEpoch + `
		OFFSET 0
	) c
	CROSS JOIN LATERAL (
		SELECT q.output FROM kagzi.workflow_runs q WHERE q.run_id = c.child_run_id AND q.namespace_id = $1 OFFSET 0
	) r
) + coalesce((
	SELECT coalesce(octet_length(q.input), (
		SELECT sum(octet_length(i.input)) FROM kagzi.start_items i WHERE i.run_id = q.run_id AND i.namespace_id = $1
	)) FROM kagzi.workflow_runs q WHERE q.run_id = $2 AND q.namespace_id = $1
), 0)`

// Size returns roughly how many bytes Load would read of a run without a limit, apart from its page of messages. It
// reads only sizes.
func (s Histories) Size(ctx context.Context, run uuid.UUID, timeout time.Duration) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	size, err = pg.AskOne[int64](ctx, s.pool, loadSize, s.namespace, run)
	return size, pg.Wrap("read the size of a history", err)
}

// CrashLoopEvidence distinguishes a crash-loop suspect, which kills its workers, from a run that makes progress.
type CrashLoopEvidence struct {
	Progress bool // the run has recorded a result since
	Children bool // it has children that may not be over
}

const crashLoopEvidence = `
SELECT EXISTS (SELECT FROM kagzi.step_runs s WHERE s.run_id = $2 AND s.namespace_id = $1 AND ` + clause.OwnEpoch + `
		AND s.finished_at > $3),
	EXISTS (SELECT FROM kagzi.step_runs k WHERE k.run_id = $2 AND k.namespace_id = $1 AND k.step_kind = 'CHILD_WORKFLOW'
		AND k.status = 'RUNNING')`

// CrashLoopEvidence returns whether a run has recorded anything since the time given. It does not read results.
func (s Histories) CrashLoopEvidence(ctx context.Context, run uuid.UUID, since time.Time,
	timeout time.Duration,
) (out CrashLoopEvidence, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = pg.Ask(ctx, s.pool, crashLoopEvidence, []any{s.namespace, run, since}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&out.Progress, &out.Children}, func() error { return nil })
		return err
	})
	return out, pg.Wrap("read progress", err)
}
