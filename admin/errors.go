package admin

import "github.com/kagzi/kagzi/internal/core"

// Refusals of changes.
var (
	// ErrNotWaiting reports that Runs.Update cannot change a run: a worker executes it, its new queue is full,
	// or the run waits for something else than the time that was to be changed. The text says which, and what to do.
	ErrNotWaiting = core.ErrNotWaiting
	// ErrRunNeeded reports that Runs.Delete refuses a run, because its parent or its topic.Consumer needs it.
	ErrRunNeeded = core.ErrRunNeeded
	// ErrCompensated reports that at least one of the run's compensations has run, so the run cannot continue from its
	// steps.
	ErrCompensated = core.ErrCompensated
	// ErrNoDoubt reports that Runs.Resolve has nothing to resolve: the step is not in doubt, or no longer.
	ErrNoDoubt = core.ErrNoDoubt
)
