package replay

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A Child is a run that this run has started.
type Child struct {
	e        *Run
	by       *Branch // the branch that started it
	step     string  // the ID of its record
	workflow string
	id       uuid.UUID // of its run
	// by has passed its end, in a replay or not. Set by pass, for good; only the goroutine of by uses it.
	passed bool

	// The execution's mutex guards these.
	row       *store.StepRow // its newest record: RUNNING until the child's end is recorded, or deferred
	detached  bool           // ends of branches and of this run do not cancel it. Set when it is started or recalled.
	stopped   bool           // this run has cancelled it, or is about to. Never reset.
	cancelled *store.StepRow // the record of Cancel; nil if this execution has not called that
	failed    *knownFailure  // its failure, from the first time that a branch was given it
}

var errOtherRun = errors.New("kagzi: the child was started by another execution: a Child is of use only in the call " +
	"of the workflow function that started it")

// ID returns the child's run.
func (c *Child) ID() uuid.UUID { return c.id }

// stopBelowLocked notes that the run cancels the child, if it was started on one of the branches, or on one below them,
// and has not been cancelled. It reports whether it has to be.
func (c *Child) stopBelowLocked(branches []*node) bool {
	if c.row.Status != store.Running || c.stopped || c.detached || !slices.ContainsFunc(branches, c.by.under) {
		return false
	}
	c.stopped = true
	return true
}
