package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// ErrNoDoubt says that the run has no such step in doubt.
var ErrNoDoubt = errors.New("no step in doubt")

// byPerson is the Is of a resolution that an operator has given: see ByPerson.
const byPerson = "person"

// DoubtName returns the name under which a run learns what the call of an attempt in doubt has done. A fork of the run,
// which has its messages, has steps of its own.
func DoubtName(run uuid.UUID, step string, attempt int) string {
	return AnswerName(fmt.Sprintf("%s/#doubt:%s:%d", step, run, attempt))
}

// Resolution returns the message by which a run learns what the call of an attempt in doubt has done: AnswerReplied
// says that it has happened, AnswerNotSent that it has not, AnswerRefused that the step fails. A run gets one such
// message for each attempt: the first one that is sent.
func (a *Answer) Resolution(run uuid.UUID, step string, attempt int) Message {
	name := DoubtName(run, step, attempt)
	return Message{RunID: run, Name: name, ID: name, Payload: a.Output, Headers: a.head()}
}

// resolutions are the outcomes that Resolve records, by the states of answers.
var resolutions = map[AnswerState]string{
	AnswerReplied: "happened", AnswerNotSent: "did not happen", AnswerRefused: "given up",
}

// ByPerson reports whether a resolution is that of an operator, and not of the step's Reconcile.
func (a *Answer) ByPerson() bool { return a.Is == byPerson }

// The attempt of the step that is in doubt, under its whole ID, which may be that of an earlier epoch, and whether the
// run waits until that is resolved. The row of the run is locked. A worker that executes the run will say itself that
// an attempt without an error is in doubt.
const doubtOf = `
SELECT s.step_id, s.attempt_number, r.epoch, NOT s.permanent AND r.finished_at IS NULL AND s.step_id = $3, r.finished_at
FROM kagzi.workflow_runs r
CROSS JOIN LATERAL (
	SELECT t.step_id, t.attempt_number, t.permanent
	FROM kagzi.step_runs t
	WHERE t.run_id = r.run_id AND t.namespace_id = $1 AND t.status = 'RUNNING' AND t.error_kind IS NOT NULL
		AND regexp_replace(t.step_id, E'^\x01[0-9]+/', ''::text) = $3
		AND (t.error IS NOT NULL OR r.status <> 'RUNNING')
	ORDER BY t.step_id DESC, t.attempt_number DESC
	LIMIT 1
) s
WHERE r.run_id = $2 AND r.namespace_id = $1`

// Records what the call has done, if nothing in the run waits for that.
const recordResolution = `
WITH given AS MATERIALIZED (SELECT coalesce($10, clock_timestamp()) AS ended)
UPDATE kagzi.step_runs s
SET status = $5, output = $6, error_kind = CASE WHEN $5 = 'FAILED' THEN coalesce(NULLIF($7, ''), s.error_kind) END,
	error = CASE WHEN $5 = 'FAILED' THEN coalesce(NULLIF($8, ''), s.error) END, permanent = $9,
	wake_at = CASE WHEN $5 = 'FAILED' AND NOT $9 THEN given.ended END, finished_at = given.ended
FROM given
WHERE s.run_id = $2 AND s.step_id = $3 AND s.attempt_number = $4 AND s.namespace_id = $1`

// Takes a resolution that nothing in the run has read, because it has waited no longer.
const takeResolution = `
DELETE FROM kagzi.signals g
WHERE g.signal_id = $3 AND g.run_id = $2 AND g.namespace_id = $1 AND g.consumed_by IS NULL AND g.set_aside_at IS NULL
RETURNING g.headers, g.payload`

// An openDoubt is an attempt that is in doubt.
type openDoubt struct {
	run     uuid.UUID
	step    string
	attempt int
	epoch   int
	waits   bool       // the run waits until it is resolved
	over    *time.Time // when the run ended: no step ends later
}

// Resolve says what the call of a step in doubt has done: see Resolution. A run that waits for that gets a message. It
// returns ErrRunNotFound, and ErrNoDoubt also if another call was first. A tx survives its errors.
func (s Messages) Resolve(ctx context.Context, tx pgx.Tx, run uuid.UUID, step string, a Answer, why Why,
) (out Signalled, err error) {
	event := newEvent(run, EventResolved, why)
	event.Step, event.Changes = step, []Changed{{"outcome", "in doubt", resolutions[a.State]}}
	a.Is = byPerson
	first := true
	err = s.inSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		done, _, err := s.lockForMessage(ctx, tx, event)
		if done || err != nil {
			return err
		}
		d := openDoubt{run: run}
		err = pg.AskRow(ctx, tx, doubtOf, []any{s.namespace, run, step}, &d.step, &d.attempt,
			&d.epoch, &d.waits, &d.over)
		if errors.Is(err, pgx.ErrNoRows) {
			err = ErrNoDoubt
		}
		if err != nil {
			return err
		}
		if d.waits {
			out, err = s.sendResolution(ctx, tx, a.Resolution(run, StepKey(d.epoch, step), d.attempt))
		} else {
			first, err = s.recordResolution(ctx, tx, d, a)
		}
		if err != nil || !first {
			return err
		}
		return s.writeEvents(ctx, tx, event)
	})
	if err == nil && !first {
		err = ErrNoDoubt
	}
	return out, pg.Wrap("resolve step", err)
}

// sendResolution sends the message, unless another one was faster. It replaces one that was set aside.
func (s Messages) sendResolution(ctx context.Context, tx pgx.Tx, m Message) (Signalled, error) {
	if _, err := s.removeMessage(ctx, tx, m.RunID, m.ID, false); err != nil {
		if _, kept := errors.AsType[*MessageKept](err); !kept && !errors.Is(err, ErrMessageNotFound) {
			return Signalled{}, err
		}
	}
	stored, err := s.storeMessages(ctx, tx, []Message{m})
	if err != nil {
		return Signalled{}, err
	}
	out, ok := stored[m.RunID]
	if !ok {
		return out, ErrNoDoubt
	}
	return out, nil
}

// recordResolution records a, unless the run got another answer while it waited: then it records that one.
func (s Messages) recordResolution(ctx context.Context, tx pgx.Tx, d openDoubt, a Answer) (first bool, err error) {
	id := DoubtName(d.run, StepKey(d.epoch, d.step), d.attempt)
	var headers json.RawMessage
	var payload []byte
	err = pg.AskRow(ctx, tx, takeResolution, []any{s.namespace, d.run, id}, &headers, &payload)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		first = true
	case err != nil:
		return false, err
	default:
		a = AnswerOf(headers, payload)
	}
	return first, pg.Ask(ctx, tx, recordResolution, a.recorded(s.namespace, d), nil)
}

// recorded returns the arguments of recordResolution.
func (a *Answer) recorded(namespace string, d openDoubt) []any {
	status := Failed
	if a.State == AnswerReplied {
		status = Completed
	}
	return []any{
		namespace, d.run, d.step, d.attempt, status, a.Output, a.ErrorKind, a.Error, a.State == AnswerRefused, d.over,
	}
}

// StepKey returns what distinguishes the step from those of the run's other epochs. No step ID has a part that begins
// with '#' and a digit.
func StepKey(epoch int, step string) string {
	if epoch == 0 {
		return step
	}
	return "#" + strconv.Itoa(epoch) + "/" + step
}
