package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Restart is a run to start like another one, which is over.
type Restart struct {
	Run           uuid.UUID // the old run, which is over
	New           uuid.UUID // the new run's ID, made by the client so that a repeated call finds the run
	Step          string    // fork: keep Run's history up to when this step, or the first step below it, first began
	ExternalID    string    // empty: Run's
	Version       int       // zero: Run's
	Replace       bool      // use Input instead of Run's
	Input         []byte
	InputHash     []byte // of Input
	Why           Why
	Headers       json.RawMessage // in addition to Run's; nil: none
	Compensations bool            // fork: copy the compensations that Run had registered by then

	// Hash returns the hash of a stored input. The row of a run without an external ID does not have it.
	Hash func(input []byte) ([]byte, error)
}

// A Restarted says which workers may claim a new run.
type Restarted struct {
	DueRun
	publishes bool

	Due []DueRun // consumers of its start
}

// While the run is locked, it cannot be resumed or deleted. The statement waits for the lock and then sees the current
// row.
const lockOver = `
SELECT q.status, coalesce(q.external_id, '')
FROM kagzi.workflow_runs q
WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.waiting_on IS DISTINCT FROM '` + clause.BeingDeleted + `'
FOR UPDATE`

// The input and the options are copied in the database, because an input may be large. The tick is copied for FireTime,
// without the schedule's ID, so that the overlap policy does not count the new run. The Timeout begins again. A fork
// has more wake-ups than the old run: at least one, so that the first claim reads its history, and more than the
// sequence numbers of the copied messages.
const restartRun = `
WITH starts AS MATERIALIZED (
	SELECT s.*, CASE WHEN s.external_id IS NOT NULL THEN coalesce($9::bytea, s.hash) END AS input_hash,
		s.now AS available_at, $2::uuid AS origin_run_id, NULL::uuid AS schedule_id, NULL::jsonb AS waiting_on,
		` + noParent + `, ` + noClaim + `
	FROM (
		SELECT ` + keptColumns + `, q.priority, coalesce(q.first_metadata, q.metadata) AS metadata,
			CASE WHEN $10::text = '' THEN q.headers
				ELSE coalesce(q.headers, '{}') || NULLIF($10::text, '')::jsonb END AS headers,
			CASE WHEN $5::int > 0 THEN $5::int ELSE q.version END AS version, $3::uuid AS run_id,
			CASE WHEN $4::text <> '' THEN $4::text ELSE q.external_id END AS external_id, q.input_hash AS hash,
			CASE WHEN $6::boolean THEN $7::bytea ELSE ` + inputOfRun + ` END AS input,
			CASE WHEN $8::boolean THEN q.wakeups + 1 ELSE 0 END AS wakeups, q.schedule_name, q.fire_at,
			statement_timestamp() AS now
		FROM kagzi.workflow_runs q
		WHERE q.run_id = $2 AND q.namespace_id = $1
	) s
), ` + insertKeyed + selectInserted

// Restart starts a run like an old one, due now, and writes an event for both. It returns ErrRunNotFound, ErrRunActive
// if the old run is not over, and ErrIDConflict if an active run has the external ID, or the old run is of a consumer,
// and has completed or is not its last one. The new one takes its place as the consumer's last run. A fork may also
// return ErrStepNotFound and ErrCompensated. Restart is a transaction of its own, or a part of tx, which survives its
// errors.
func (s Runs) Restart(ctx context.Context, tx pgx.Tx, r Restart) (work Restarted, err error) {
	what := EventRestarted
	if r.Step != "" {
		what = EventForked
	}
	from, as := newEvent(r.Run, what, r.Why), newEvent(r.New, what, r.Why)
	from.Other, as.Other, from.Step, as.Step, as.copied = r.New, r.Run, r.Step, r.Step, true
	tried := false // an earlier try of our own transaction, whose answer may have been lost
	err = s.inSavepoint(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
		if tried {
			if done, err := s.hasEvent(ctx, tx, as); done || err != nil {
				return err
			}
		}
		tried = true
		started, err := s.restart(ctx, tx, r)
		if err != nil {
			return err
		}
		work = started
		return s.writeEvents(ctx, tx, from, as)
	})
	return work, pg.Wrap("restart", err)
}

// restart reads before it writes anything.
func (s Runs) restart(ctx context.Context, tx pgx.Tx, r Restart) (work Restarted, err error) {
	externalID, err := s.lockOver(ctx, tx, r.Run)
	if err != nil {
		return work, err
	}
	var consumer consumerOfRun
	if r.ExternalID == "" || r.ExternalID == externalID {
		if consumer, err = s.adopter(ctx, tx, r.Run); err != nil {
			return work, err
		}
	}
	if r.ExternalID != "" {
		externalID = r.ExternalID
		if err := s.hashInput(ctx, tx, &r); err != nil {
			return work, err
		}
	}
	var at *forkPoint
	if r.Step != "" {
		if at, err = s.forkPoint(ctx, tx, r.Run, r.Step); err != nil {
			return work, err
		}
	}
	for range 10 {
		if work, err = s.insertRestart(ctx, tx, r); !errors.Is(err, pgx.ErrNoRows) {
			break
		}
		// An active run has the ID, or has just ended. A second statement finds it, because the one that inserts does
		// not see later commits.
		if err = s.conflict(ctx, tx, externalID); err != nil {
			break
		}
		err = ErrIDConflict
	}
	if err == nil && consumer.name != "" {
		err = pg.Ask(ctx, tx, adoptRun, []any{s.namespace, consumer.name, r.New}, nil)
	}
	if err == nil && at != nil {
		err = s.copyHistory(ctx, tx, at, r.New, r.Compensations)
	}
	return work, err
}

// adopter locks the consumer of the run, which adopts the run's restart. It returns ErrIDConflict if the consumer needs
// no run in place of this one.
func (s Runs) adopter(ctx context.Context, tx pgx.Tx, run uuid.UUID) (consumerOfRun, error) {
	c, err := s.lockConsumer(ctx, tx, run)
	if err == nil && c.name != "" && (!c.last || c.completed) {
		err = ErrIDConflict
	}
	return c, err
}

// lockOver locks a run that is over until the end of tx, and returns its external ID.
func (s Runs) lockOver(ctx context.Context, tx pgx.Tx, id uuid.UUID) (externalID string, err error) {
	var status string
	err = pg.Ask(ctx, tx, lockOver, []any{s.namespace, id}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&status, &externalID}, func() error { return nil })
		return err
	})
	switch {
	case err != nil:
		return "", err
	case status == "":
		return "", ErrRunNotFound
	case status == Pending || status == Running || status == Sleeping:
		return "", ErrRunActive
	}
	return externalID, nil
}

const unhashedInput = `
SELECT ` + inputOfRun + `
FROM kagzi.workflow_runs q
WHERE q.run_id = $2 AND q.namespace_id = $1 AND q.input_hash IS NULL`

// hashInput computes the hash of the input for the new external ID, if the old run has no hash.
func (s Runs) hashInput(ctx context.Context, tx pgx.Tx, r *Restart) error {
	if r.Replace {
		return nil
	}
	input, err := pg.AskOne[[]byte](ctx, tx, unhashedInput, s.namespace, r.Run)
	if err == nil {
		r.InputHash, err = r.Hash(input)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return err
}

func (s Runs) insertRestart(ctx context.Context, tx pgx.Tx, r Restart) (work Restarted, err error) {
	args := []any{
		s.namespace, r.Run, r.New, r.ExternalID, r.Version, r.Replace, r.Input, r.Step != "", r.InputHash,
		string(r.Headers),
	}
	err = pg.Ask(ctx, tx, restartRun, args, func(rows pgx.Rows) (err error) {
		work, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (w Restarted, err error) {
			return w, row.Scan(pg.UUIDTo(&w.RunID), &w.Queue, &w.Type, &w.Version, &w.publishes)
		})
		return err
	})
	if err == nil && work.publishes {
		work.Due, err = s.publishRuns(ctx, tx, started, r.New)
	}
	return work, err
}

// conflict returns an IDConflict that names the active run with the external ID, nil if there is none.
func (s Runs) conflict(ctx context.Context, tx pgx.Tx, externalID string) error {
	held, err := s.holders(ctx, tx, activeByExternalID, []string{externalID})
	if h := held[externalID]; err == nil && h != nil {
		err = &IDConflict{ExternalID: h.external, RunID: h.id, Type: h.typ}
	}
	return err
}
