package replay

import (
	"errors"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// What the end of an execution means for its interceptors, and the error of a call from a goroutine that is not the
// branch's.
var (
	ErrSuspended        = errors.New("kagzi: the run goes on later")
	ErrRetried          = errors.New("kagzi: the run is tried again")
	ErrForeignGoroutine = errors.New("kagzi: Context in use by another goroutine or by its own step: " +
		"start branches with kagzi.Go, kagzi.Parallel or kagzi.Map, and use the Context that each gets")
)

var errCancelled = failure.Of(kind.Cancelled, errors.New("kagzi: run was cancelled"))

// errBranchCancelled is the cause of the context of a branch that was cancelled because another failed, or won.
var errBranchCancelled = failure.Of(kind.Cancelled, errors.New("kagzi: branch was cancelled"))

// A contradiction is the failure of an execution whose code contradicts its history at a step.
type contradiction struct {
	error
	step string
}

// where returns the step.
func (c *contradiction) where() string { return c.step }

// Errors classifies the errors of the application, and makes those that the application gets.
type Errors interface {
	// Classify returns the class of an error of the application. It accepts any error, also one whose methods panic.
	Classify(err error) failure.Class
	// About returns the ID of the record that err itself describes, not an error that it wraps; "" if there is none.
	// others are failures that came with it.
	About(err error) (id string, others []error)
	// Recorded returns the failure that row records, of a step or of a child. workflow is the child's. It calls wrong
	// if the failure has details that do not decode.
	Recorded(row *store.StepRow, workflow string, wrong func(error)) error
	// RecordedBranch returns the failure of a branch that row records. causes are the failures in its chain.
	RecordedBranch(row *store.StepRow, causes []error) error
	// Branch returns the failure of one branch, and Branches the failure of several.
	Branch(f BranchFailure) error
	Branches(fs []BranchFailure) error
}

// describe makes r the record of the failure err, which is of the class.
func describe(r *store.Record, c failure.Class, err error) {
	r.Status, r.ErrorKind, r.Error, r.Permanent = store.Failed, string(c.Kind), failure.Text(err), c.Permanent
}

// A BranchFailure is the failure of one branch.
type BranchFailure struct {
	Name   string
	Index  int
	ID     string // of the branch's record
	Err    error
	Others []BranchFailure // the other branches of its group that had failed by then
}
