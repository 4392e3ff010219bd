package store

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// checkpointID precedes a step's name in the ID of its checkpoint. Names of steps and branches do not begin with '#'.
const checkpointID = "#checkpoint:"

// CheckpointID returns the ID of the record of a step's checkpoint.
func CheckpointID(step string) string {
	at := strings.LastIndexByte(step, '/') + 1
	return step[:at] + checkpointID + step[at:]
}

// StepOfCheckpoint returns the ID of the step whose checkpoint has the ID.
func StepOfCheckpoint(id string) string { return strings.Replace(id, checkpointID, "", 1) }

// Replaces reports whether a record of the kind takes the place of the one before it under the same ID. The first
// record of another kind stays.
func Replaces(kind string) bool { return kind == KindValue || kind == KindCheckpoint }

const findCheckpoint = `
SELECT s.output
FROM kagzi.step_runs s
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_id = $3 AND s.attempt_number = 1`

// Checkpoint returns the checkpoint of a step of the run's epoch, as tx sees it; nil: it has none.
func (s Records) Checkpoint(ctx context.Context, tx pgx.Tx, run uuid.UUID, step string) (data []byte, err error) {
	err = pg.AskRow(ctx, tx, findCheckpoint, []any{s.namespace, run, CheckpointID(step)}, &data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return data, pg.Wrap("read checkpoint", err)
}
