package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// RequestHash returns the Hash of a request's message.
func RequestHash(name string, payload []byte) []byte {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{0}) // which no name has
	h.Write(payload)
	return h.Sum(nil)[:16]
}

// A RequestKey names a request to a run.
type RequestKey struct {
	RunID uuid.UUID
	ID    string // of the message
}

// An Answer is what became of a request that is open no longer.
type Answer struct {
	RequestKey
	State     AnswerState
	Output    []byte // of the reply; of a refusal its details
	ErrorKind string // of a refusal
	Error     string // of a refusal; why the message was set aside
	End       Ended  // of the run, without its output, if State is AnswerRunOver
	Asked     Asked  // of a reply that was just written
	Sequence  int64  // of the request, then
	Is        string // the name of the error that the asker gets, if State is AnswerNotSent; see ByPerson
}

// ErrExpired is why no step takes a request that has expired.
var ErrExpired = errors.New("the request has expired")

// An AnswerState says why a request is open no longer.
type AnswerState int

// States of requests. One that was set aside is open again once it is redelivered; one whose run is over once that is
// resumed.
const (
	AnswerOpen AnswerState = iota
	AnswerReplied
	AnswerRefused
	AnswerSetAside
	AnswerExpired
	AnswerRunOver
	AnswerNoRun
	AnswerNotSent // a run has asked, and could not send the request: it was refused
)

// One row for each request: what there is of its reply, of its message and of its run. A statement has one snapshot, so
// a run that is over has no reply that the statement does not see.
const answers = `
SELECT u.run_id, u.signal_id, a.sequence IS NOT NULL, coalesce(a.permanent, false), a.output, a.error_kind, a.error,
	g.set_aside, coalesce(g.consumed_by = '', false),
	coalesce(g.expires_at <= clock_timestamp() AND r.status IN ('PENDING', 'SLEEPING'), false),
	r.status, r.workflow_type, r.error_kind, r.error
FROM unnest($2::uuid[], $3::text[]) AS u (run_id, signal_id)
LEFT JOIN LATERAL (
	SELECT q.status, q.workflow_type, q.error_kind, q.error
	FROM kagzi.workflow_runs q
	WHERE q.run_id = u.run_id AND q.namespace_id = $1
	OFFSET 0
) r ON true
LEFT JOIN LATERAL (
	SELECT s.sequence, s.set_aside, s.expires_at, s.consumed_by
	FROM kagzi.signals s
	WHERE s.signal_id = u.signal_id AND s.run_id = u.run_id AND s.namespace_id = $1
	OFFSET 0
) g ON true
LEFT JOIN LATERAL (
	SELECT t.sequence, t.permanent, t.output, t.error_kind, t.error
	FROM kagzi.step_runs t
	WHERE t.run_id = u.run_id AND t.sequence = g.sequence AND t.step_kind = 'REPLY' AND t.namespace_id = $1
	ORDER BY t.position
	LIMIT 1
) a ON true`

// Only a worker takes a message, and its run is RUNNING from before until that is recorded. So a message of a run that
// is not RUNNING, whose row an earlier statement has locked, is taken by none.
const expireRequests = `
WITH due AS MATERIALIZED (
	SELECT s.run_id, s.name, s.sequence, clock_timestamp() AS now
	FROM unnest($2::uuid[], $3::text[]) AS u (run_id, signal_id)
	CROSS JOIN LATERAL (
		SELECT q.run_id FROM kagzi.workflow_runs q
		WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.status IN ('PENDING', 'SLEEPING')
		OFFSET 0
	) r
	CROSS JOIN LATERAL (
		SELECT t.run_id, t.name, t.sequence FROM kagzi.signals t
		WHERE t.signal_id = u.signal_id AND t.run_id = r.run_id AND t.namespace_id = $1
			AND t.expires_at <= clock_timestamp() AND t.consumed_by IS NULL AND t.set_aside_at IS NULL
		OFFSET 0
	) s
)
UPDATE kagzi.signals g
SET consumed_at = due.now, consumed_by = ''
FROM due
WHERE g.run_id = due.run_id AND g.name = due.name AND g.sequence = due.sequence AND g.namespace_id = $1
RETURNING g.run_id, g.signal_id`

// Answers returns what became of the requests that are open no longer, and lets those expire that no worker is about to
// take. A message that its run does not have may be sent yet. It takes at most the time given; zero means the
// timeout of every call.
func (s Messages) Answers(ctx context.Context, keys []RequestKey, most time.Duration) (decided []Answer, err error) {
	mode := pg.Mode{Statements: most, Locks: pg.CallTimeout}
	if most == 0 {
		mode = pg.Untimed
	}
	runs, ids := make([]uuid.UUID, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		runs[i], ids[i] = k.RunID, k.ID
	}
	var overdue []RequestKey
	err = pg.Do(ctx, func(ctx context.Context) error {
		decided, overdue = nil, nil
		b := &pgx.Batch{}
		b.Queue(answers, s.namespace, array(runs), ids)
		return pg.Exchange(ctx, s.pool, mode, b, func(rows pgx.Rows) error {
			for rows.Next() {
				a, due, err := readAnswer(rows)
				switch {
				case err != nil:
					return err
				case a.State != AnswerOpen:
					decided = append(decided, a)
				case due:
					overdue = append(overdue, a.RequestKey)
				}
			}
			return nil
		})
	})
	if err == nil && len(overdue) > 0 {
		var expired []Answer
		expired, err = s.expire(ctx, overdue)
		decided = append(decided, expired...)
	}
	return decided, pg.Wrap("find answers", err)
}

// expire sets those of the requests aside that have expired and that no worker is about to take, and returns them.
func (s Messages) expire(ctx context.Context, keys []RequestKey) (expired []Answer, err error) {
	runs, ids := make([]uuid.UUID, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		runs[i], ids[i] = k.RunID, k.ID
	}
	err = pg.Again(ctx, func(ctx context.Context) error {
		expired = nil
		b := &pgx.Batch{}
		b.Queue(lockRuns, s.namespace, array(runs))
		b.Queue(expireRequests, s.namespace, array(runs), ids)
		return pg.Exchange(ctx, s.pool, pg.Untimed, b, nil, func(rows pgx.Rows) error {
			a := Answer{State: AnswerExpired}
			_, err := pgx.ForEachRow(rows, []any{&a.RunID, &a.ID}, func() error {
				expired = append(expired, a)
				return nil
			})
			return err
		})
	})
	return expired, err
}

// readAnswer also reports whether the request is due to expire.
func readAnswer(rows pgx.Rows) (a Answer, due bool, err error) {
	var replied, refused, expired bool
	var kind, text, aside, status, workflow, endKind, endText *string
	if err := rows.Scan(&a.RunID, &a.ID, &replied, &refused, &a.Output, &kind, &text, &aside, &expired, &due, &status,
		&workflow, &endKind, &endText); err != nil {
		return a, false, err
	}
	a.ErrorKind, a.Error = pg.Deref(kind), pg.Deref(text)
	switch over := pg.Deref(status); {
	case refused:
		a.State = AnswerRefused
	case replied:
		a.State = AnswerReplied
	case expired:
		a.State = AnswerExpired
	case status == nil:
		a.State = AnswerNoRun
	case over == Completed || over == Failed || over == Cancelled:
		a.State = AnswerRunOver
		a.End = Ended{
			RunID: a.RunID, Type: pg.Deref(workflow), Status: over, ErrorKind: pg.Deref(endKind),
			Error: pg.Deref(endText),
		}
	case aside != nil:
		a.State, a.Error = AnswerSetAside, *aside
	}
	return a, due, nil
}

// ReplyOf returns the answer that r, a REPLY, gives to the request with its Answers.
func ReplyOf(r *Record) Answer {
	a := Answer{
		RequestKey: RequestKey{r.RunID, r.Answers.ID}, State: AnswerReplied, Asked: r.Answers, Sequence: r.Sequence,
		Output: r.Output, ErrorKind: r.ErrorKind, Error: r.Error,
	}
	if r.Permanent {
		a.State = AnswerRefused
	}
	return a
}

// Of the runs that had the ID, the one that has the message.
const askedRun = `
SELECT r.run_id
FROM (
	SELECT s.run_id FROM kagzi.signals s
	WHERE s.signal_id = $3 AND s.namespace_id = $1 AND s.payload_hash IS NOT NULL
	OFFSET 0
) g
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q
	WHERE q.run_id = g.run_id AND q.namespace_id = $1 AND q.external_id = $2
	OFFSET 0
) r
ORDER BY r.run_id DESC
LIMIT 1`

// Asked returns the newest run that had the external ID and has the request; uuid.Nil if there is none.
// It reads in tx unless tx is nil.
func (s Messages) Asked(ctx context.Context, tx pgx.Tx, externalID, request string) (run uuid.UUID, err error) {
	read := func(ctx context.Context, db pg.DB) error {
		err := pg.AskRow(ctx, db, askedRun, []any{s.namespace, externalID, request}, &run)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}
	if tx != nil {
		err = read(ctx, tx)
	} else {
		err = pg.Do(ctx, func(ctx context.Context) error { return read(ctx, s.pool) })
	}
	return run, pg.Wrap("find request", err)
}
