package engine

import (
	"errors"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A Child is a run that this one has started.
type Child struct {
	by       *Branch // that started it
	step     string
	workflow string
	id       uuid.UUID
	passed   bool // the branch that started it has passed its end, in a replay or not. Only that branch uses it.

	// The execution's mutex guards these.
	row       *store.StepRow // RUNNING until the child's end is recorded, or deferred
	detached  bool
	stopped   bool           // this run has cancelled it, or is about to
	cancelled *store.StepRow // the record of Child.Cancel; nil if that was not called in this execution
	failed    *knownFailure  // set once a branch was told that the child failed
}

var errOtherRun = errors.New("kagzi: the child was started by another execution: a Child is of use only in the call of the workflow function that started it")

// ID returns the child's run.
func (c *Child) ID() uuid.UUID { return c.id }
