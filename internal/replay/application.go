package replay

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// Errors classifies the errors of the application, and makes those that the application gets.
type Errors interface {
	// Classify returns the class of an error of the application. It accepts any error, also one whose methods panic.
	Classify(err error) Class
	// About returns the ID of the record that err itself describes, not an error that it wraps; "" if there is none.
	// others are failures that came with it.
	About(err error) (id string, others []error)
	// Recorded returns the failure that row records, of a step or of a child. workflow is the child's.
	Recorded(row *store.StepRow, workflow string) error
	// RecordedBranch returns the failure of a branch that row records. causes are the failures in its chain.
	RecordedBranch(row *store.StepRow, causes []error) error
	// Branch returns the failure of one branch, and Branches the failure of several.
	Branch(f BranchFailure) error
	Branches(fs []BranchFailure) error
}

// A Class says how the engine treats an error.
type Class struct {
	Kind      kind.Kind
	Permanent bool          // another attempt would not help
	After     time.Duration // the least pause before another attempt; zero: the error sets none
	Cancelled bool          // the error, or one in its chain, reports a cancellation
	// says which exported error is in the chain, so that Recorded finds it in the record of a refusal; empty: none
	Cause string
}

// A BranchFailure is the failure of one branch.
type BranchFailure struct {
	Name   string
	Index  int
	ID     string // of the branch's record
	Err    error
	Others []BranchFailure // the other branches of its group that had failed by then
}

// A StepIdentity names one attempt of one step.
type StepIdentity struct {
	Run      string
	Workflow string
	Step     string
	Attempt  int
	Headers  map[string]string // of the run: not to be changed
	By       Reporter          // the branch that executes it
}

// A Reporter is told what the function of a step does: see Branch.
type Reporter interface {
	SetProgress(text string, fraction *float64)
	AwaitsRun(id uuid.UUID) (ended func())
}

// A RetryPolicy decides whether another attempt follows, and when.
type RetryPolicy interface {
	Allows(attempt int) bool
	Backoff(attempt int, random float64) time.Duration // random is in [0, 1)
}
