package replay

import (
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/goroutine"
)

// begin prepares the branch on its own goroutine.
func (b *Branch) begin() {
	b.goid.Store(goroutine.ID())
	b.undoing.by, b.knowing.by = &b.replayer, &b.replayer
	b.own = b.directlyUnder(b.prefix)
	b.live.Store(b.own == 0)
	b.e.guards(b)
}

// owned reports whether the caller is the branch's goroutine, outside of a step's function. Only then may it exit the
// goroutine.
func (b *Branch) owned() bool { return !b.inStep.Load() && goroutine.ID() == b.goid.Load() }

// mayUse returns the error if the branch may not use an object of that execution. It exits the goroutine if
// the execution has stopped.
func (b *Branch) mayUse(e *Run) error {
	if !b.owned() {
		return b.foreign()
	}
	b.e.exitIfStopped()
	if e != b.e {
		return b.Misuse(errOtherRun)
	}
	return nil
}

// foreign returns the error for a caller that does not own the branch, and notes it.
func (b *Branch) foreign() error {
	if b.inStep.Load() && goroutine.ID() == b.goid.Load() {
		b.misusedInStep = failure.Explain("a durable operation inside of a step: call it before or after the step, "+
			"in the workflow function", ErrForeignGoroutine)
		return b.misusedInStep
	}
	b.noteMisuse(ErrForeignGoroutine)
	return ErrForeignGoroutine
}
