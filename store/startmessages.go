package store

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

func anyMessages(runs []NewRun) bool {
	for i := range runs {
		if len(runs[i].Messages) > 0 {
			return true
		}
	}
	return false
}

var errEnded = errors.New("the run has ended")

// startSignalling is insert for runs of which some have messages: for the new run, or for the active run that has the
// external ID. If the active run ends before it is locked, a savepoint rolls everything back, and the start begins
// again. repeated says that the answer to an earlier try may have been lost.
func (s Starts) startSignalling(ctx context.Context, tx pgx.Tx, runs []NewRun, repeated bool) ([]StartedRun, error) {
	for try := range 10 {
		var out []StartedRun
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			if repeated && try == 0 {
				if out, err = s.startedBefore(ctx, tx, runs); err != nil || out != nil {
					return err
				}
			}
			if out, err = s.insert(ctx, tx, runs); err != nil {
				return err
			}
			if err := s.askedBefore(ctx, tx, runs, out); err != nil {
				return err
			}
			return s.signalStarted(ctx, tx, runs, out)
		})
		if !errors.Is(err, errEnded) {
			return out, err
		}
	}
	return nil, errors.New("the runs with these external IDs kept ending during the call: try again")
}

// ErrAskedBefore reports that another run, which had the external ID before, has the request: see Messages.Asked.
var ErrAskedBefore = errors.New("a run that had the external ID before has the request")

// askedBefore returns ErrAskedBefore if a request was sent to another run of its external ID. That is over, and so gets
// no request any more: a statement that begins after the insert sees those that it has.
func (s Starts) askedBefore(ctx context.Context, tx pgx.Tx, runs []NewRun, started []StartedRun) error {
	for i := range runs {
		for _, m := range runs[i].Messages {
			if m.Hash == nil || runs[i].ExternalID == "" {
				continue
			}
			run, err := Messages(s).Asked(ctx, tx, runs[i].ExternalID, m.ID)
			if err == nil && run != uuid.Nil && run != started[i].RunID {
				err = ErrAskedBefore
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// signalStarted stores the messages of runs that were just started or found.
func (s Starts) signalStarted(ctx context.Context, tx pgx.Tx, runs []NewRun, started []StartedRun) error {
	var messages []Message
	for i := range runs {
		for _, m := range runs[i].Messages {
			m.RunID = started[i].RunID
			messages = append(messages, m)
		}
	}
	stored, err := Messages(s).storeMessages(ctx, tx, messages)
	if err != nil {
		return err
	}
	for i := range runs {
		if len(runs[i].Messages) == 0 {
			continue
		}
		id := started[i].RunID
		g, ok := stored[id]
		if !ok {
			if g, err = s.notStored(ctx, tx, id, messages); err != nil {
				return err
			}
		}
		started[i].Signalled = &g
	}
	return nil
}

// notStored returns the run of which no message was stored. That is no error if the run has them all, from an earlier
// attempt of the same step. Otherwise its inbox is full, or it has ended since it was found.
func (s Starts) notStored(ctx context.Context, tx pgx.Tx, run uuid.UUID, messages []Message) (Signalled, error) {
	messages = slices.DeleteFunc(slices.Clone(messages), func(m Message) bool { return m.RunID != run })
	found, err := Messages(s).resolveMessages(ctx, tx, messages)
	f, ok := found[run]
	switch {
	case err != nil:
		return Signalled{}, err
	case ok && f.others > 0:
		return Signalled{}, ErrRequestConflict
	case ok && f.missing == 0:
		return f.Signalled, nil
	case ok && !f.over && f.full():
		return Signalled{}, &fullInbox{run}
	}
	return Signalled{}, errEnded
}

// Of the runs that have the message of a start, the start's own, and those that had its external ID. The sender chooses
// the message's ID, which others may have, too.
const startedWith = `
SELECT u.run_id, r.run_id
FROM unnest($2::uuid[], $3::text[], $4::text[]) AS u (run_id, external_id, signal_id)
CROSS JOIN LATERAL (
	SELECT s.run_id FROM kagzi.signals s WHERE s.signal_id = u.signal_id AND s.namespace_id = $1 OFFSET 0
) g
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q
	WHERE q.run_id = g.run_id AND q.namespace_id = $1 AND (q.run_id = u.run_id OR q.external_id = u.external_id)
	OFFSET 0
) r`

// startedBefore returns the result of an earlier try of the same call whose answer was lost, nil if that try had no
// effect. It finds the runs by their messages: a run that got them may be over by now, and the start must not insert
// another one.
func (s Starts) startedBefore(ctx context.Context, tx pgx.Tx, runs []NewRun) ([]StartedRun, error) {
	var ids []uuid.UUID
	var external, messages []string
	for i := range runs {
		if r := &runs[i]; len(r.Messages) > 0 {
			ids, external = append(ids, r.RunID), append(external, r.ExternalID)
			messages = append(messages, r.Messages[0].ID)
		}
	}
	got := map[uuid.UUID][]uuid.UUID{}
	args := []any{s.namespace, array(ids), external, messages}
	if err := pg.Ask(ctx, tx, startedWith, args, func(rows pgx.Rows) error {
		var start, run uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&start, &run}, func() error {
			got[start] = append(got[start], run)
			return nil
		})
		return err
	}); err != nil || len(got) == 0 {
		return nil, err
	}
	out := make([]StartedRun, len(runs))
	var rest []NewRun
	var indexes []int
	for i := range runs {
		found := got[runs[i].RunID]
		switch {
		case found == nil:
			rest, indexes = append(rest, runs[i]), append(indexes, i)
		case slices.Contains(found, runs[i].RunID):
			out[i] = StartedRun{RunID: runs[i].RunID}
		default: // if there are several, earlier attempts of a step sent to the older ones
			out[i] = StartedRun{RunID: slices.MaxFunc(found, compareIDs), Existed: true}
		}
	}
	if len(rest) > 0 {
		more, err := s.insert(ctx, tx, rest)
		if err != nil {
			return nil, err
		}
		for k, i := range indexes {
			out[i] = more[k]
		}
	}
	return out, s.signalStarted(ctx, tx, runs, out)
}
