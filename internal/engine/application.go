package engine

import (
	"time"

	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// Errors read the errors of the application's code, and make those that it gets.
type Errors interface {
	// Classify says what an error of the application's is. It is called with any error, also one whose methods panic.
	Classify(err error) Class
	// About returns the ID of the record that err itself, and not what it wraps, is about, "" if it is about none; and other
	// failures that came with it.
	About(err error) (id string, others []error)
	// Recorded returns the failure that row records: of a step, or of a child, which is of workflow.
	Recorded(row *store.StepRow, workflow string) error
	// RecordedBranch returns the failure of a branch that row records, which had causes in its chain.
	RecordedBranch(row *store.StepRow, causes []error) error
	// Branch returns the failure of a branch, and Branches those of several.
	Branch(f BranchFailure) error
	Branches(fs []BranchFailure) error
}

// A Class is what the engine goes by.
type Class struct {
	Kind      kind.Kind
	Permanent bool          // another attempt would not help
	After     time.Duration // another attempt is to come so much later at the least; zero: nothing is said
	Cancelled bool          // the error says that something was cancelled, or has such an error in its chain
}

// A BranchFailure is what one branch of a group failed with.
type BranchFailure struct {
	Name   string
	Index  int
	ID     string // of the branch's record
	Err    error
	Others []BranchFailure // what else had failed in its group by then
}

// A StepIdentity says which attempt of which step it is.
type StepIdentity struct {
	Run      string
	Workflow string
	Step     string
	Attempt  int
}

// A RetryPolicy says whether, and when, another attempt follows.
type RetryPolicy interface {
	Allows(attempt int) bool
	Backoff(attempt int, random float64) time.Duration // random is in [0, 1)
}
