package engine

import (
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/kagzi/kagzi/store"
)

// A child is a run that this one has started.
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

// cancelStep is the ID under which it is remembered that the run has cancelled the child.
func (c *Child) cancelStep() string { return store.CancelID(c.step) }

// cancelledBefore returns the record of the child's cancel, nil if there is none. One of another run of the same step, which
// an earlier attempt of this run had started, does not count.
func (c *Child) cancelledBefore() *store.StepRow {
	row := c.by.e.history[c.cancelStep()]
	if row == nil || string(row.Output) != strconv.Quote(c.id.String()) {
		return nil
	}
	return row
}
