package replay

import (
	"errors"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
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
